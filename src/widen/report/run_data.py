"""A run as values: what a page shows of it. `load.py` reads them from a folder; anything else may make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """One generated text and what was asked."""

    prompt: str
    text: str


@dataclass(frozen=True, kw_only=True)
class SampleCell:
    """The samples of one run at one decoding setting; ``drawn`` and ``distinct`` count the whole file."""

    label: str
    temperature: float | None
    drawn: int
    distinct: int
    samples: Sequence[Sample]


@dataclass(frozen=True, kw_only=True)
class ScorePoint:
    """Precision and recall of one run at one temperature, by one kind of score; a half width is of that score's own interval."""

    kind: str
    temperature: float
    precision: float
    recall: float
    precision_half_width: float | None = None
    recall_half_width: float | None = None
    recall_ceiling: float | None = None
    auc: float | None = None
    num_samples: int | None = None
    curve_precision: tuple[float, ...] = ()
    curve_recall: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number of a score file, with its interval where it has one."""

    kind: str
    settings: str
    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunData:
    """Everything that a page shows of one run; ``experiment`` is the object under that key of config.json."""

    name: str
    experiment: dict[str, Any]
    env: dict[str, Any] = field(default_factory=dict)
    log: Sequence[dict[str, Any]] = ()
    points: Sequence[ScorePoint] = ()
    scores: Sequence[Score] = ()
    samples: Sequence[SampleCell] = ()
    notes: Sequence[str] = ()

    @property
    def loss(self) -> str:
        """The loss as a spec string."""
        return str(self.experiment.get("model", {}).get("loss", "?"))

    @property
    def seed(self) -> int | None:
        """The seed of the model."""
        seed = self.experiment.get("model", {}).get("seed")
        return seed if isinstance(seed, int) else None
