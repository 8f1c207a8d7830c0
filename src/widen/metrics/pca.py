"""Principal components: features to fewer features, fitted on the reference alone or, for the paper's preset, on both sets together.

Fitting on both moves every model's scores by what the other model's texts look like: two models are then not scored in one space.

Shapes: N points, D features, R components kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PCA:
    """A centre and orthonormal directions, by falling variance.

    Args:
      mean: (D,).
      components: (R, D).
      share: how much of the variance they keep.
      fitted_on: points that it was fitted on.
    """

    mean: Array
    components: Array
    share: float
    fitted_on: int

    def __call__(self, rows: Any) -> NDArray[np.float32]:
        """Coordinates of some points, (N, R)."""
        return ((np.asarray(rows, dtype=np.float64) - self.mean) @ self.components.T).astype(np.float32)


def fit_pca(rows: Any, *, share: float = 0.9) -> PCA:
    """The fewest directions that keep at least ``share`` of the variance.

    Args:
      rows: (N, D), N at least 2, not all equal.
      share: strictly above 0, at most 1.

    Examples:
      >>> fit_pca([[0.0, 0.0], [1.0, 0.0], [3.0, 0.1]], share=0.9).components.shape
      (1, 2)
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie above 0 and at most at 1, got {share}")
    given = np.asarray(rows, dtype=np.float64)
    if given.ndim != 2 or len(given) < 2 or not np.isfinite(given).all():
        raise ValueError(
            f"rows must be finite, of shape (points, features), with at least 2 points, got shape {given.shape}"
        )
    mean = given.mean(0)
    centred = given - mean
    # The smaller of the two Gram matrices has all non-zero eigenvalues; its eigenvectors give the directions.
    tall = len(given) >= given.shape[1]
    values, vectors = np.linalg.eigh(centred.T @ centred if tall else centred @ centred.T)
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    if values[0] <= 0:
        raise ValueError("rows must differ: they are all equal and have no directions")
    kept = values.cumsum() / values.sum()
    number = min(int(np.searchsorted(kept, share - 1e-12)) + 1, int((values > 1e-12 * values[0]).sum()))
    directions = vectors[:, :number].T if tall else (centred.T @ vectors[:, :number] / np.sqrt(values[:number])).T
    return PCA(mean, np.ascontiguousarray(directions), float(kept[number - 1]), len(given))


def unit_rows(rows: Any) -> NDArray[np.float32]:
    """Rows of length 1; a row of zeros is refused, having no direction.

    Examples:
      >>> unit_rows([[3.0, 4.0]])
      array([[0.6, 0.8]], dtype=float32)
    """
    given = np.asarray(rows, dtype=np.float64)
    length = np.linalg.norm(given, axis=1, keepdims=True)
    if (length == 0).any():
        raise ValueError(f"rows must not be zero to be normalised, row {int(np.flatnonzero(length == 0)[0])} is")
    unit: NDArray[np.float32] = (given / length).astype(np.float32)
    return unit
