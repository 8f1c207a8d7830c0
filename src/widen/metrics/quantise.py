"""Two sets of features as two histograms over common clusters: what MAUVE and PRD are computed from.

Shapes: N reference points, M generated points, D features, C clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .clusters import kmeans
from .knn_points import Features
from .pca import fit_pca, unit_rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Histograms:
    """Shares of each cluster, (C,) each, summing to 1."""

    reference: Array
    generated: Array


@dataclass(frozen=True)
class Spread:
    """One number computed with several seeds of the clustering: it moves with them about as much as with the texts.

    Args:
      mean: over seeds.
      least: over seeds.
      most: over seeds.
      each: by seed.
    """

    mean: float
    least: float
    most: float
    each: tuple[float, ...]


def spread(values: list[float]) -> Spread:
    """Mean and range of what the seeds gave.

    Examples:
      >>> spread([0.5, 0.7, 0.6])
      Spread(mean=0.6, least=0.5, most=0.7, each=(0.5, 0.7, 0.6))
    """
    return Spread(float(np.mean(values)), min(values), max(values), tuple(values))


def as_rows(features: Features, name: str) -> Array:
    """Finite float64 rows on the CPU."""
    on_cpu: Any = features.detach().cpu().double().numpy() if isinstance(features, torch.Tensor) else features
    rows = np.asarray(on_cpu, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"{name} must have shape (points, features), both at least 1, got {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError(f"{name} must be finite, row {int(np.flatnonzero(~np.isfinite(rows).all(1))[0])} is not")
    return rows


def both_rows(reference: Features, generated: Features, *, normalise: bool, pca: float | None) -> tuple[Array, Array]:
    """Checked rows of both sets, normalised and reduced on both together where asked (MAUVE does)."""
    x, y = as_rows(reference, "reference"), as_rows(generated, "generated")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"generated must have the reference's {x.shape[1]} features, got {y.shape[1]}")
    if normalise:
        x, y = (unit_rows(rows).astype(np.float64) for rows in (x, y))
    if pca is not None:
        reduce = fit_pca(np.concatenate([x, y]), share=pca)
        x, y = (reduce(rows).astype(np.float64) for rows in (x, y))
    return x, y


def cluster_histograms(x: Array, y: Array, *, clusters: int, restarts: int, seed: int) -> Histograms:
    """Cluster both sets together and count where each one's points went.

    Rows are put in a fixed order first, so that the clusters depend on the points and not on how they were listed.
    """
    together = np.concatenate([x, y])
    order = np.lexsort(together.T[::-1])
    labels = np.empty(len(together), dtype=np.int64)
    labels[order] = kmeans(together[order], clusters, restarts=restarts, seed=seed).labels
    p, q = (np.bincount(part, minlength=clusters) / len(part) for part in (labels[: len(x)], labels[len(x) :]))
    return Histograms(p, q)


def halves(x: Array, y: Array, seed: int) -> tuple[Array, Array, Array]:
    """Two halves of the reference and as many generated points as the second: real against real, and the model at that size."""
    n = len(x) // 2
    order = np.random.default_rng(seed).permutation(len(x))
    m = min(n, len(y))
    model = y[np.random.default_rng(seed + 1).permutation(len(y))[:m]]
    return x[order[:n]], x[order[n : n + m]], model
