"""A wish as a value: the metric to maximise, and the metric that must reach a level."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from widen.sample.decoding import Decoding

from ..against_nll import Point

Points = Mapping[Decoding, Point]
"""The records of one model, by decoding."""

NAMES = r"precision|recall|coverage|pass@[1-9]\d*"
EXAMPLES = '"recall at precision >= 0.9", "precision at recall >= 0.5", "pass@10 at pass@1 >= 0.3", "coverage at precision >= 0.9"'


class BestDecoding(NamedTuple):
    """A decoding, and whether the required metric reaches its level there."""

    decoding: Decoding
    met: bool


@dataclass(frozen=True, kw_only=True)
class Wish:
    """Maximise ``goal`` among the decodings where ``bound`` is at least ``level``.

    Examples:
      >>> wish = Wish.parse("pass@10 at pass@1 >= 30%")
      >>> wish, wish.ks
      (Wish(goal='pass@10', bound='pass@1', level=0.3), (1, 10))
      >>> print(wish)
      pass@10 at pass@1 >= 0.3
    """

    goal: str
    bound: str
    level: float

    @classmethod
    def parse(cls, text: str) -> Wish:
        """Read ``GOAL at METRIC >= LEVEL``; the level is a number from 0 to 1, or a percentage."""
        found = re.fullmatch(
            rf"\s*({NAMES})\s+at\s+({NAMES})\s*>=\s*(\d*\.?\d+)\s*(%?)\s*", text.lower().replace("≥", ">=")
        )
        if found is None:
            raise ValueError(f"wish={text!r}: write METRIC at METRIC >= LEVEL, such as {EXAMPLES}")
        goal, bound, level = found[1], found[2], float(found[3]) / (100 if found[4] else 1)
        if goal == bound:
            raise ValueError(f"wish={text!r}: {goal} is named twice; name two metrics, such as {EXAMPLES}")
        if not 0 <= level <= 1 and bound != "coverage":
            raise ValueError(f"wish={text!r}: the level of {bound} must be between 0 and 1 (or 0% and 100%)")
        return cls(goal=goal, bound=bound, level=level)

    def __str__(self) -> str:
        return f"{self.goal} at {self.bound} >= {self.level:g}"

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of each pass@k in the wish."""
        return tuple(sorted(int(name[5:]) for name in (self.goal, self.bound) if name.startswith("pass@")))

    def choose(self, points: Points, among: Callable[[Decoding], bool] | None = None) -> BestDecoding:
        """The decoding with the best goal among those that reach the level; if none does, the one that comes closest.

        Of two that are equal in this, the one with more of the other metric.
        """
        allowed = {one: point for one, point in points.items() if among is None or among(one)}
        enough = [one for one, point in allowed.items() if point[self.bound].value >= self.level]
        return BestDecoding(
            max(enough or allowed, key=lambda one: self._worth(allowed[one], bool(enough))), bool(enough)
        )

    def rank(self, points: Points) -> tuple[bool, float, float]:
        """Sorts models by their best decoding: those that reach the level by their goal, the others by how near they come."""
        decoding, met = self.choose(points)
        return met, *self._worth(points[decoding], met)

    def _worth(self, point: Point, met: bool) -> tuple[float, float]:
        first, second = (self.goal, self.bound) if met else (self.bound, self.goal)
        return point[first].value, point[second].value


def parse_budget(text: str) -> float:
    """Seconds of a duration such as ``30m``, ``2h``, ``90s`` or ``1h30m``.

    >>> parse_budget("1h30m"), parse_budget("45s")
    (5400.0, 45.0)
    """
    number = r"(\d+\.?\d*|\.\d+)"
    found = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?", text.strip())
    parts = found.groups(default="0") if found else ()
    seconds = sum(float(part) * size for part, size in zip(parts, (3600, 60, 1), strict=False))
    if not seconds > 0:
        raise ValueError(f"budget={text!r}: write hours, minutes or seconds above 0, such as 2h, 30m, 1h30m or 90s")
    return seconds
