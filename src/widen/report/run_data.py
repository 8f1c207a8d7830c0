"""What a page shows of one run, as values. `load.py` reads them from a folder; other code may make them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from widen.run.record import Record


class SampleText(NamedTuple):
    """A generated text, its prompt, and what is known about it ("right", "cut at max-tokens")."""

    prompt: str
    text: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class SampleCell:
    """The samples of one run at one decoding. The counts are over the whole file; ``cut`` counts texts that max-tokens ended."""

    label: str
    temperature: float | None
    drawn: int
    distinct: int
    samples: Sequence[SampleText]
    cut: int = 0
    asked: Mapping[str, Any] = field(default_factory=dict)  # `Settings.asked`


@dataclass(frozen=True, kw_only=True)
class RunData:
    """What a page shows of one run; ``experiment`` is the object under that key of config.json."""

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
