"""k-means by Lloyd's iteration from k-means++ seeds, best of several starts; what MAUVE and PRD quantise with.

Shapes: N points, D features, C clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Clustering:
    """The best of the starts.

    Args:
      labels: cluster of each point, (N,).
      centres: (C, D).
      inertia: sum of squared distances to the own centre.
      iterations: Lloyd steps that the best start took.
    """

    labels: NDArray[np.int64]
    centres: Array
    inertia: float
    iterations: int


def kmeans(rows: Array, clusters: int, *, restarts: int = 5, iterations: int = 300, seed: int = 0) -> Clustering:
    """Cluster some points; the same numbers and seed give the same clusters.

    Args:
      rows: (N, D), finite, N at least ``clusters``.
      clusters: how many.
      restarts: starts from fresh seeds, of which the one of least inertia is kept.
      iterations: most Lloyd steps of one start; it stops earlier when no point moves.
      seed: of the starts.

    Examples:
      >>> sorted(np.bincount(kmeans(np.array([[0.0], [0.1], [5.0], [5.1], [5.2]]), 2).labels).tolist())
      [2, 3]
    """
    if not 1 <= clusters <= len(rows):
        raise ValueError(f"clusters must lie between 1 and the {len(rows)} points, got {clusters}")
    if restarts < 1 or iterations < 1:
        raise ValueError(f"restarts and iterations must be at least 1, got {restarts} and {iterations}")
    centred = np.ascontiguousarray(rows - rows.mean(0), dtype=np.float64)
    best = None
    for stream in np.random.default_rng(seed).spawn(restarts):
        found = lloyd(centred, plus_plus(centred, clusters, stream), iterations)
        if best is None or found.inertia < best.inertia:
            best = found
    assert best is not None
    return Clustering(best.labels, best.centres + rows.mean(0), best.inertia, best.iterations)


def plus_plus(rows: Array, clusters: int, rng: np.random.Generator) -> Array:
    """Seeds far from each other: each next one drawn in proportion to its squared distance from those before (k-means++)."""
    chosen = np.empty((clusters, rows.shape[1]))
    chosen[0] = rows[rng.integers(len(rows))]
    nearest = np.full(len(rows), np.inf)
    norms = np.einsum("nd,nd->n", rows, rows)
    for place in range(1, clusters):
        last = chosen[place - 1]
        nearest = np.minimum(nearest, np.maximum(norms - 2 * (rows @ last) + last @ last, 0.0))
        total = nearest.sum()
        if total <= 0:  # fewer distinct points than clusters: any will do, its cluster stays empty
            chosen[place:] = rows[rng.integers(len(rows), size=clusters - place)]
            break
        chosen[place] = rows[min(np.searchsorted(nearest.cumsum(), rng.random() * total, side="right"), len(rows) - 1)]
    return chosen


def lloyd(rows: Array, centres: Array, iterations: int) -> Clustering:
    """Alternate nearest centre and mean until no label changes."""
    labels = np.full(len(rows), -1)
    norms = np.einsum("nd,nd->n", rows, rows)
    taken = 0
    while taken < iterations:
        taken += 1
        squared = np.einsum("cd,cd->c", centres, centres) - 2 * (rows @ centres.T)
        nearest = squared.argmin(1)
        distance = np.maximum(squared[np.arange(len(rows)), nearest] + norms, 0.0)
        if (nearest == labels).all():
            break
        labels = nearest
        count = np.bincount(labels, minlength=len(centres))
        order = np.argsort(labels, kind="stable")
        filled = np.flatnonzero(count)
        starts = np.concatenate([[0], count[filled].cumsum()[:-1]])
        centres = centres.copy()
        centres[filled] = np.add.reduceat(rows[order], starts) / count[filled, None]
        # An empty cluster takes the point that fits worst, or it would stay empty for ever.
        for empty, worst in zip(np.flatnonzero(count == 0), np.argsort(-distance), strict=False):
            centres[empty] = rows[worst]
    return Clustering(labels, centres, float(distance.sum()), taken)
