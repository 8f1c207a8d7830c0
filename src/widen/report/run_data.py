"""A run as values: what a page shows of it. `load.py` reads them from a folder; other code may make them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from widen.run.record import Record


class SampleText(NamedTuple):
    """One generated text and what was asked."""

    prompt: str
    text: str


@dataclass(frozen=True, kw_only=True)
class SampleCell:
    """The samples of one run at one decoding; ``drawn`` and ``distinct`` count the whole file."""

    label: str
    temperature: float | None
    drawn: int
    distinct: int
    samples: Sequence[SampleText]


@dataclass(frozen=True, kw_only=True)
class RunData:
    """Everything that a page shows of one run; ``experiment`` is the object under that key of config.json."""

    name: str
    experiment: dict[str, Any]
    env: dict[str, Any] = field(default_factory=dict)
    log: Sequence[dict[str, Any]] = ()
    records: Sequence[Record] = ()
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
