r"""Which generated points lie in a reference ball, and which reference points in a generated one: every pair, exactly.

With squared radii r of the reference points x and s of the generated points y, one pass over all pairs counts, for every k,

.. math::
    hits_y = \#\{x : |x-y|^2 \le r_x\}, \quad covered_x = [\exists y : |x-y|^2 \le r_x], \quad recalled_x = [\exists y : |x-y|^2 \le s_y].

Precision is the share of y with a hit, density the mean of hits / k, coverage and recall the shares of the other two.

Shapes: U distinct reference points, V distinct generated points, P pairs, k values of k, R x C one tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .knn_points import Points, squared_distance
from .knn_radii import Progress, distance64
from .knn_screen import (
    Operand,
    Product,
    bounds,
    choose_product,
    ieee_products,
    prepare,
    product_tile,
    scaling,
    scratch,
    spot_check,
)

Boundary = Literal["closed", "open"]
CROWDED = 64  # a tile with more than one open pair in this many is screened again in float64 first


@dataclass(frozen=True)
class Membership:
    """What every point met, one row per k, points as they were given.

    Args:
      hits: reference balls around each generated point.
      covered: whether some generated point lies in this reference point's ball.
      recalled: whether this reference point lies in some generated point's ball.
      rechecked: pairs computed again in float64.
    """

    hits: Int[Tensor, "k M"]
    covered: Bool[Tensor, "k N"]
    recalled: Bool[Tensor, "k N"]
    rechecked: int


@dataclass(frozen=True)
class Balls:
    """Both sets with the squared radii of their balls."""

    x: Operand
    y: Operand
    r: Float[Tensor, "k U"]
    s: Float[Tensor, "k V"]


def membership(
    reference: Points,
    generated: Points,
    r: Float[Tensor, "k U"],
    s: Float[Tensor, "k V"],
    *,
    boundary: Boundary,
    product: Product | None = None,
    progress: Progress | None = None,
) -> Membership:
    """Count every pair once, for all k together.

    Args:
      reference: the set whose balls define precision, density and coverage.
      generated: the set whose balls define recall.
      r: squared radii of the reference points.
      s: squared radii of the generated points.
      boundary: ``closed`` counts a point on the sphere as inside, ``open`` does not.
    """
    centre = reference.centre
    exponent = scaling(max(reference.largest, generated.largest))
    product = product or choose_product(reference.rows.device)
    hits = torch.zeros(len(r), len(generated.rows), dtype=torch.int64, device=r.device)
    covered, recalled = torch.zeros(2, len(r), len(reference.rows), dtype=torch.int64, device=r.device)
    within, rechecked = (torch.le if boundary == "closed" else torch.lt), 0
    with ieee_products():
        x, y = (prepare(p.rows, centre=centre, exponent=exponent, product=product) for p in (reference, generated))
        balls = Balls(x, y, r, s)
        reach_x, reach_y = reach(r, x), reach(s, y)
        out = scratch(x, y)
        for row in range(x.tiles):
            for column in range(y.tiles):
                t = product_tile(x, row, y, column, out)
                if row == column == 0:
                    spot_check(t, x, y)
                inside = t >= reach_x[row * x.tile : (row + 1) * x.tile, None]
                inside |= t >= reach_y[column * y.tile : (column + 1) * y.tile]
                at = true_at(inside)
                i, j = at // y.tile + row * x.tile, at % y.tile + column * y.tile
                at_most, again = settle(balls, t.view(-1)[at], i, j)
                rechecked += again
                for k in range(len(r)):
                    in_reference = within(at_most, r[k, i])
                    hits[k].index_add_(0, j, reference.weight[i] * in_reference)
                    covered[k].index_add_(0, i, in_reference.long())
                    recalled[k].index_add_(0, i, within(at_most, s[k, j]).long())
            if progress is not None:
                progress("pairs", row + 1, x.tiles)
    return Membership(
        hits[:, generated.inverse], covered[:, reference.inverse] > 0, recalled[:, reference.inverse] > 0, rechecked
    )


def reach(squared: Float[Tensor, "k U"], side: Operand) -> Float[Tensor, " F"]:
    """The T below which a pair is surely out of the largest ball: ``-r/2`` in scaled units, rounded down."""
    largest = squared.amax(0) / side.unit
    threshold = torch.full_like(side.half, torch.inf)
    threshold[: len(largest)] = torch.nextafter((-largest / 2).float(), torch.tensor(-torch.inf, device=largest.device))
    return threshold


def true_at(mask: Bool[Tensor, "R C"]) -> Int[Tensor, " P"]:
    """Flat places of a mostly false mask, eight entries at a time (ten times faster than `nonzero` on a CPU)."""
    eight = mask.view(-1, 8)
    word = eight.view(torch.int64).view(-1).nonzero()[:, 0]
    which, place = eight[word].nonzero(as_tuple=True)
    return word[which] * 8 + place


def settle(
    balls: Balls, t: Float[Tensor, " P"], i: Int[Tensor, " P"], j: Int[Tensor, " P"]
) -> tuple[Float[Tensor, " P"], int]:
    """A number per pair that compares with every radius as its squared distance does, and how many were computed in float64."""
    x, y = balls.x, balls.y
    low, high = bounds(t, x, i, y, j)
    unsure = straddling(balls, low, high, i, j)
    if len(unsure) > x.tile * y.tile // CROWDED:
        rows, a = torch.unique(i[unsure], return_inverse=True)
        columns, b = torch.unique(j[unsure], return_inverse=True)
        centre = x.rows[rows].double().mean(0)
        low64, high64 = distance64(x.rows[rows], y.rows[columns], centre)
        low[unsure], high[unsure] = low64[a, b], high64[a, b]
        unsure = unsure[straddling(balls, low[unsure], high[unsure], i[unsure], j[unsure])]
    high[unsure] = squared_distance(x.rows, i[unsure], y.rows, j[unsure])
    return high, len(unsure)


def straddling(
    balls: Balls, low: Float[Tensor, " P"], high: Float[Tensor, " P"], i: Int[Tensor, " P"], j: Int[Tensor, " P"]
) -> Int[Tensor, " u"]:
    """Pairs whose interval holds some radius of either point."""
    unsure = torch.zeros_like(i, dtype=torch.bool)
    for r, s in zip(balls.r, balls.s, strict=True):
        for radius in (r[i], s[j]):
            unsure |= (low <= radius) & (radius <= high)
    return unsure.nonzero()[:, 0]
