"""A record is one result: task, model, loss, decoding, seed and metric, and the value with its interval.

Every score of a run is a list of records in ``scores/<name>.json``. Tables and pages read nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from widen.sample.decoding import Decoding

from .folder import RunFolder
from .value import from_json, to_json

SCHEMA = 2
"""Version of a score file."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One number.

    Args:
      loss: the spec of the training loss; empty for a model that widen did not train.
      decoding: None if nothing is drawn.
      seed: of the training, or of the samples for a model that widen did not train.
      metric: precision, recall, pass@10, mauve, ...
      low, high: 95 % interval over texts, problems or random draws; None if there is none.
      n: number of samples, texts or problems.
      detail: more about it, as JSON. ``score`` holds the settings of the score, ``score.kind`` its name.

    Examples:
      >>> one = Record(task="mulmod", model="llama", loss="nll", decoding=Decoding(), seed=0, metric="recall", value=0.5)
      >>> from_json(Record, to_json(one)) == one
      True
    """

    task: str
    model: str
    loss: str
    decoding: Decoding | None
    seed: int | None
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def score(self) -> dict[str, Any]:
        """The settings of the score; records compare if their task, metric and these agree."""
        found = self.detail.get("score", {})
        return dict(found) if isinstance(found, dict) else {}

    @property
    def kind(self) -> str:
        """Task and name of the score."""
        return f"{self.task}, {self.score['kind']}" if "kind" in self.score else self.task


def write_records(folder: RunFolder, name: str, records: Sequence[Record]) -> Path:
    """Write one score file."""
    path = folder.scores(name)
    folder.write(path, {"records": to_json(list(records))}, schema=SCHEMA)
    return path


def read_records(folder: RunFolder, name: str) -> list[Record] | None:
    """The records of one score file, or None if it does not exist."""
    return _read(folder, folder.scores(name)) if folder.scores(name).exists() else None


def all_records(folder: RunFolder) -> list[Record]:
    """Every record of a run, in the order of the files' names."""
    return [record for path in sorted(folder.scores("x").parent.glob("*.json")) for record in _read(folder, path)]


def _read(folder: RunFolder, path: Path) -> list[Record]:
    try:
        content = folder.read(path, schema=SCHEMA)
    except ValueError as error:
        raise ValueError(f"{error}: remove {path} and score again") from None
    try:
        return [from_json(Record, data, where="record") for data in content["records"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of records ({error}); remove it and score again") from None


def by_decoding(records: Iterable[Record]) -> dict[tuple[str, Decoding | None], dict[str, Record]]:
    """Records of one run as points: {(kind, decoding): {metric: record}}."""
    points: dict[tuple[str, Decoding | None], dict[str, Record]] = {}
    for record in records:
        points.setdefault((record.kind, record.decoding), {})[record.metric] = record
    return points
