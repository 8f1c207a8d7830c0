"""Values with intervals, and differences between two models on the same prompts: paired by prompt where possible."""

from __future__ import annotations

import math
from dataclasses import dataclass

from widen.metrics.interval import mean_interval, student

from ..best_on_halves import values_by_problem
from .wish import Point


@dataclass(frozen=True, kw_only=True)
class Value:
    """A number with its 95 % interval over prompts or texts."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    @property
    def signed(self) -> str:
        """As a difference."""
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def value_of(point: Point, metric: str) -> Value:
    """A metric with its interval: that of the record, or else over the prompts."""
    record, values = point[metric], values_by_problem(point, metric)
    low, high = record.low, record.high
    if low is None or high is None:
        low, high = mean_interval(values) if values is not None else (-math.inf, math.inf)
    return Value(value=record.value, low=low, high=high)


def difference(mine: Point, theirs: Point, metric: str) -> Value:
    """``mine`` minus ``theirs``: paired by prompt, or with the intervals of both added in squares if there are no values by prompt."""
    a, b = values_by_problem(mine, metric), values_by_problem(theirs, metric)
    if a is not None and b is not None and len(a) == len(b):
        value, half = student(list(a - b))
    else:
        value = mine[metric].value - theirs[metric].value
        half = math.hypot(*((one.high - one.low) / 2 for one in (value_of(mine, metric), value_of(theirs, metric))))
    half = math.inf if half is None else half
    return Value(value=value, low=value - half, high=value + half)
