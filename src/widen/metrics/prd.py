r"""PRD: the precision-recall curve of two sets, from histograms over common clusters (Sajjadi et al., 2018).

.. math::  \alpha_\lambda = \sum_i \min(\lambda p_i, q_i), \qquad \beta_\lambda = \alpha_\lambda / \lambda

This is the paper's curve (eq. ``eq:prsimon``), exact for the histograms. The F-score ``F_b = (1 + b^2) alpha / (1 + b^2 lam)`` is a
ratio of two linear functions between breakpoints, so its maximum is at a breakpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from widen.theory import PRCurve, pr_curve
from widen.theory.curve import slopes

from .clusters import Baseline, Spread, baseline_of, both_rows, cluster_histograms
from .features import Array, Features
from .plain import to_json

VERSION = 1
ANGLES = 201


@dataclass(frozen=True)
class PrdPart:
    """Summaries of the curve with their ranges over clusterings: area, best F_8 (weighs recall), best F_1/8 (weighs precision)."""

    auc: Spread
    f8: Spread
    f_eighth: Spread


@dataclass(frozen=True)
class Prd:
    """The precision-recall curve of two clustered sets.

    Args:
      auc, f8, f_eighth: means over the clusterings; ``part`` has their ranges.
      lam: the slopes of the drawn curve, tan of evenly spaced angles, (K,).
      precision, recall: means over the clusterings at each slope, (K,).
    """

    auc: float
    f8: float
    f_eighth: float
    part: PrdPart = field(repr=False)
    baseline: Baseline[PrdPart] | None = field(repr=False)
    lam: NDArray[np.float64] = field(repr=False, compare=False)
    precision: NDArray[np.float64] = field(repr=False, compare=False)
    recall: NDArray[np.float64] = field(repr=False, compare=False)
    n_reference: int = field(repr=False)
    n_generated: int = field(repr=False)
    clusters: int = field(repr=False)
    runs: int = field(repr=False)
    seed: int = field(repr=False)
    version: int = field(repr=False, default=VERSION)

    to_json = to_json


def best_f(curve: PRCurve, b: float) -> float:
    """The largest F_b on the curve, exactly."""
    lam = curve.breakpoints
    return float(((1 + b * b) * curve.precision(lam) / (1 + b * b * lam)).max(initial=0.0))


def prd_scores(
    reference: Features,
    generated: Features,
    *,
    clusters: int = 20,
    runs: int = 10,
    restarts: int = 1,
    baseline: bool = True,
    seed: int = 0,
) -> Prd:
    """The curve, its area and its F-scores, averaged over several clusterings of both sets together.

    Args:
      reference, generated: (N, D) and (M, D) features.
      clusters: cells of the histograms, at most the size of the smaller set.
      runs: number of clusterings, from ``seed`` on.
      restarts: starts of k-means in each; the best is kept.
    """
    if runs < 1:
        raise ValueError(f"runs must be at least 1, got {runs}")
    x, y = both_rows(reference, generated)
    if not 2 <= clusters <= min(len(x), len(y)):
        raise ValueError(f"clusters must lie between 2 and the smaller set's {min(len(x), len(y))}, got {clusters}")

    def curves(a: Array, b: Array) -> list[PRCurve]:
        seeds = range(seed, seed + runs)
        return [pr_curve(*cluster_histograms(a, b, clusters=clusters, restarts=restarts, seed=s)) for s in seeds]

    found, split = curves(x, y), None
    if baseline and min(len(x) // 2, len(y)) >= clusters:
        split = baseline_of(lambda a, b: summary(curves(a, b)), x, y, seed)
    part = summary(found)
    lam = slopes(ANGLES)
    return Prd(
        auc=part.auc.mean,
        f8=part.f8.mean,
        f_eighth=part.f_eighth.mean,
        part=part,
        baseline=split,
        lam=lam,
        precision=np.mean([curve.precision(lam) for curve in found], 0),
        recall=np.mean([curve.recall(lam) for curve in found], 0),
        n_reference=len(x),
        n_generated=len(y),
        clusters=clusters,
        runs=runs,
        seed=seed,
    )


def summary(curves: list[PRCurve]) -> PrdPart:
    """Area and F-scores of each clustering's curve."""
    return PrdPart(
        Spread.of([curve.auc for curve in curves]),
        Spread.of([best_f(curve, 8.0) for curve in curves]),
        Spread.of([best_f(curve, 0.125) for curve in curves]),
    )
