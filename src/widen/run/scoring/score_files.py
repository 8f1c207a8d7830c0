"""Scores that come from samples: one file of records per decoding, so that a stopped run repeats nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from widen.sample.decoding import Decoding, Settings

from ..experiment import Experiment
from ..folder import RunFolder
from ..questions import prompts_path
from ..record import Record, read_records, write_records
from ..score_settings import SupportScore
from ..value import content_hash, to_json

VERSION = 2
"""Of what is measured; raised when a number changes its meaning, and then everything is measured again."""


class Measured(NamedTuple):
    """A number, its interval over problems or texts, and how many of these it is over."""

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
    """Records of numbers that were measured together; ``detail`` is what to keep beside some of them, by metric."""
    more = detail or {}
    return [
        Record(
            task=task,
            model=model,
            loss=loss,
            decoding=decoding,
            seed=seed,
            metric=metric,
            **one._asdict(),
            detail={"score": dict(score), **more.get(metric, {})},
        )
        for metric, one in values.items()
    ]


@dataclass(frozen=True)
class Sampled:
    """The score files of one experiment on texts."""

    experiment: Experiment

    @property
    def drawn(self) -> tuple[Settings | None, ...]:
        """One per score file: the decodings, or None for a score that draws nothing."""
        return (None,) if isinstance(self.experiment.score, SupportScore) else self.experiment.settings

    def name(self, setting: Settings | None) -> str:
        """The name of a score file: task, decoding, and a hash of everything that defines the numbers."""
        one = self.experiment
        key = content_hash(one.score, prompts_path(one, "").stem, one.num_samples, VERSION)
        return f"{one.task}-{one.score.kind}-{setting.name if setting else 'completions'}-{key}"

    def read(self, folder: RunFolder) -> list[Record] | None:
        """The records on disk, or None if a decoding has none."""
        found = [read_records(folder, self.name(setting)) for setting in self.drawn]
        return None if any(records is None for records in found) else [r for records in found for r in records or ()]

    def keep(
        self,
        folder: RunFolder,
        setting: Settings | None,
        values: Mapping[str, Measured],
        detail: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Record]:
        """Write the records of one decoding."""
        one = self.experiment
        asked = {"prompts": prompts_path(one, "").stem, "num_samples": one.num_samples, "max_tokens": one.max_tokens}
        score = {**to_json(one.score), **asked}
        records = records_of(
            values,
            task=one.task,
            model=one.base,
            loss=one.loss,
            decoding=setting.decoding if setting else None,
            seed=one.model_seed,
            score=score,
            detail=detail,
        )
        write_records(folder, self.name(setting), records)
        return records
