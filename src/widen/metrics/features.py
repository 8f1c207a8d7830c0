"""Feature vectors: the checks that every metric makes, rows of length 1, and principal components.

Shapes: N points, D features, R components.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Features: TypeAlias = Any
"""A torch tensor on any device, a numpy array or a list of lists, of shape (points, features)."""

LARGEST, SMALLEST = 1e150, 1e-140  # outside this range, squares overflow or underflow in float64


def as_tensor(features: Features, name: str, *, device: str | torch.device | None = None) -> Tensor:
    """Features as a checked (N, D) tensor of their own float type; integers become float64. ``name`` appears in errors."""
    rows = features.detach() if isinstance(features, Tensor) else torch.from_numpy(np.array(features, copy=None))
    if rows.is_complex():
        raise ValueError(f"{name} must hold real numbers, got dtype {rows.dtype}")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"{name} must have shape (points, features), both at least 1, got {tuple(rows.shape)}")
    rows = rows if rows.is_floating_point() and rows.element_size() > 1 else rows.double()
    rows = rows.to(device or rows.device).contiguous()
    largest = float(torch.stack(rows.aminmax()).abs().amax())  # nan and inf propagate
    if not math.isfinite(largest):
        raise ValueError(f"{name} must be finite, row {int((~rows.isfinite()).any(1).nonzero()[0])} is not")
    if largest > LARGEST or 0 < largest < SMALLEST:
        raise ValueError(f"{name} must lie between {SMALLEST} and {LARGEST} in absolute value, got {largest}")
    return rows


def unit_rows(rows: Any) -> NDArray[np.float32]:
    """Rows scaled to length 1. A row of zeros is an error.

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


@dataclass(frozen=True)
class PCA:
    """Principal components, by falling variance. Call it with (N, D) points to get their (N, R) coordinates.

    Args:
      components: (R, D), orthonormal; they keep ``share`` of the variance.
    """

    mean: Array
    components: Array
    share: float

    def __call__(self, rows: Any) -> NDArray[np.float32]:
        """Coordinates of the points, (N, R)."""
        return ((np.asarray(rows, dtype=np.float64) - self.mean) @ self.components.T).astype(np.float32)


def fit_pca(rows: Any, *, share: float = 0.9) -> PCA:
    """Fit the fewest components that keep at least ``share`` of the variance.

    Args:
      rows: (N, D), at least 2 points, not all equal.
      share: above 0, at most 1.

    Examples:
      >>> fit_pca([[0.0, 0.0], [1.0, 0.0], [3.0, 0.1]], share=0.9).components.shape
      (1, 2)
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, got {share}")
    given = np.asarray(rows, dtype=np.float64)
    if given.ndim != 2 or len(given) < 2 or not np.isfinite(given).all():
        raise ValueError(f"rows must be finite and of shape (points, features), at least 2 points, got {given.shape}")
    mean = given.mean(0)
    centred = given - mean
    # Decompose the smaller of the two Gram matrices; both have the same non-zero eigenvalues.
    tall = len(given) >= given.shape[1]
    values, vectors = np.linalg.eigh(centred.T @ centred if tall else centred @ centred.T)
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    if values[0] <= 0:
        raise ValueError("rows must differ: they are all equal and have no directions")
    kept = values.cumsum() / values.sum()
    number = min(int(np.searchsorted(kept, share - 1e-12)) + 1, int((values > 1e-12 * values[0]).sum()))
    directions = vectors[:, :number].T if tall else (centred.T @ vectors[:, :number] / np.sqrt(values[:number])).T
    return PCA(mean, np.ascontiguousarray(directions), float(kept[number - 1]))
