r"""pass@k, unbiased and stable, and the precision and recall that the paper makes of it (App., "Code Generation Task").

.. math::  pass@k = 1 - \binom{n-c}{k} \Big/ \binom{n}{k}

is the chance that at least one of k samples is right when k are drawn, without replacement, of n samples of which c are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .interval import RESAMPLES, Interval, check_level
from .plain import plain

VERSION = 1


def pass_at_k(n: Any, c: Any, k: int) -> Any:
    r"""The chance that at least one of k samples drawn without replacement is right.

    .. math::  1 - \binom{n-c}{k} \Big/ \binom{n}{k} = -\mathrm{expm1} \sum_{i=n-c+1}^{n} \log(1 - k/i)

    0 where no sample is right, 1 where fewer than k are wrong. Its mean over problems is unbiased; ``1 - (1 - c/n)**k`` is not.

    Args:
      n: samples drawn of each problem, at least k; a whole number or an array of them.
      c: right ones among them, between 0 and n; of a shape that goes with n's.
      k: how many one may try, at least 1.

    Returns:
      A float for numbers, an array for arrays.

    Examples:
      >>> pass_at_k(10, 3, 1), round(pass_at_k(10, 3, 5), 12), pass_at_k(10, 6, 5)
      (0.3, 0.916666666667, 1.0)
    """
    samples, right = checked_counts(n, c)
    if k != int(k) or k < 1:
        raise ValueError(f"k must be a whole number of at least 1, got {k}")
    if (samples < k).any():
        few = int((samples < k).sum())
        raise ValueError(
            f"pass@{k} needs at least {k} samples of every problem; {few} have fewer, the least {int(samples.min())}"
        )
    value = np.where(samples - right < k, 1.0, 0.0)
    for n_, c_ in set(zip(samples.ravel().tolist(), right.ravel().tolist(), strict=True)):
        if 0 < c_ <= n_ - k:
            one = -np.expm1(np.log1p(-k / np.arange(n_ - c_ + 1, n_ + 1)).sum())
            value[(samples == n_) & (right == c_)] = one
    return float(value) if value.ndim == 0 else value


def checked_counts(n: Any, c: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Whole numbers with 0 <= c <= n, brought to one shape."""
    given = np.broadcast_arrays(np.asarray(n), np.asarray(c))
    if given[0].size == 0 or any(not np.issubdtype(a.dtype, np.number) or (a != np.floor(a)).any() for a in given):
        raise ValueError(f"n and c must be whole numbers, at least one of each, got n = {n}, c = {c}")
    samples, right = (a.astype(np.int64) for a in given)
    if (right < 0).any() or (right > samples).any():
        raise ValueError(f"c must lie between 0 and n, got n = {n}, c = {c}")
    return samples, right


@dataclass(frozen=True)
class PassScores:
    """pass@k over a set of problems, read as precision and recall.

    Args:
      ks: the numbers of tries.
      values: mean pass@k over problems, for each of ``ks``.
      intervals: bootstrap over problems, for each of ``ks``.
      precision: pass@1.
      recall: the paper's, pass@K - pass@1 with K the largest of ``ks``. It cannot exceed 1 - precision and is 0 for a perfect
        model, so that it falls as precision rises: between models of different precision compare the next one.
      recall_normalised: (pass@K - pass@1) / (1 - pass@1), what more tries win of what one try leaves; 1 where pass@1 is 1.
      precision_interval: bootstrap over problems.
      recall_interval: the same.
      recall_normalised_interval: the same.
      problems: how many.
      samples: drawn of each, (least, most).
    """

    ks: tuple[int, ...]
    values: tuple[float, ...]
    intervals: tuple[Interval, ...]
    precision: float
    recall: float
    recall_normalised: float
    precision_interval: Interval = field(repr=False)
    recall_interval: Interval = field(repr=False)
    recall_normalised_interval: Interval = field(repr=False)
    problems: int = field(repr=False)
    samples: tuple[int, int] = field(repr=False)
    level: float = field(repr=False)
    version: int = field(repr=False, default=VERSION)

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        result: dict[str, Any] = plain(self)
        return result


def pass_scores(n: Any, c: Any, ks: Sequence[int] = (1, 10, 100), *, level: float = 0.95, seed: int = 0) -> PassScores:
    """pass@k for several k, with precision, recall and intervals over problems.

    The intervals resample problems: they say how the score would move on other problems of the same kind, with the samples of
    each problem as they are. Refused when a problem has fewer samples than the largest k: nothing is dropped in silence.

    Args:
      n: samples of each problem, (P,) or one number for all.
      c: right ones, (P,).
      ks: numbers of tries; 1 is added if it is missing, for precision.
      level: of the intervals.
      seed: of the resamples.

    Examples:
      >>> scores = pass_scores(4, [4, 2, 0, 0], ks=(1, 4))
      >>> scores.precision, scores.recall, scores.recall_normalised
      (0.375, 0.125, 0.2)
    """
    check_level(level)
    samples, right = checked_counts(n, np.atleast_1d(np.asarray(c)))
    if right.ndim != 1:
        raise ValueError(f"c must be a list with one number per problem, got shape {right.shape}")
    tries = tuple(sorted({1, *ks}))
    each = np.stack([pass_at_k(samples, right, k) for k in tries])
    drawn = np.random.default_rng(seed).multinomial(
        len(right), np.full(len(right), 1 / len(right)), size=RESAMPLES
    ) / len(right)
    means, resampled = each.mean(1), drawn @ each.T

    def interval(values: NDArray[np.float64]) -> Interval:
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
        return Interval(float(low), float(high))

    return PassScores(
        ks=tries,
        values=tuple(means.tolist()),
        intervals=tuple(interval(column) for column in resampled.T),
        precision=float(means[0]),
        recall=float(means[-1] - means[0]),
        recall_normalised=float(normalised(means[0], means[-1])),
        precision_interval=interval(resampled[:, 0]),
        recall_interval=interval(resampled[:, -1] - resampled[:, 0]),
        recall_normalised_interval=interval(normalised(resampled[:, 0], resampled[:, -1])),
        problems=len(right),
        samples=(int(samples.min()), int(samples.max())),
        level=level,
    )


def normalised(first: Any, last: Any) -> NDArray[np.float64]:
    """(last - first) / (1 - first), and 1 where nothing is left to win."""
    left = 1 - np.asarray(first, dtype=np.float64)
    return np.where(left > 0, (last - first) / np.where(left > 0, left, 1.0), 1.0)
