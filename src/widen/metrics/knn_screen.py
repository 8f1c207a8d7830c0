r"""Fast squared distances with a bound on their error: the screen of the k-NN metrics.

With centred points a, b the product of two blocks of points gives, for every pair at once,

.. math::  T_{ij} = a_i \cdot b_j - (1-c)\,(|a_i|^2 + |b_j|^2)/2, \qquad
           -2\,T_{ij} \;\le\; |x_i - y_j|^2 \;\le\; -2\,T_{ij} + 2c\,(|a_i|^2 + |b_j|^2),

where ``c`` bounds, in the worst case and for any order of summation, what rounding can do. A comparison that this interval
decides is right; the few that it leaves open are computed again in float64 (`widen.metrics.knn_points.squared_distance`).

Shapes: U distinct points, D features, K columns of an operand, R x C one tile.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .knn_points import batch_rows, pieces, squared_distance

Product = Literal["float32", "bf16x3"]

CPU_TILE, CUDA_TILE = 1024, 16384  # 4 MB stays in a CPU's cache; 1 GB keeps a GPU busy past its launch overhead
OUTSIDE = 2.0**120  # |a|^2 / 2 of the rows that fill up the last tile: nobody's neighbour
SLACK = 2.0**-80  # what underflow can hide, in scaled units; the points themselves are scaled to about 2**20


@dataclass(frozen=True)
class Operand:
    """One side of the product. ``left`` and ``right`` differ where the norms ride along as extra columns (CUDA).

    Args:
      rows: the points as given, for whatever the screen leaves open.
      half: ``(1 - c) |a|^2 / 2`` in scaled units, float32; `OUTSIDE` in the filling.
      norm: ``|a|^2`` in true units, float64.
      error: the constant ``c``.
      unit: true squared distance = scaled squared distance * ``unit``.
    """

    rows: Float[Tensor, "U D"]
    left: Float[Tensor, "F K"]
    right: Float[Tensor, "F K"]
    half: Float[Tensor, " F"]
    norm: Float[Tensor, " U"]
    product: Product
    tile: int
    error: float
    unit: float

    @property
    def tiles(self) -> int:
        """Tiles along this side."""
        return len(self.half) // self.tile


def relative_error(product: Product, dims: int, *, rides: bool) -> float:
    r"""The constant ``c``: rounding of the centred points (4u), of the dot product (``gamma_K``), and of adding the norms.

    ``rides``: the norms are columns of the operands, so the dot product's bound applies to them too and doubles. bf16x3 drops
    the product of the two low halves and what both leave out, 2^-16 each; a tensor core may truncate where it adds, hence 2^-22.
    """
    if product == "bf16x3":
        return 3.2 * 2**-16 + 2.1 * (3 * dims + 6) * 2**-22
    return 1.01 * 2**-24 * ((2 * (dims + 2) if rides else dims) + 16)


def choose_product(device: torch.device) -> Product:
    """bf16x3 where tensor cores return float32 sums of bfloat16 products, plain float32 elsewhere."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return "float32"
    probe = torch.ones(16, 16, device=device, dtype=torch.bfloat16)
    try:
        torch.mm(probe, probe, out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return "float32"
    return "bf16x3"


def choose_tile(n: int, limit: int) -> int:
    """The smallest tile that covers n points in as few tiles as ``limit`` allows, a multiple of 8 (of 64 when large).

    Examples:
      >>> choose_tile(10_000, 1024), choose_tile(1_000_000, 16384), choose_tile(5, 1024)
      (1000, 16192, 8)
    """
    tiles, step = -(-n // limit), 64 if limit > 4096 and n > 4096 else 8
    return -(-n // (tiles * step)) * step


def scaling(largest: float) -> int:
    """The power of two that brings the largest feature to about 2**20, where float32's range is no concern."""
    return 20 - math.frexp(largest)[1]


def norms_ride(rows: Tensor, product: Product) -> bool:
    """Whether the norms are columns of the operands: on a GPU a pass over the product costs a quarter of making it."""
    return rows.is_cuda or product == "bf16x3"


def prepare(
    rows: Float[Tensor, "U D"],
    *,
    centre: Float[Tensor, " D"],
    exponent: int,
    product: Product,
    limit: int | None = None,
) -> Operand:
    """Scale by a power of two (exact), centre, round to float32 once and lay out for `product_tile`.

    Centring is what keeps a feature that sits at 3000 for every text from eating float32's digits.
    """
    n, dims = rows.shape
    tile = choose_tile(n, limit or (CUDA_TILE if rows.is_cuda else CPU_TILE))
    rides = norms_ride(rows, product)
    error = relative_error(product, dims, rides=rides)
    filled = -(-n // tile) * tile
    a = torch.zeros(filled, dims, device=rows.device, dtype=torch.float32)
    norm = torch.zeros(n, device=rows.device, dtype=torch.float64)
    wide = torch.promote_types(rows.dtype, torch.float32)
    origin = (centre * 2.0**exponent).to(wide)  # rounded to the dtype of the rows, so that one subtraction rounds once
    for given, kept in zip(pieces(rows), pieces(a[:n]), strict=True):
        if wide == torch.float32:
            torch.mul(given.to(wide), 2.0**exponent, out=kept).sub_(origin)
        else:
            kept.copy_((given * 2.0**exponent).sub_(origin))
    for kept, squares in zip(pieces(a[:n]), torch.split(norm, batch_rows(rows)), strict=True):
        squares.copy_(torch.linalg.vector_norm(kept, dim=1, dtype=torch.float64).square_())
    half = torch.full((filled,), OUTSIDE, device=rows.device, dtype=torch.float32)
    half[:n] = ((1 - error) / 2 * norm - SLACK).float()
    left, right = (a, a) if not rides else ride(a, half, product)
    unit = 4.0**-exponent
    return Operand(rows, left, right, half, norm * unit, product, tile, error, unit)


def ride(
    a: Float[Tensor, "F D"], half: Float[Tensor, " F"], product: Product
) -> tuple[Float[Tensor, "F K"], Float[Tensor, "F K"]]:
    """Operands whose plain product is T: ``[a, -half, 1] [b, 1, -half]^T``, in float32 or as three bfloat16 products at once."""
    one = torch.ones_like(half)
    if product == "float32":
        return torch.cat([a, -half[:, None], one[:, None]], 1), torch.cat([a, one[:, None], -half[:, None]], 1)
    high = a.bfloat16()
    low = (a - high).bfloat16()
    parts = []
    rest = -half
    for _ in range(3):  # three bfloat16 terms hold float32's 24 bits
        parts.append(rest.bfloat16())
        rest = rest - parts[-1]
    norms, ones = torch.stack(parts, 1), one.bfloat16()[:, None].expand(-1, 3)
    filling = torch.zeros(len(a), -(3 * a.shape[1] + 6) % 16, device=a.device, dtype=torch.bfloat16)
    return torch.cat([high, high, low, norms, ones, filling], 1), torch.cat([high, low, high, ones, norms, filling], 1)


def product_tile(x: Operand, row: int, y: Operand, column: int, out: Tensor | None = None) -> Float[Tensor, "R C"]:
    """T for tile ``row`` of x against tile ``column`` of y."""
    rows, columns = slice(row * x.tile, (row + 1) * x.tile), slice(column * y.tile, (column + 1) * y.tile)
    left, right = x.left[rows], y.right[columns]
    if x.product == "bf16x3":
        if left.is_cuda:
            return torch.mm(left, right.T, out_dtype=torch.float32)
        return torch.mm(
            left.float(), right.float().T
        )  # the same numbers, slowly: a CPU has no use for bf16x3 but to test it
    t = torch.mm(left, right.T, out=out)
    rides = left.shape[1] > x.rows.shape[1]
    return t if rides else t.sub_(x.half[rows, None]).sub_(y.half[columns])


def scratch(x: Operand, y: Operand) -> Tensor | None:
    """A buffer that every tile of this pass can be written into."""
    return None if x.product == "bf16x3" else torch.empty(x.tile, y.tile, device=x.left.device, dtype=torch.float32)


def bounds(
    t: Float[Tensor, "*P"], x: Operand, i: Int[Tensor, "*P"], y: Operand, j: Int[Tensor, "*P"]
) -> tuple[Float[Tensor, "*P"], Float[Tensor, "*P"]]:
    """Lower and upper bound, in true units and float64, on the squared distances of pairs (i, j) with product t."""
    low = t.double() * (-2 * x.unit)
    return low - 4 * SLACK * x.unit, low + 2 * x.error * (x.norm[i] + y.norm[j]) + 8 * SLACK * x.unit


def spot_check(t: Float[Tensor, "R C"], x: Operand, y: Operand) -> None:
    """Hold some of the first tile against float64, so that a product that is not what it says is refused and not believed."""
    n = min(64, *t.shape, len(x.rows), len(y.rows))
    i = torch.arange(n, device=t.device)
    j = i.roll(1)
    low, high = bounds(t[i, j], x, i, y, j)
    exact = squared_distance(x.rows, i, y.rows, j)
    if not bool(((low <= exact) & (exact <= high)).all()):
        raise RuntimeError(
            f"the {x.product} product on {t.device} errs more than its bound {x.error:.2e}: no k-NN score is given"
        )


@contextlib.contextmanager
def ieee_products() -> Iterator[None]:
    """Inside, float32 products are float32 ones: no TF32 or bfloat16 in their place, whatever the caller allowed elsewhere."""
    known = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
    places = [place for place in known if hasattr(place, "fp32_precision")]
    before = [place.fp32_precision for place in places]
    reduced = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:  # the caller set TF32 through the newer switches, and torch will not read the older one then
        older = None
    try:
        # Both switches, or a CUDA product refuses to run: torch checks that they agree.
        if older is not None:
            torch.set_float32_matmul_precision("highest")
        for place in places:
            place.fp32_precision = "ieee"
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        yield
    finally:
        if older is not None:
            torch.set_float32_matmul_precision(older)
        for place, precision in zip(places, before, strict=True):
            place.fp32_precision = precision
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = reduced
