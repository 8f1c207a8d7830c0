"""A walk that is timed and not shipped: the logits are read once and written once, as a copy would.

A softmax needs the sum of a row before it can write the first probability, hence the shipped walk's second pass. But the row's
coefficient goes on the hidden states anyway, so the sum can go there too: exp(z - c) is written as it comes, with c the maximum of the
row's first block, and 1 / sum is handed back. bfloat16 has the range of float32, so c need only be within e^60 of the row's maximum; a
row that is not is flagged, and would have to be computed again (its log-sum-exp is infinite, never quietly wrong).

Shapes: C rows of the chunk, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from widen.kernels.stats import RowStats

LOWEST = tl.constexpr(-1e30)  # as in `widen.kernels.rows_triton`
LOG2E = tl.constexpr(1.4426950408889634)
ROOM = tl.constexpr(60.0)


class Once(NamedTuple):
    """How one program walks a row: ``block`` elements at a time by ``warps`` warps."""

    block: int
    warps: int


@triton.jit
@no_type_check
def _walk_once(
    z_ptr, target_ptr, lse_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr,
    V: tl.constexpr, PITCH: tl.constexpr, LANES: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """One row becomes exp(z - c), less its sum at the target; ``factor`` times it is softmax - onehot."""
    row = tl.program_id(0).to(tl.int64)
    z_row = z_ptr + row * PITCH
    target = tl.load(target_ptr + row).to(tl.int32)
    z_target = tl.load(z_row + target).to(tl.float32)
    inside = tl.arange(0, LANES)[:, None] * PACK + tl.arange(0, PACK)[None, :]
    first = tl.load(z_row + inside, mask=inside < V, other=-float("inf")).to(tl.float32)
    c = tl.maximum(tl.max(tl.max(first, axis=1), axis=0), z_target)
    c2 = c * LOG2E
    m = tl.full((LANES,), LOWEST, tl.float32)
    s = tl.zeros((LANES,), tl.float32)
    t = tl.zeros((LANES,), tl.float32)
    for start in range(0, V, LANES * PACK):
        column = start + inside
        z = tl.load(z_row + column, mask=column < V, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(z, axis=1))
        below = tl.maximum(z * LOG2E - c2, -1e4)  # exp2 of it is 0, and 0 times it is 0 where z is -inf
        e = tl.exp2(below)
        s += tl.sum(e, axis=1)
        t += tl.sum(e * below, axis=1)
        tl.store(z_row + column, e.to(z_ptr.dtype.element_ty), mask=column < PITCH)
    top = tl.max(m, axis=0)
    total = tl.sum(s, axis=0)
    fits = top - c < ROOM
    log_total = tl.log(total)
    lse = tl.where(fits, c + log_total, float("inf"))
    tl.store(lse_ptr + row, lse)
    tl.store(logq_ptr + row, z_target - lse)
    tl.store(entropy_ptr + row, log_total - tl.sum(t, axis=0) / (total * LOG2E))
    tl.store(top1_ptr + row, (z_target >= top).to(tl.float32))
    tl.store(factor_ptr + row, tl.where(fits, 1.0 / total, 0.0))
    tl.debug_barrier()  # the target's own number goes over what another thread has just stored
    tl.store(z_row + target, (tl.exp2(z_target * LOG2E - c2) - total).to(z_ptr.dtype.element_ty))


def describe_once(z_CV: Tensor, target_C: Tensor, stats: RowStats, once: Once, factor_C: Tensor) -> None:
    """Fill ``stats``; ``factor_C`` times the logits' new values is softmax - onehot, 0 for a row that must be computed again."""
    rows, vocabulary = z_CV.shape
    pack = 16 // z_CV.element_size()
    _walk_once[(rows,)](
        z_CV, target_C, stats.lse_C, stats.logq_C, stats.entropy_C, stats.top1_C, factor_C,
        V=vocabulary, PITCH=z_CV.stride(0), LANES=once.block // pack, PACK=pack, num_warps=once.warps,
    )  # fmt: skip


def launches(vocabulary: int) -> list[Once]:
    """The ways to walk that are tried at a vocabulary."""
    if vocabulary <= 2048:
        return [Once(128, 4)]
    sizes = [Once(4096, 8), Once(8192, 16), Once(8192, 8), Once(16384, 16), Once(16384, 32)]
    return sizes if vocabulary > 65536 else sizes[:4]


def new_factor(rows: int, like: Tensor) -> Tensor:
    """Room for the factor of each row."""
    return torch.empty(rows, device=like.device)
