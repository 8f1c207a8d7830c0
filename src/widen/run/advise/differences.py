"""Values with intervals, and differences between two models on the same prompts: paired by prompt where possible."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from widen.metrics.interval import mean_interval, student
from widen.metrics.passes import pass_at_k

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
    record, values = point[metric], _by_prompt(point, metric)
    low, high = record.low, record.high
    if low is None or high is None:
        low, high = mean_interval(values) if values is not None else (-math.inf, math.inf)
    return Value(value=record.value, low=low, high=high)


def difference(mine: Point, theirs: Point, metric: str) -> Value:
    """``mine`` minus ``theirs``: paired by prompt, or with the intervals of both added in squares if there are no values by prompt."""
    a, b = _by_prompt(mine, metric), _by_prompt(theirs, metric)
    if a is not None and b is not None and len(a) == len(b):
        value, half = student(list(a - b))
    else:
        value = mine[metric].value - theirs[metric].value
        half = math.hypot(*((one.high - one.low) / 2 for one in (value_of(mine, metric), value_of(theirs, metric))))
    half = math.inf if half is None else half
    return Value(value=value, low=value - half, high=value + half)


def _by_prompt(point: Point, metric: str) -> NDArray[np.float64] | None:
    """The metric of each prompt, or None if it is only known for all texts together."""
    if "by_problem" in point[metric].detail:
        return np.asarray(point[metric].detail["by_problem"], np.float64)
    counts = point["precision"].detail.get("counts") if "precision" in point else None
    if not counts:
        return None
    n, c = (np.array([counts[prompt][i] for prompt in sorted(counts)]) for i in (0, 1))
    ks = sorted(int(name[5:]) for name in point if name.startswith("pass@"))
    passes = {k: np.asarray(pass_at_k(n, c, k), np.float64) for k in ks}
    if metric == "recall":
        return passes[ks[-1]] - passes[ks[0]]
    k = 1 if metric == "precision" else int(metric[5:]) if metric.startswith("pass@") else None
    return passes.get(k) if k is not None else None
