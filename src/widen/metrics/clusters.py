"""k-means, and two sets of features as histograms over common clusters: what MAUVE and PRD are computed from.

Shapes: N reference points, M generated points, D features, C clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from .features import Array, Features, as_tensor, fit_pca, unit_rows

T = TypeVar("T")


@dataclass(frozen=True)
class Clustering:
    """The best of the starts: labels (N,), centres (C, D), and the sum of squared distances to the centres."""

    labels: NDArray[np.int64]
    centres: Array
    inertia: float


def kmeans(rows: Array, clusters: int, *, restarts: int = 5, seed: int = 0) -> Clustering:
    """Cluster points by Lloyd's iteration from k-means++ seeds; the same numbers and seed give the same clusters.

    Of ``restarts`` starts, the one with the least inertia is kept.

    Examples:
      >>> sorted(np.bincount(kmeans(np.array([[0.0], [0.1], [5.0], [5.1], [5.2]]), 2).labels).tolist())
      [2, 3]
    """
    if not 1 <= clusters <= len(rows):
        raise ValueError(f"clusters must lie between 1 and the {len(rows)} points, got {clusters}")
    if restarts < 1:
        raise ValueError(f"restarts must be at least 1, got {restarts}")
    mean = rows.mean(0)
    centred = np.ascontiguousarray(rows - mean, dtype=np.float64)
    streams = np.random.default_rng(seed).spawn(restarts)
    found = [lloyd(centred, plus_plus(centred, clusters, stream)) for stream in streams]
    best = min(found, key=lambda one: one.inertia)
    return Clustering(best.labels, best.centres + mean, best.inertia)


def plus_plus(rows: Array, clusters: int, rng: np.random.Generator) -> Array:
    """k-means++ seeds: draw each next one with probability proportional to its squared distance from those before."""
    chosen = np.empty((clusters, rows.shape[1]))
    chosen[0] = rows[rng.integers(len(rows))]
    nearest = np.full(len(rows), np.inf)
    norms = np.einsum("nd,nd->n", rows, rows)
    for place in range(1, clusters):
        last = chosen[place - 1]
        nearest = np.minimum(nearest, np.maximum(norms - 2 * (rows @ last) + last @ last, 0.0))
        total = nearest.sum()
        if total <= 0:  # fewer distinct points than clusters: the other clusters stay empty
            chosen[place:] = rows[rng.integers(len(rows), size=clusters - place)]
            break
        chosen[place] = rows[min(np.searchsorted(nearest.cumsum(), rng.random() * total, side="right"), len(rows) - 1)]
    return chosen


def lloyd(rows: Array, centres: Array, steps: int = 300) -> Clustering:
    """Alternate nearest centre and mean until no label changes, at most ``steps`` times."""
    labels = np.full(len(rows), -1)
    norms = np.einsum("nd,nd->n", rows, rows)
    for _ in range(steps):
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
        # An empty cluster takes the point that is farthest from its centre.
        for empty, worst in zip(np.flatnonzero(count == 0), np.argsort(-distance), strict=False):
            centres[empty] = rows[worst]
    return Clustering(labels, centres, float(distance.sum()))


@dataclass(frozen=True)
class Spread:
    """Mean and range of one number over several seeds of the clustering, and its value for each."""

    mean: float
    least: float
    most: float
    each: tuple[float, ...]

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """From the value for each seed."""
        return cls(float(np.mean(values)), min(values), max(values), tuple(values))


@dataclass(frozen=True)
class Baseline(Generic[T]):
    """One half of the reference against the other, and the model at that size against the first. Compare these two with each other."""

    real: T
    model: T
    n_reference: int
    n_generated: int


def baseline_of(score: Callable[[Array, Array], T], x: Array, y: Array, seed: int) -> Baseline[T]:
    """Score the second half of the reference, and as many generated points (or all if there are fewer), against the first half."""
    n, m = len(x) // 2, min(len(x) // 2, len(y))
    x, y = np.random.default_rng(seed).permutation(x), np.random.default_rng(seed + 1).permutation(y)
    return Baseline(score(x[:n], x[n : n + m]), score(x[:n], y[:m]), n, m)


def both_rows(
    reference: Features, generated: Features, *, normalise: bool = False, pca: float | None = None
) -> tuple[Array, Array]:
    """Checked rows of both sets; if asked, scaled to length 1 and reduced by a PCA fitted on both."""
    given = {"reference": reference, "generated": generated}
    x, y = (as_tensor(rows, name, device="cpu").double().numpy() for name, rows in given.items())
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"generated must have the reference's {x.shape[1]} features, got {y.shape[1]}")
    if normalise:
        x, y = (unit_rows(rows).astype(np.float64) for rows in (x, y))
    if pca is not None:
        reduce = fit_pca(np.concatenate([x, y]), share=pca)
        x, y = (reduce(rows).astype(np.float64) for rows in (x, y))
    return x, y


def cluster_histograms(x: Array, y: Array, *, clusters: int, restarts: int, seed: int) -> tuple[Array, Array]:
    """Cluster both sets together; the share of each set's points in each cluster, (C,) each.

    Rows are sorted first, so that the result does not depend on their order.
    """
    together = np.concatenate([x, y])
    order = np.lexsort(together.T[::-1])
    labels = np.empty(len(together), dtype=np.int64)
    labels[order] = kmeans(together[order], clusters, restarts=restarts, seed=seed).labels
    p, q = (np.bincount(part, minlength=clusters) / len(part) for part in (labels[: len(x)], labels[len(x) :]))
    return p, q
