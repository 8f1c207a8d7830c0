"""Scores of texts as values, one point a decoding setting, and the file in which they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from widen.sample.decoding import Decoding, Settings

from .folder import RunFolder
from .text_experiment import TextExperiment
from .text_prompts import prompts_path
from .value import content_hash, from_json, to_json

VERSION = 1
"""Of what is measured; a change in meaning raises it, and everything is measured again."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A number and its interval over problems or texts."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A score over seeds.

    Args:
      value: the mean.
      half_width: of the 95 % Student interval over seeds; None with one seed.
      low, high: ends of the interval over problems or texts, averaged over seeds.
    """

    value: float
    half_width: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class TextPoint:
    """What was measured at one decoding setting.

    Args:
      decoding: its spec.
      values: precision, recall, pass@10, mauve, ... by name.
      counts: programs judged and passed of each problem, where programs were judged.
    """

    decoding: str
    values: dict[str, Measured] = field(default_factory=dict)
    counts: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def temperature(self) -> float:
        """Of the decoding."""
        return Decoding.parse(self.decoding).temperature


def score_name(experiment: TextExperiment, setting: Settings | None) -> str:
    """The name of a score's file: task, decoding, and a hash of all that defines the number."""
    key = content_hash(experiment.score, prompts_path(experiment, "").stem, experiment.num_samples, VERSION)
    drawn = setting.name if setting is not None else "completions"
    return f"{experiment.prompts.task}-{experiment.score.kind}-{drawn}-{key}"


def read_points(folder: RunFolder, experiment: TextExperiment) -> list[TextPoint] | None:
    """The points on disk, or None where one of them is not there."""
    drawn: Sequence[Settings | None] = experiment.settings if experiment.score.kind != "support" else (None,)
    paths = [folder.scores(score_name(experiment, setting)) for setting in drawn]
    if not all(path.exists() for path in paths):
        return None
    return [from_json(TextPoint, folder.read(path)["point"]) for path in paths]


def keep_point(
    folder: RunFolder, experiment: TextExperiment, setting: Settings | None, point: TextPoint, **detail: Any
) -> None:
    """Write one point; ``detail`` is what else is worth having beside it. The page reads ``kind``, ``settings`` and ``scores``."""
    settings: dict[str, Any] = {"temperature": point.temperature} if setting is not None else {}
    settings |= {
        "decoding": point.decoding if setting is not None else "none",
        "task": experiment.prompts.task,
        "prompts": experiment.num_prompts,
        "samples": experiment.num_samples,
        **to_json(experiment.score),
    }
    content = {
        "kind": f"{experiment.prompts.task} {experiment.score.kind}",
        "version": VERSION,
        "settings": settings,
        "scores": to_json(point.values),
        "point": to_json(point),
        **to_json(detail),
    }
    folder.write(folder.scores(score_name(experiment, setting)), content)
