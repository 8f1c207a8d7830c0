"""Intervals that say how far a score would move with other texts, problems or seeds.

They resample the units that a score averages and nothing else. They do not cover the other set of texts (its k-NN balls are held
fixed), the embedder, PCA or the training run. Units must be independent: samples of one problem are one unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit

RESAMPLES = 1000


class Interval(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


def check_level(level: float) -> None:
    """Raise unless 0 < level < 1."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")


def share_interval(
    shares: Any, of: Any = None, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    r"""Interval of a share over independent units: points of a set, or problems with several samples each (clusters).

    The share is sum(shares) / sum(of). It is resampled by a Bayesian bootstrap over units with Jeffreys' prior,

    .. math::  \frac{g^+ + \sum_i g_i s_i}{g^+ + g^- + \sum_i g_i o_i}, \qquad g^\pm \sim \Gamma(1/2), \quad g_i \sim \Gamma(a), \quad
        a = \frac{n-1}{n} \Big(\frac{z}{t_{n-1}}\Big)^2,

    whose quantiles lie in [0, 1] and differ even if all units are 0 or all are 1. The Student quantile t widens the intervals of few
    units. If all units are 0 or 1, the distribution is Beta(a sum s + 1/2, a sum (o - s) + 1/2), and nothing is drawn.

    In simulations of beta-binomial problems, a 95 % interval holds the true share in 93 to 97 % of the cases with 64 problems or more,
    and in 95 to 100 % with 8 to 20.

    Args:
      shares: (n,), between 0 and ``of``; bits, or the share of right samples of each problem.
      of: (n,), between 0 and 1; what each share is a part of. By default 1.

    Examples:
      >>> low, high = share_interval([0] * 64)
      >>> low, round(high, 3)
      (0.0, 0.04)
      >>> [round(end, 3) for end in share_interval([0, 1] * 50)]
      [0.402, 0.598]
    """
    check_level(level)
    s = np.asarray(shares, dtype=np.float64)
    o = np.ones_like(s) if of is None else np.asarray(of, dtype=np.float64)
    if s.ndim != 1 or s.shape != o.shape or len(s) == 0 or not ((s >= 0) & (s <= o) & (o <= 1)).all():
        raise ValueError(f"shares must be at least one number between 0 and {'1' if of is None else 'of, at most 1'}")
    n, tails = len(s), [(1 - level) / 2, (1 + level) / 2]
    weight = (n - 1) / n * float(ndtri(tails[1]) / stdtrit(n - 1, tails[1])) ** 2 if n > 1 else 0.0
    if ((s == 0) | (s == 1)).all() and (o == 1).all():
        low, high = betaincinv(weight * s.sum() + 0.5, weight * (n - s.sum()) + 0.5, tails)
    else:
        rng = np.random.default_rng(seed)
        part, whole = rng.standard_gamma(0.5, (2, resamples))
        whole += part
        for piece in np.array_split(np.arange(n), -(-n * resamples // 10_000_000)):
            drawn = rng.standard_gamma(weight, (resamples, len(piece)))
            part, whole = part + drawn @ s[piece], whole + drawn @ o[piece]
        low, high = np.quantile(part / whole, tails)
    share = s.sum() / o.sum() if o.sum() > 0 else 1.0
    return Interval(float(min(low, share)), float(max(high, share)))


def count_interval(counts: Any, *, level: float = 0.95, seed: int = 0) -> Interval:
    """Interval of the mean of counts, by `share_interval` of the largest one: it keeps its width if all are 0 or all are alike.

    Examples:
      >>> low, high = count_interval([0] * 64)
      >>> low, round(high, 3)
      (0.0, 0.04)
      >>> [round(end, 1) for end in count_interval([4, 5, 6, 5] * 5)]
      [4.3, 5.3]
    """
    array: NDArray[np.float64] = np.asarray(counts, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not ((array >= 0) & np.isfinite(array)).all():
        raise ValueError(f"counts must be a list of finite numbers, at least one, none below 0, got {counts!r}"[:200])
    most = max(1.0, float(array.max()))
    low, high = share_interval(array / most, level=level, seed=seed)
    return Interval(low * most, high * most)


def mean_interval(values: Any, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Bootstrap percentile interval of the mean of numbers without bounds. Shares have `share_interval`.

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
    means = [rng.multinomial(len(array), count / len(array)) @ value / len(array) for _ in range(resamples)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def student(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float | None]:
    """Mean, and half-width of its Student interval; None for a single value.

    Examples:
      >>> mean, half = student([1.0, 2.0, 3.0])
      >>> round(mean, 3), round(half, 3), student([2.0])
      (2.0, 2.484, (2.0, None))
    """
    check_level(level)
    n = len(values)
    if n == 0:
        raise ValueError(f"values must hold at least one number, got {values!r}")
    mean = math.fsum(values) / n
    if n < 2:
        return mean, None
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, float(stdtrit(n - 1, (1 + level) / 2)) * deviation / math.sqrt(n)
