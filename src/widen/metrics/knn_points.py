"""A set of feature vectors as the k-NN metrics see it: checked, exact duplicates folded into weights, distances in float64.

Shapes: N points as given, U distinct points, D features, P pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

Features: TypeAlias = Any
"""Anything two-dimensional that holds numbers: a torch tensor on any device, a numpy array, a list of lists."""

# Beyond these a squared difference leaves float64's range, and a distance would be 0 or inf in silence.
LARGEST, SMALLEST = 1e150, 1e-140
CPU_BATCH, CUDA_BATCH = 1 << 19, 1 << 26  # numbers per piece of float64 work: 4 MB on a CPU, 512 MB on a GPU


def batch_rows(rows: Tensor) -> int:
    """How many rows of this width to hold in float64 at a time."""
    return max(1, (CUDA_BATCH if rows.is_cuda else CPU_BATCH) // rows.shape[1])


def pieces(rows: Tensor) -> tuple[Tensor, ...]:
    """The rows in pieces small enough for a float64 copy of each."""
    return torch.split(rows, batch_rows(rows))


@dataclass(frozen=True)
class Points:
    """Distinct points with their multiplicities: a text said six times is one point of weight 6, and is compared once.

    Args:
      rows: the distinct points, in the dtype in which they were given.
      weight: how often each was given.
      inverse: for each point as given, its row.
      largest: the largest absolute value of any feature.
    """

    rows: Float[Tensor, "U D"]
    weight: Int[Tensor, " U"]
    inverse: Int[Tensor, " N"]
    largest: float

    @property
    def n(self) -> int:
        """Points as given, duplicates counted."""
        return len(self.inverse)

    @property
    def duplicates(self) -> int:
        """Points that equal an earlier one."""
        return self.n - len(self.rows)

    @property
    def centre(self) -> Float[Tensor, " D"]:
        """The mean, roughly: distances do not change with it, only the screen's digits do."""
        wide = self.rows.dtype == torch.float64 or self.largest > 1e30  # where a float32 sum could overflow
        return self.rows.mean(0, dtype=torch.float64 if wide else torch.float32).double()


def as_points(features: Features, name: str, *, device: str | torch.device | None = None) -> Points:
    """Check a set of features and fold its exact duplicates.

    Args:
      features: (N, D), finite; integers are read as float64.
      name: what to call it in an error.
      device: where to compute; a tensor stays where it is unless told otherwise.
    """
    rows = features.detach() if isinstance(features, Tensor) else torch.from_numpy(np.array(features, copy=None))
    if rows.is_complex():
        raise ValueError(f"{name} must hold real numbers, got dtype {rows.dtype}")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"{name} must have shape (points, features), both at least 1, got {tuple(rows.shape)}")
    rows = rows if rows.is_floating_point() and rows.element_size() > 1 else rows.double()
    rows = rows.to(device).contiguous() if device is not None else rows.contiguous()
    largest = float(torch.stack(rows.aminmax()).abs().amax())  # nan and inf come through
    if not math.isfinite(largest):
        raise ValueError(f"{name} must be finite, row {int((~rows.isfinite()).any(1).nonzero()[0])} is not")
    if largest > LARGEST or 0 < largest < SMALLEST:
        raise ValueError(
            f"{name} must lie between {SMALLEST} and {LARGEST} for its squares to be numbers, got {largest}"
        )
    return fold(rows, largest)


def fold(rows: Float[Tensor, "N D"], largest: float) -> Points:
    """Group equal rows by hash, then make sure of it row by row."""
    n, dims = rows.shape
    some = torch.arange(0, dims, max(1, dims // 32), device=rows.device)
    # A few columns tell most sets apart; only a set in which they do not is hashed whole.
    _, inverse, count = torch.unique(hash_rows(rows[:, some]), return_inverse=True, return_counts=True)
    if len(count) < n:
        _, inverse, count = torch.unique(hash_rows(rows), return_inverse=True, return_counts=True)
    if len(count) == n:
        everyone = torch.arange(n, device=rows.device)
        return Points(rows, torch.ones_like(everyone), everyone, largest)
    order = torch.arange(n, device=rows.device)
    first = torch.full_like(count, n).scatter_reduce_(0, inverse, order, "amin")
    doubtful = (first[inverse] != order).nonzero()[:, 0]
    for piece in torch.split(doubtful, batch_rows(rows)):
        if not bool((rows[piece] == rows[first[inverse[piece]]]).all()):  # two rows with one 64-bit hash: sort instead
            unique, inverse, count = torch.unique(rows, dim=0, return_inverse=True, return_counts=True)
            return Points(unique, count, inverse, largest)
    return Points(rows[first], count, inverse, largest)


def hash_rows(rows: Float[Tensor, "N D"]) -> Int[Tensor, " N"]:
    """A 64-bit linear hash of the bits of each row: integer sums wrap, so it is the same in any order and on any device."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.element_size()]
    seeded = torch.Generator().manual_seed(0x5EED)
    factor = torch.randint(-(2**62), 2**62, (rows.shape[1],), generator=seeded).to(rows.device) | 1
    # + 0.0 turns -0.0 into 0.0: equal values must have equal bits.
    return torch.cat([((piece + 0.0).view(bits).long() * factor).sum(1) for piece in pieces(rows)])


def squared_distance(
    x: Float[Tensor, "U D"], i: Int[Tensor, " P"], y: Float[Tensor, "V D"], j: Int[Tensor, " P"]
) -> Float[Tensor, " P"]:
    """Exact to float64 rounding, and the same bits on every device: direct differences, squares summed in a fixed tree.

    A library's sum may order its terms by batch size or alignment; then two equal distances need not compare equal, and a
    tie is decided by where a pair stood in its batch. Here every addition is an element-wise operation.

    Examples:
      >>> a, zero = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([0])
      >>> squared_distance(a, zero, a, zero + 1)
      tensor([25.], dtype=torch.float64)
    """
    batch, found = batch_rows(x), []
    for i_, j_ in zip(torch.split(i, batch), torch.split(j, batch), strict=True):
        square = x.index_select(0, i_).double()
        square -= y.index_select(0, j_)
        square *= square
        width = square.shape[1]
        while width > 1:
            half = (width + 1) // 2
            square[:, : width - half] += square[:, half:width]
            width = half
        found.append(square[:, 0].clone())
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64, device=x.device)
