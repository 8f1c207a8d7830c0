r"""The k-NN radius of every point within its own set, exact: half the arithmetic by symmetry, float64 where it matters.

``r_i`` is the distance from point i to its k-th neighbour, the point itself left out by index and not by rank, so that an
exact duplicate counts as a neighbour at distance 0 (Kynkäänniemi et al., 2019).

Shapes: U distinct points, N points as given, D features, M candidates kept per point, k values of k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .knn_points import Points, batch_rows, pieces, squared_distance
from .knn_screen import (
    OUTSIDE,
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

Progress = Callable[[str, int, int], None]
"""Called as (stage, done, total) while a long computation goes on."""

SPARE = 4  # candidates kept beyond k: the screen may order neighbours wrongly within its error
SMALL_TILE = 512  # of a small set on a CPU: half of a tile on the diagonal is work for nothing
WIDE_SPARE = 12  # where the screen is bf16x3, whose interval is some ten times wider


@dataclass(frozen=True)
class Radii:
    """Squared radii, float64, one row per k; and how much float64 work they took."""

    squared: Float[Tensor, "k U"]
    rechecked: int


def self_radii(
    points: Points, ks: Sequence[int], *, product: Product | None = None, progress: Progress | None = None
) -> Radii:
    """Squared distance from each distinct point to its k-th neighbour, for every k of ``ks`` from one pass.

    Args:
      points: the set.
      ks: numbers of neighbours, each at least 1 and less than ``points.n``.
    """
    product = product or choose_product(points.rows.device)
    limit = SMALL_TILE if len(points.rows) <= 8 * SMALL_TILE and not points.rows.is_cuda else None
    with ieee_products():
        screen = prepare(
            points.rows, centre=points.centre, exponent=scaling(points.largest), product=product, limit=limit
        )
        kept = min(max(ks) + (SPARE if screen.product == "float32" else WIDE_SPARE), len(points.rows) - 1)
        if kept == 0:  # one distinct point: every neighbour is a copy of it
            return Radii(torch.zeros(len(ks), 1, dtype=torch.float64, device=points.rows.device), 0)
        t, j = nearest(screen, kept, progress)
        return refine(points, screen, t, j, ks)


def nearest(screen: Operand, kept: int, progress: Progress | None) -> tuple[Float[Tensor, "U M"], Int[Tensor, "U M"]]:
    """The ``kept`` largest T of each point and whose they are. Only tiles on and above the diagonal are multiplied."""
    n, tile, tiles = len(screen.rows), screen.tile, screen.tiles
    best = torch.full((tiles * tile, kept), -torch.inf, device=screen.half.device, dtype=torch.float32)
    who = torch.zeros(tiles * tile, kept, device=screen.half.device, dtype=torch.int64)
    out = scratch(screen, screen)

    def merge(block: int, start: int, t: Tensor, *, by_column: bool) -> None:
        rows = slice(block * tile, (block + 1) * tile)
        entries, group = promising(t, kept, by_column=by_column)
        best[rows], at = torch.cat([best[rows], entries], 1).topk(kept, 1, sorted=False)
        new = (at - kept).clamp(min=0)  # place among the entries: which of its group, then which group
        width = group.shape[1]
        column = new // width * (tile * width // entries.shape[1]) + group.gather(1, new % width) + start
        who[rows] = torch.where(at < kept, who[rows].gather(1, at.clamp(max=kept - 1)), column)

    for row in range(tiles):
        for column in range(row, tiles):
            t = product_tile(screen, row, screen, column, out)
            if row == column:
                if row == 0:
                    spot_check(t, screen, screen)
                t.fill_diagonal_(-torch.inf)
            else:
                merge(column, row * tile, t, by_column=True)
            merge(row, column * tile, t, by_column=False)
        if progress is not None:
            progress("radii", row + 1, tiles)
    return best[:n], who[:n]


def promising(
    t: Float[Tensor, "R C"], kept: int, *, by_column: bool
) -> tuple[Float[Tensor, "n E"], Int[Tensor, "n g"]]:
    """The entries of each row (or column) of a tile among which are its ``kept`` largest, and the groups that they are of.

    Every s-th entry forms a group; one pass takes each group's largest; the ``kept`` best groups hold the ``kept`` best entries, so that
    only s * kept numbers a row are ever sorted (8 times faster than topk on the whole tile). Entries come in s runs, group by group.
    """
    rows, columns = t.shape
    n, across = (columns, rows) if by_column else (rows, columns)
    kept = min(kept, across)
    s = 1
    while across % (2 * s) == 0 and across // (2 * s) >= 3 * kept and s < 64:
        s *= 2
    groups = t.view(s, rows // s, columns) if by_column else t.view(rows, s, columns // s)
    top = groups.amax(0).t().contiguous() if by_column else groups.amax(1)
    group = top.topk(kept, 1, sorted=False).indices
    if by_column:
        entries = groups.gather(1, group.t()[None].expand(s, kept, n)).permute(2, 0, 1).reshape(n, s * kept)
    else:
        entries = groups.gather(2, group[:, None].expand(n, s, kept)).reshape(n, s * kept)
    return entries, group


def refine(points: Points, screen: Operand, t: Float[Tensor, "U M"], j: Int[Tensor, "U M"], ks: Sequence[int]) -> Radii:
    """Exact radii from the candidates, computing in float64 only those that may be the k-th; then prove that none was missed."""
    n, kept = t.shape
    i = torch.arange(n, device=t.device)[:, None].expand(n, kept)
    real = t > -OUTSIDE / 2
    j = torch.where(real, j, i)
    low, high = (torch.where(real, bound, torch.inf) for bound in bounds(t, screen, i, screen, j))
    weight = torch.where(real, points.weight[j], 0)
    # What was not kept lies no nearer than the farthest lower bound kept; a radius within that is proved.
    farthest = low.amax(1) if kept < n - 1 else torch.full_like(low[:, 0], torch.inf)
    wanted = torch.stack([k - (points.weight - 1) for k in ks])  # neighbours still needed after a point's own copies
    unsure = torch.zeros_like(real)
    for want in wanted:
        at_least, at_most = kth(low, weight, want), kth(high, weight, want)
        unsure |= (low <= at_most[:, None]) & (high >= at_least[:, None]) & (want > 0)[:, None] & real
    row, column = unsure.nonzero(as_tuple=True)
    low[row, column] = squared_distance(points.rows, row, points.rows, j[row, column])
    squared = torch.stack([kth(low, weight, want) for want in wanted])
    missed = (squared.amax(0) > farthest).nonzero()[:, 0]
    if len(missed) == 0:
        return Radii(squared, len(row))
    squared[:, missed], again = by_float64(points, missed, squared[:, missed].amax(0), wanted[:, missed])
    return Radii(squared, len(row) + again)


def kth(values: Float[Tensor, "n M"], weight: Int[Tensor, "n M"], want: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The smallest value at which the weights of those up to it reach ``want``; 0 where nothing is wanted.

    Examples:
      >>> kth(torch.tensor([[3.0, 1.0, 2.0]]).double(), torch.tensor([[1, 2, 1]]), torch.tensor([3]))
      tensor([2.], dtype=torch.float64)
    """
    value, order = values.sort(1)
    short = weight.gather(1, order).cumsum(1) < want[:, None]
    place = short.sum(1, keepdim=True)
    found = torch.where(place < value.shape[1], value.gather(1, place.clamp(max=value.shape[1] - 1)), torch.inf)[:, 0]
    return torch.where(want > 0, found, 0.0)


