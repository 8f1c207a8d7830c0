"""pass@k without bias, and the precision and recall that the paper makes of it (App., "Code Generation Task").

pass@k is the probability that at least one of k samples is right, if k are drawn without replacement from n samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .interval import Interval, share_interval
from .plain import to_json

VERSION = 2


def pass_at_k(n: Any, c: Any, k: int) -> Any:
    r"""The probability that at least one of k samples, drawn without replacement, is right.

    .. math::  1 - \binom{n-c}{k} \Big/ \binom{n}{k} = -\mathrm{expm1} \sum_{i=n-c+1}^{n} \log(1 - k/i)

    It is unbiased; ``1 - (1 - c/n)**k`` is not. n (samples of each problem, at least k) and c (how many of them are right) are whole
    numbers or arrays of them and broadcast.

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
    """Whole numbers with 0 <= c <= n, of one shape."""
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
      values: mean pass@k over problems, for each of ``ks``.
      intervals: over problems (`share_interval`), for each of ``ks``.
      precision: pass@1.
      recall: the paper's recall, pass@K - pass@1, where K is the largest of ``ks``. It is at most 1 - precision. To compare models of
        different precision, use ``recall_normalised``.
      recall_normalised: (pass@K - pass@1) / (1 - pass@1), the share of what one try leaves that more tries solve; 1 if pass@1 is 1.
      samples: of each problem, (least, most).
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

    to_json = to_json


def pass_scores(n: Any, c: Any, ks: Sequence[int] = (1, 10, 100), *, level: float = 0.95, seed: int = 0) -> PassScores:
    """pass@k for several k, with precision, recall and intervals over problems.

    A problem with fewer samples than the largest k is an error.

    Args:
      n: samples of each problem, (P,) or one number for all.
      c: right samples of each problem, (P,).
      ks: numbers of tries; 1 is always added.
      level, seed: of the intervals, which say how the scores would move with other problems of the same kind.

    Examples:
      >>> scores = pass_scores(4, [4, 2, 0, 0], ks=(1, 4))
      >>> scores.precision, scores.recall, scores.recall_normalised
      (0.375, 0.125, 0.2)
    """
    samples, right = checked_counts(n, np.atleast_1d(np.asarray(c)))
    if right.ndim != 1:
        raise ValueError(f"c must be a list with one number per problem, got shape {right.shape}")
    tries = tuple(sorted({1, *ks}))
    each = np.stack([pass_at_k(samples, right, k) for k in tries])
    first, last = each[0], each[-1]
    added = np.maximum(last - first, 0.0)  # rounding can make it negative
    precision, most = float(first.mean()), float(last.mean())
    intervals = tuple(share_interval(row, level=level, seed=seed) for row in each)
    return PassScores(
        ks=tries,
        values=tuple(each.mean(1).tolist()),
        intervals=intervals,
        precision=precision,
        recall=most - precision,
        recall_normalised=float(normalised(precision, most)),
        precision_interval=intervals[0],
        recall_interval=share_interval(added, level=level, seed=seed),
        recall_normalised_interval=share_interval(added, 1 - first, level=level, seed=seed),
        problems=len(right),
        samples=(int(samples.min()), int(samples.max())),
        level=level,
    )


def normalised(first: Any, last: Any) -> NDArray[np.float64]:
    """(last - first) / (1 - first); 1 if first is 1."""
    left = 1 - np.asarray(first, dtype=np.float64)
    return np.where(left > 0, (last - first) / np.where(left > 0, left, 1.0), 1.0)
