"""The walk over a chunk of logits as a Triton kernel that reads them once and writes them once, as a copy would.

A softmax wants the sum of a row before it can write the first probability, hence a second read in `rows_triton`'s walk. But the row's
weight goes on the hidden states anyway, and the sum can go there with it: exp(z - c) is written as it comes, with c the largest logit of
the row's first block, and 1 / sum is handed back beside it. bfloat16 and float32 hold exp(z - c) for any logit up to 88 above c. Logits
that lie more than `ROOM` above it, which a model hardly ever has, are left as they are; a row with any of them is put right by a second
walk, in which what was written is divided by a power of two, and so loses no digit.

What it costs in digits: the hidden states are rounded once more where the weight is 1 (any other weight rounds them anyway). In bfloat16
the gradients of NLL are then 1.3 times as far from float64's as eager's, those of c-Div as far as eager's.

Shapes: C rows of the chunk, V vocabulary.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, no_type_check

import triton
import triton.language as tl
from torch import Tensor

from .stats import RowStats

# Stands in for -inf: a difference of two of them is 0 instead of nan, and exp() of any real logit minus it never occurs.
LOWEST = tl.constexpr(-1e30)
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# How far a logit may lie above c: e^20 V is the most that a row sums up to, and 1 over it, times any weight worth a name, is a float.
ROOM = tl.constexpr(20.0)
VANISHED = tl.constexpr(300.0)  # 2^-300 is 0 in float32


class Launch(NamedTuple):
    """How one program walks a row: ``block`` elements at a time, by ``warps`` warps."""

    block: int
    warps: int


@cache  # Triton's own integer functions take the host as long as a launch of PyTorch's
def launch_for(vocabulary: int, itemsize: int) -> Launch:
    """The launch for a row of logits.

    The largest block whose last one is not mostly empty, since what lies beyond the row is computed too, of at most 32 (the bits of
    ``left``). On an H200 in bfloat16, against a copy of as many bytes: V=128,256 1.11 so (block 16,384), 1.14-1.28 otherwise; V=49,152
    1.08 so (16,384), 1.09-1.42 otherwise; V=50,304 1.08 so (4,096), 1.60 with blocks of 16,384, the fourth of which holds 1,152.
    """
    if vocabulary <= 2048:
        return Launch(block=max(128, triton.next_power_of_2(vocabulary)), warps=4)
    sizes = [size // itemsize for size in (32768, 16384, 8192)] if vocabulary > 16384 else [8192 // itemsize]
    fitting = [size for size in sizes if triton.cdiv(vocabulary, size) <= 32] or [
        triton.next_power_of_2(triton.cdiv(vocabulary, 32))
    ]
    empty = [-vocabulary % size for size in fitting]
    full = [size for size, rest in zip(fitting, empty, strict=True) if rest <= vocabulary // 25]
    block = full[0] if full else fitting[empty.index(min(empty))]
    return Launch(block=block, warps=16 if block * itemsize >= 32768 else 8)


@triton.jit
@no_type_check
def _exp2(z, c, j):
    """exp(z - c) / 2^j, and its logarithm to the base 2."""
    # At least -1e4: exp2 of it is 0, and 0 times it is 0 where z is -inf. A nan passes.
    below = tl.maximum((z - c) * LOG2E - j, -1e4, propagate_nan=tl.PropagateNan.ALL)
    return tl.exp2(below), below


@triton.jit
@no_type_check
def _walk_once(
    z_ptr, target_ptr, lse_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr,
    V: tl.constexpr, PITCH: tl.constexpr, LANES: tl.constexpr, PACK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """One row becomes exp(z - c), less its sum at the target; ``factor`` times it is softmax - onehot."""
    row = tl.program_id(0).to(tl.int64)
    z_row = z_ptr + row * PITCH
    target = tl.load(target_ptr + row).to(tl.int32)
    z_target = tl.load(z_row + target).to(tl.float32)
    # PACK neighbours: one 16-byte load of a thread
    inside = tl.arange(0, LANES)[:, None] * PACK + tl.arange(0, PACK)[None, :]
    # The mask is that of the padded row: V may be odd, and would have the row read one element at a time.
    first = tl.load(z_row + inside, mask=inside < PITCH, other=-float("inf")).to(tl.float32)
    if V != PITCH:
        first = tl.where(inside < V, first, -float("inf"))
    c = tl.maximum(tl.maximum(tl.max(tl.max(first, axis=1), axis=0), z_target), LOWEST)
    j = tl.full((), 0.0, tl.float32)

    # All is kept per lane, which lanes are too high included: a reduction over the whole program in every step would stall the loads
    # behind a barrier, and cost as much as half the second read that this walk is there to save.
    m = tl.full((LANES,), LOWEST, tl.float32)
    s = tl.zeros((LANES,), tl.float32)
    t = tl.zeros((LANES,), tl.float32)
    left = tl.zeros((LANES,), tl.int32)  # bit i: the lane was left as it is in block i
    for i in range(0, BLOCKS):
        column = i * LANES * PACK + inside
        z = tl.load(z_row + column, mask=column < PITCH, other=-float("inf")).to(tl.float32)
        if V != PITCH:
            z = tl.where(column < V, z, -float("inf"))
        highest = tl.max(z, axis=1)
        m = tl.maximum(m, highest)
        high = highest > c + ROOM
        left |= high.to(tl.int32) << i
        e, below = _exp2(z, c, 0.0)
        s += tl.where(high, 0.0, tl.sum(e, axis=1))
        t += tl.where(high, 0.0, tl.sum(e * below, axis=1))
        tl.store(z_row + column, tl.where(high[:, None], z, e).to(z_ptr.dtype.element_ty), mask=column < PITCH)
    top = tl.max(m, axis=0)

    if BLOCKS > 1:  # noqa: SIM102  known when it is compiled, as the next is not: a row of one block has nothing above c
        if top > c + ROOM:
            j = tl.minimum(tl.ceil((top - c) * LOG2E), VANISHED)
            shrink = tl.exp2(-j)
            t = shrink * (t - j * s)
            s = shrink * s
            # Where nothing is left of what was written c is free, and goes near the logits that count.
            c = tl.where(j < VANISHED, c, top)
            j = tl.where(j < VANISHED, j, 0.0)
            tl.debug_barrier()
            for i in range(0, BLOCKS):
                column = i * LANES * PACK + inside
                x = tl.load(z_row + column, mask=column < PITCH, other=0.0).to(tl.float32)
                high = (((left >> i) & 1) != 0)[:, None]
                e, below = _exp2(tl.where(high, x, -float("inf")), c, j)
                s += tl.sum(e, axis=1)
                t += tl.sum(e * below, axis=1)
                e += tl.where(high, 0.0, x) * shrink
                tl.store(z_row + column, e.to(z_ptr.dtype.element_ty), mask=column < PITCH)

    total = tl.sum(s, axis=0)
    log_total = tl.log(total)
    tl.store(lse_ptr + row, c + (log_total + j * LN2))
    tl.store(logq_ptr + row, (z_target - c) - (log_total + j * LN2))
    tl.store(entropy_ptr + row, log_total - tl.sum(t, axis=0) * LN2 / total)
    tl.store(top1_ptr + row, (z_target >= top).to(tl.float32))
    # The target's entry is the largest of the row, and as a multiple of the sum it is rounded where p - 1 is often all but -1. So the
    # factor makes up for its rounding: factor * entry is p - 1 in float32.
    e_target, _ = _exp2(z_target, c, j)
    entry = e_target - total
    rounded = entry.to(z_ptr.dtype.element_ty)
    sure = rounded.to(tl.float32) == 0.0  # p is 1
    tl.store(factor_ptr + row, tl.where(sure, 1.0, entry) / (tl.where(sure, 1.0, rounded.to(tl.float32)) * total))
    tl.debug_barrier()  # the target's own number goes over what another thread has just stored
    tl.store(z_row + target, rounded)


def describe_once(z_CV: Tensor, target_C: Tensor, stats: RowStats) -> None:
    """Fill ``stats``; its ``factor_C`` times what the logits become is softmax - onehot."""
    rows, vocabulary = z_CV.shape
    if rows == 0:
        return
    block, warps = launch_for(vocabulary, z_CV.element_size())
    pack = 16 // z_CV.element_size()
    _walk_once[(rows,)](
        z_CV, target_C, *stats,
        V=vocabulary, PITCH=z_CV.stride(0), LANES=block // pack, PACK=pack, BLOCKS=-(-vocabulary // block), num_warps=warps,
    )  # fmt: skip