def by_float64(
    points: Points, missed: Int[Tensor, " m"], at_most: Float[Tensor, " m"], wanted: Int[Tensor, "k m"]
) -> tuple[Float[Tensor, "k m"], int]:
    """Radii of the rows that the float32 screen could not settle (clusters of near-duplicates), screened again in float64.

    Args:
      points: the set.
      missed: those rows.
      at_most: an upper bound on each one's largest squared radius.
      wanted: neighbours needed, by k.
    """
    found, pairs = torch.empty(wanted.shape, dtype=torch.float64, device=at_most.device), 0
    for start in range(0, len(missed), 64):
        some = slice(start, start + 64)
        row, other = within64(points.rows, missed[some], at_most[some])
        values = torch.full(
            (len(missed[some]), int(torch.bincount(row).max())), torch.inf, dtype=torch.float64, device=row.device
        )
        weights = torch.zeros(values.shape, dtype=torch.int64, device=row.device)
        place = torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)  # rows come in order
        values[row, place] = squared_distance(points.rows, missed[some][row], points.rows, other)
        weights[row, place] = points.weight[other]
        pairs += len(row)
        for of_k, want in enumerate(wanted[:, some]):
            found[of_k, some] = kth(values, weights, want)
    return found, pairs


def within64(
    rows: Float[Tensor, "U D"], mine: Int[Tensor, " m"], at_most: Float[Tensor, " m"]
) -> tuple[Int[Tensor, " P"], Int[Tensor, " P"]]:
    """Pairs (place in ``mine``, other point) that may lie within ``at_most`` of each other, in order of the first."""
    everyone, centre = torch.arange(len(rows), device=rows.device), rows[mine].double().mean(0)
    near = []
    for piece, others in zip(pieces(rows), torch.split(everyone, batch_rows(rows)), strict=True):
        low, _ = distance64(rows[mine], piece, centre)
        near.append((low <= at_most[:, None]) & (mine[:, None] != others))
    row, other = torch.cat(near, 1).nonzero(as_tuple=True)
    return row, other


def distance64(
    x: Float[Tensor, "R D"], y: Float[Tensor, "C D"], centre: Float[Tensor, " D"]
) -> tuple[Float[Tensor, "R C"], Float[Tensor, "R C"]]:
    """Lower and upper bounds on squared distances by a float64 product: 2^29 times narrower than the screen's."""
    a, b = x.double() - centre, y.double() - centre
    norms = a.square().sum(1)[:, None] + b.square().sum(1)
    squared = norms - 2 * (a @ b.T)
    error = 1.01 * 2**-53 * (2 * x.shape[1] + 24) * norms
    return squared - error, squared + error
