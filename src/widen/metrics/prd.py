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

from .clusters import Spread, both_rows, cluster_histograms, halves, spread
from .features import Array, Features
from .plain import to_json

VERSION = 1
ANGLES = 201


@dataclass(frozen=True)
class PrdPart:
    """Summaries of the curve, each with its range over clusterings.

    Args:
      auc: area under precision against recall; 1 if the histograms are equal.
      f8: best F_8 over the curve, which weighs recall.
      f_eighth: best F_1/8, which weighs precision.
    """

    auc: Spread
    f8: Spread
    f_eighth: Spread


@dataclass(frozen=True)
class PrdBaseline:
    """The reference's halves against each other, and the model at that size. Compare the two with each other."""

    real: PrdPart
    model: PrdPart
    n_reference: int
    n_generated: int


@dataclass(frozen=True)
class Prd:
    """The precision-recall curve of two clustered sets.

    Args:
      auc: mean area over the clusterings.
      f8: mean best F_8 (recall).
      f_eighth: mean best F_1/8 (precision).
      part: the same with their ranges over clusterings.
      lam: the slopes of the drawn curve, tan of evenly spaced angles, (K,).
      precision: mean over clusterings at each, (K,).
      recall: the same, (K,).
    """

    auc: float
    f8: float
    f_eighth: float
    part: PrdPart = field(repr=False)
    baseline: PrdBaseline | None = field(repr=False)
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
    """The largest F_b on the curve, exactly.

    Examples:
      >>> best_f(pr_curve([0.5, 0.5], [0.5, 0.5]), 8.0)
      1.0
    """
    lam = curve.breakpoints
    return float(((1 + b * b) * curve.precision(lam) / (1 + b * b * lam)).max(initial=0.0))


def prd_scores(
    reference: Features,
    generated: Features,
    *,
    clusters: int = 20,
    runs: int = 10,
    restarts: int = 1,
    normalise: bool = False,
    pca: float | None = None,
    baseline: bool = True,
    seed: int = 0,
) -> Prd:
    """The curve, its area and its F-scores, averaged over several clusterings of both sets together.

    Args:
      reference: (N, D) features of real texts.
      generated: (M, D) features of the model's texts.
      clusters: cells of the histograms, at most the size of the smaller set.
      runs: number of clusterings, each from its own seed.
      restarts: starts of k-means in each; the best is kept.
      normalise: scale every row to length 1 first.
      pca: share of the variance to keep, fitted on both sets; None for all features.
      baseline: also score the reference's halves against each other, and the model at that size.
      seed: of the first clustering and of the split.

    Examples:
      >>> points = np.random.default_rng(0).standard_normal((60, 4))
      >>> scores = prd_scores(points, points, clusters=5, baseline=False)
      >>> round(scores.auc, 9), round(scores.f8, 9)
      (1.0, 1.0)
    """
    if runs < 1:
        raise ValueError(f"runs must be at least 1, got {runs}")
    x, y = both_rows(reference, generated, normalise=normalise, pca=pca)
    if not 2 <= clusters <= min(len(x), len(y)):
        raise ValueError(
            f"clusters must lie between 2 and the smaller set's {min(len(x), len(y))} points, got {clusters}"
        )

    def curves(a: Array, b: Array) -> list[PRCurve]:
        seeds = range(seed, seed + runs)
        return [pr_curve(*cluster_histograms(a, b, clusters=clusters, restarts=restarts, seed=s)) for s in seeds]

    found, split = curves(x, y), None
    if baseline and min(len(x) // 2, len(y)) >= clusters:
        half, other, model = halves(x, y, seed)
        split = PrdBaseline(summary(curves(half, other)), summary(curves(half, model)), len(half), len(other))
    part = summary(found)
    lam = np.tan(np.linspace(0, np.pi / 2, ANGLES))
    lam[-1] = np.inf
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
        spread([curve.auc for curve in curves]),
        spread([best_f(curve, 8.0) for curve in curves]),
        spread([best_f(curve, 0.125) for curve in curves]),
    )
