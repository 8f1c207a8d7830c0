"""Score files of experiments on texts: one file of records per decoding, so that a stopped run repeats nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from widen.metrics import text_scores
from widen.sample.decoding import Decoding, Settings

from ..experiment import Experiment
from ..folder import RunFolder
from ..questions import prompts_path
from ..record import Record, read_records, write_records
from ..score_settings import KnnScore, SupportScore
from ..value import content_hash, to_json

VERSION = 3
"""Version of the measurements; raising it measures everything again."""


class Measured(NamedTuple):
    """A number, its interval over problems or texts, and how many of these there are."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


def records_of(
    values: Mapping[str, Measured],
    *,
    task: str,
    model: str,
    loss: str,
    decoding: Decoding | None,
    seed: int | None,
    score: Mapping[str, Any],
    detail: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Record]:
    """Records of numbers that were measured together; ``detail`` adds to the detail of some metrics."""
    about: dict[str, Any] = {"task": task, "model": model, "loss": loss, "decoding": decoding, "seed": seed}
    more = detail or {}
    return [
        Record(**about, metric=metric, **one._asdict(), detail={"score": dict(score), **more.get(metric, {})})
        for metric, one in values.items()
    ]


def records_for(
    experiment: Experiment,
    decoding: Decoding | None,
    values: Mapping[str, Measured],
    *,
    score: Mapping[str, Any] | None = None,
    detail: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Record]:
    """Records of an experiment's model at one decoding; ``score`` adds to the settings of the score."""
    return records_of(
        values,
        task=experiment.task,
        model=experiment.base,
        loss=experiment.loss,
        decoding=decoding,
        seed=experiment.model_seed,
        score={**to_json(experiment.score), **(score or {})},
        detail=detail,
    )


@dataclass(frozen=True)
class Sampled:
    """The score files of one experiment on texts."""

    experiment: Experiment

    def name(self, setting: Settings | None) -> str:
        """The name of a score file: task, decoding, and a hash of everything that defines the numbers."""
        one = self.experiment
        versions = (VERSION, text_scores.VERSION) if isinstance(one.score, KnnScore) else (VERSION,)
        key = content_hash(one.score, prompts_path(one, "").stem, one.num_samples, *versions)
        return f"{one.task}-{one.score.kind}-{setting.name if setting else 'completions'}-{key}"

    def read(self, folder: RunFolder) -> list[Record] | None:
        """The records on disk, or None if a decoding has none."""
        drawn = (None,) if isinstance(self.experiment.score, SupportScore) else self.experiment.settings
        found = [read_records(folder, self.name(setting)) for setting in drawn]
        return None if any(records is None for records in found) else [r for records in found for r in records or ()]

    def keep(
        self,
        folder: RunFolder,
        setting: Settings | None,
        values: Mapping[str, Measured],
        detail: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Record]:
        """Write the records of one decoding (None for a score that draws nothing)."""
        one = self.experiment
        asked = {"prompts": prompts_path(one, "").stem, "num_samples": one.num_samples, "max_tokens": one.max_tokens}
        records = records_for(one, setting.decoding if setting else None, values, score=asked, detail=detail)
        write_records(folder, self.name(setting), records)
        return records
