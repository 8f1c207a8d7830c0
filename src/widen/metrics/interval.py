"""How far a mean over points could move if other points had been drawn: bootstrap intervals, cheap enough to come with every score.

They resample the points that are averaged and nothing else. Not covered: the other set (its balls are held as they are), the
embedder, PCA, the training run. Points that depend on each other (duplicates, samples of one prompt) make them too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrik, stdtrit

RESAMPLES = 1000


class Interval(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float


def check_level(level: float) -> None:
    """Refuse a level that is not a share."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")


def share_interval(successes: int, n: int, *, level: float = 0.95) -> Interval:
    """Bootstrap percentile interval of a share, in closed form: resampling n bits draws from a binomial.

    Where every bit is equal all resamples are equal too, and the interval would be a point however few bits there are;
    there the other end is the exact bound of Clopper and Pearson.

    Args:
      successes: bits that are 1.
      n: bits.
      level: how much of the resamples the interval holds.

    Examples:
      >>> share_interval(50, 100)
      Interval(low=0.4, high=0.6)
      >>> share_interval(100, 100)
      Interval(low=0.9637..., high=1.0)
    """
    check_level(level)
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"successes must lie between 0 and n >= 1, got {successes} of {n}")
    tail = (1 - level) / 2
    if successes == 0:
        return Interval(0.0, float(1 - tail ** (1 / n)))
    if successes == n:
        return Interval(float(tail ** (1 / n)), 1.0)
    low, high = (binomial_quantile(q, n, successes / n) / n for q in (tail, 1 - tail))
    return Interval(low, high)


def binomial_quantile(q: float, n: int, p: float) -> int:
    """The least count whose cumulative probability reaches q."""
    count = int(np.ceil(bdtrik(q, n, p)))
    return count - 1 if count > 0 and bdtr(count - 1, n, p) >= q else count  # bdtrik may round up past a whole number


def mean_interval(values: Any, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Bootstrap percentile interval of the mean of some numbers, by counting equal ones once.

    Args:
      values: (n,) finite numbers, n at least 1.
      level: how much of the resamples the interval holds.
      resamples: how many are drawn.
      seed: of the draws.

    Examples:
      >>> mean_interval([2.0, 2.0, 2.0])
      Interval(low=2.0, high=2.0)
    """
    check_level(level)
    array: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise ValueError(f"values must be a list of finite numbers, at least one, got shape {array.shape}")
    value, count = np.unique(array, return_counts=True)
    rng = np.random.default_rng(seed)
    size = max(1, 10_000_000 // len(value))
    means = np.concatenate(
        [
            rng.multinomial(len(array), count / len(array), size=min(size, resamples - done)) @ value / len(array)
            for done in range(0, resamples, size)
        ]
    )
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def student(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float | None]:
    """Mean, and half-width of the Student interval of the mean; None with one value.

    Args:
      values: one per seed.
      level: how often such an interval holds the true mean.

    Examples:
      >>> mean, half = student([1.0, 2.0, 3.0])
      >>> round(mean, 3), round(half, 3), student([2.0])
      (2.0, 2.484, (2.0, None))
    """
    check_level(level)
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, None
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, float(stdtrit(n - 1, (1 + level) / 2)) * deviation / math.sqrt(n)
