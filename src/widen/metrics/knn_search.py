r"""Exact k-NN radii and ball membership: a float32 product screens all pairs, float64 differences decide the close ones.

With centred points a and b, the screen computes a lower bound of every squared distance,

.. math::  low_{ij} = (1-c)(|a_i|^2 + |b_j|^2) - 2 a_i \cdot b_j \;\le\; |x_i - y_j|^2 \;\le\; low_{ij} + 2c(|a_i|^2 + |b_j|^2),

where c bounds the rounding error. Every comparison that these bounds leave open is repeated with float64 differences.

Shapes: N and M points of two sets, D features, R rows of a block, P pairs, k values of k.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Boundary = Literal["closed", "open"]
CPU_BLOCK, CUDA_BLOCK = 1 << 22, 1 << 28  # distances computed at a time: 16 MB on a CPU, 1 GB on a GPU
SPARE = 4  # candidates beyond k that a point keeps: the screen may order neighbours wrongly within its error
UNDERFLOW = 2.0**-80  # absolute error of scaled squared distances, from float32 underflow


def block_size(device: torch.device, width: int) -> int:
    """Rows of ``width`` numbers that fit into one block."""
    return max(1, (CUDA_BLOCK if device.type == "cuda" else CPU_BLOCK) // width)


class Screen:
    """Points prepared for the screen: centred, scaled by a power of two to at most 1, rounded to float32.

    Rounding grows with the distance to ``centre``. No feature may exceed ``largest`` in absolute value.
    """

    def __init__(self, rows: Float[Tensor, "N D"], centre: Float[Tensor, " D"], largest: float) -> None:
        self.rows = rows
        exponent = math.frexp(largest)[1]
        self.unit = 4.0**exponent  # true squared distance = scaled squared distance * unit
        self.error = 1.01 * 2**-24 * (rows.shape[1] + 16)  # the constant c, for any order of summation
        scale, wide = 2.0**-exponent, torch.promote_types(rows.dtype, torch.float32)
        origin = (centre * scale).to(wide)
        pieces = torch.split(rows, block_size(rows.device, rows.shape[1]))
        self.a = torch.cat([(piece.to(wide) * scale).sub_(origin).float() for piece in pieces])
        norm = torch.linalg.vector_norm(self.a, dim=1, dtype=torch.float64).square_()
        self.low = ((1 - self.error) * norm - UNDERFLOW).float()
        self.slack = (2 * self.error * norm + 2 * UNDERFLOW) * self.unit  # this point's part of `high - low`


def lower_bounds(x: Screen, i: Int[Tensor, " R"], y: Screen) -> Float[Tensor, "R M"]:
    """Lower bounds of the squared distances from points i of x to all points of y, in scaled units."""
    return torch.addmm(y.low, x.a[i], y.a.T, alpha=-2).add_(x.low[i, None])


def squared_distance(
    x: Float[Tensor, "N D"], i: Int[Tensor, " P"], y: Float[Tensor, "M D"], j: Int[Tensor, " P"]
) -> Float[Tensor, " P"]:
    """Squared distances of pairs from float64 differences, the same bits for a pair in any batch and on any device.

    The squares are summed in a fixed tree of element-wise additions. `Tensor.sum` may order its terms by batch, and equal distances
    would then differ.
    """
    found = [torch.zeros(0, dtype=torch.float64, device=x.device)]
    batch = max(1, block_size(x.device, x.shape[1]) // 8)
    for i_, j_ in zip(torch.split(i, batch), torch.split(j, batch), strict=True):
        square = (x[i_].double() - y[j_]).square_()
        width = square.shape[1]
        while width > 1:
            half = (width + 1) // 2
            square[:, : width - half] += square[:, half:width]
            width = half
        found.append(square[:, 0])
    return torch.cat(found)


def squared_radii(rows: Float[Tensor, "N D"], ks: Sequence[int]) -> Float[Tensor, "k N"]:
    """Squared distance from each point to its k-th neighbour in the same set, for each k < N; a copy of a point is a neighbour at 0."""
    n = len(rows)
    screen = Screen(rows, rows.mean(0, dtype=torch.float64), float(rows.abs().amax()))
    pending, keep = torch.arange(n, device=rows.device), min(max(ks) + SPARE, n - 1)
    squared = torch.empty(len(ks), n, dtype=torch.float64, device=rows.device)
    with full_float32():
        while len(pending):  # points whose radius the kept candidates do not prove; then keep more
            unproven = []
            for i in torch.split(pending, block_size(rows.device, max(n, 16 * keep))):
                low = lower_bounds(screen, i, screen)
                low[torch.arange(len(i), device=i.device), i] = torch.inf  # a point is not its own neighbour
                low, j = low.topk(keep, largest=False)
                exact = squared_distance(rows, i.repeat_interleave(keep), rows, j.flatten()).view_as(j)
                low = low.double() * screen.unit
                if bool((exact < low).any()):
                    raise RuntimeError(
                        f"float32 products on {rows.device} err more than {screen.error:.1e}: no k-NN score"
                    )
                nearest = exact.sort(1).values[:, [k - 1 for k in ks]]
                squared[:, i] = nearest.T
                radius = nearest.amax(1)
                unproven.append(i[(radius > low.amax(1)) & (radius > 0)])
            pending = torch.cat(unproven) if keep < n - 1 else pending[:0]
            keep = min(8 * keep, n - 1)
    return squared


@dataclass(frozen=True)
class Membership:
    """Which points lie in which balls, one row for each k."""

    hits: Int[Tensor, "k M"]  # number of reference balls around each generated point
    covered: Bool[Tensor, "k N"]  # whether a reference point's ball holds a generated point
    recalled: Bool[Tensor, "k N"]  # whether a reference point lies in a generated point's ball


def membership(
    reference: Float[Tensor, "N D"],
    generated: Float[Tensor, "M D"],
    r: Float[Tensor, "k N"],
    s: Float[Tensor, "k M"],
    *,
    boundary: Boundary,
) -> Membership:
    """Compare all pairs with the squared radii r of the reference points and s of the generated points."""
    n, m, device = len(reference), len(generated), reference.device
    if m == 0:
        nothing = torch.zeros(len(r), n, dtype=torch.bool, device=device)
        return Membership(torch.zeros(len(r), 0, dtype=torch.int64, device=device), nothing, nothing)
    largest = max(float(reference.abs().amax()), float(generated.abs().amax()))
    x, y = (Screen(rows, reference.mean(0, dtype=torch.float64), largest) for rows in (reference, generated))
    up = torch.tensor(torch.inf, device=device)
    reach_x, reach_y = (torch.nextafter((radii.amax(0) / x.unit).float(), up) for radii in (r, s))
    within = torch.le if boundary == "closed" else torch.lt
    hits = torch.zeros(len(r), m, dtype=torch.int64, device=device)
    covered, recalled = torch.zeros(2, len(r), n, dtype=torch.bool, device=device)
    with full_float32():
        for rows in torch.split(torch.arange(n, device=device), block_size(device, m)):
            low = lower_bounds(x, rows, y)
            at = ((low <= reach_x[rows, None]) | (low <= reach_y)).view(-1).nonzero()[:, 0]
            i, j = at // m + rows[0], at % m
            squared = settle(x, i, y, j, low.view(-1)[at], [*r[:, i], *s[:, j]])
            for k in range(len(r)):
                inside = within(squared, r[k, i])
                hits[k] += torch.bincount(j[inside], minlength=m)
                covered[k, i[inside]] = True
                recalled[k, i[within(squared, s[k, j])]] = True
    return Membership(hits, covered, recalled)


def settle(
    x: Screen, i: Int[Tensor, " P"], y: Screen, j: Int[Tensor, " P"], low: Float[Tensor, " P"], radii: list[Tensor]
) -> Float[Tensor, " P"]:
    """A number for each pair that compares with each of its radii as its squared distance does."""
    least = low.double() * x.unit
    most: Tensor = least + x.slack[i] + y.slack[j]
    unsure = torch.zeros_like(i, dtype=torch.bool)
    for radius in radii:
        unsure |= (least <= radius) & (radius <= most)
    most[unsure] = squared_distance(x.rows, i[unsure], y.rows, j[unsure])
    return most


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Switch off TF32 and bfloat16 in float32 products; restore the caller's settings afterwards."""
    places = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
    before = [place.fp32_precision for place in places]
    legacy = None
    with contextlib.suppress(RuntimeError):  # raised if the caller used the newer switches
        legacy = torch.get_float32_matmul_precision()
    try:
        if legacy is not None:  # a CUDA product requires that both kinds of switch agree
            torch.set_float32_matmul_precision("highest")
        for place in places:
            place.fp32_precision = "ieee"
        yield
    finally:
        if legacy is not None:
            torch.set_float32_matmul_precision(legacy)
        for place, precision in zip(places, before, strict=True):
            place.fp32_precision = precision
