r"""MAUVE: the area under the curve of the two divergences to the mixtures of two histograms (Pillutla et al., 2021).

.. math::  C = \{(e^{-c\,KL(Q|R_\lambda)},\; e^{-c\,KL(P|R_\lambda)}) : R_\lambda = \lambda P + (1-\lambda) Q,\; 0 < \lambda < 1\}

The defaults are those in common use: unit rows, PCA on both sets to 90 % of the variance, one cluster per ten points, c = 5,
25 mixtures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import rel_entr

from .clusters import Baseline, Spread, baseline_of, both_rows, cluster_histograms
from .features import Array, Features
from .plain import to_json

VERSION = 1
MIXTURES = 25
EDGE = 1e-6  # the first and last mixture; at 0 and 1 one divergence may be infinite


@dataclass(frozen=True)
class Mauve:
    """MAUVE as a mean over seeds of the clustering, its spread over these seeds, and what the reference scores against itself.

    ``baseline`` is None if it was not asked for, or if the reference is too small to split.
    """

    value: float
    spread: Spread = field(repr=False)
    baseline: Baseline[Spread] | None = field(repr=False)
    n_reference: int = field(repr=False)
    n_generated: int = field(repr=False)
    clusters: int = field(repr=False)
    scale: float = field(repr=False)
    normalise: bool = field(repr=False)
    pca: float | None = field(repr=False)
    restarts: int = field(repr=False)
    seed: int = field(repr=False)
    version: int = field(repr=False, default=VERSION)

    to_json = to_json


def mauve_of_histograms(p: Any, q: Any, *, scale: float = 5.0) -> float:
    """MAUVE of two distributions on the same cells: 1 if they are equal, near 0 if they share nothing.

    Args:
      p, q: reference and model, (C,), non-negative, summing to 1.
      scale: the constant c, above 0.

    Examples:
      >>> mauve_of_histograms([0.5, 0.5], [0.5, 0.5])
      1.0
      >>> round(mauve_of_histograms([1.0, 0.0], [0.0, 1.0]), 4)
      0.0041
    """
    p, q = (np.asarray(shares, dtype=np.float64) for shares in (p, q))
    if p.shape != q.shape or p.ndim != 1 or not all((s >= 0).all() and abs(s.sum() - 1) <= 1e-9 for s in (p, q)):
        raise ValueError(
            f"p and q must be distributions on the same cells, got shapes {p.shape}, {q.shape}, sums {p.sum()}, {q.sum()}"
        )
    if not scale > 0:
        raise ValueError(f"scale must be above 0, got {scale}")
    lam = np.linspace(EDGE, 1 - EDGE, MIXTURES)[:, None]
    mixture = lam * p + (1 - lam) * q
    # Rounding can make a divergence of 0 negative, and a flat part of the curve turn back.
    across, up = (np.exp(-scale * np.maximum(rel_entr(shares, mixture).sum(1), 0.0)) for shares in (q, p))
    x = np.concatenate([[0.0], across[::-1], [1.0]])
    y = np.concatenate([[1.0], up[::-1], [0.0]])
    return float(np.trapezoid(np.minimum.accumulate(y), np.maximum.accumulate(x)))


def mauve_score(
    reference: Features,
    generated: Features,
    *,
    clusters: int | None = None,
    scale: float = 5.0,
    normalise: bool = True,
    pca: float | None = 0.9,
    seeds: int = 5,
    restarts: int = 1,
    baseline: bool = True,
    seed: int = 0,
) -> Mauve:
    """MAUVE of a generated set, averaged over several clusterings, with their spread and the same-distribution baseline.

    Args:
      reference, generated: (N, D) and (M, D) features.
      clusters: cells of the histograms; by default a tenth of the smaller set, at least 2.
      scale: the constant c.
      normalise: scale every row to length 1 first.
      pca: share of the variance to keep, fitted on both sets; None for all features.
      seeds: number of clusterings, from ``seed`` on.
      restarts: starts of k-means in each; the best is kept.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    x, y = both_rows(reference, generated, normalise=normalise, pca=pca)
    if min(len(x), len(y)) < 2:
        raise ValueError(f"reference and generated must have at least 2 points each, got {len(x)} and {len(y)}")

    def cells(a: Array, b: Array) -> int:
        return clusters or max(2, round(min(len(a), len(b)) / 10))

    def over_seeds(a: Array, b: Array) -> Spread:
        each = (cluster_histograms(a, b, clusters=cells(a, b), restarts=restarts, seed=seed + s) for s in range(seeds))
        return Spread.of([mauve_of_histograms(p, q, scale=scale) for p, q in each])

    found = over_seeds(x, y)
    split = baseline_of(over_seeds, x, y, seed) if baseline and len(x) >= 4 else None
    return Mauve(found.mean, found, split, len(x), len(y), cells(x, y), scale, normalise, pca, restarts, seed)
