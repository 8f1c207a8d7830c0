"""Triton kernels that turn a chunk of logits into row statistics and residuals, in place.

One program owns one row, so nothing is summed across programs and every result is reproducible. There are two softmax kernels:

- `softmax_two_reads` reads the row for its sum, then again to write softmax - onehot.
- `softmax_one_read` reads and writes the row once, like a copy. It writes exp(z - c) as it goes, with c the largest logit of the row's
  first block, and returns 1 / sum beside it: the coefficient of a row multiplies the hidden states anyway, and the sum goes there with it.
  bfloat16 and float32 hold exp(z - c) for logits up to 88 above c. Logits more than `ROOM` above c are rare; they are left as they are,
  and a second pass repairs the row. It divides what was written by a power of two, which loses no digit.

One read rounds the hidden states once more if the weight is 1; any other weight rounds them anyway. In bfloat16 the gradients of NLL
are then 1.3 times as far from float64's as eager's, those of c-Div as far as eager's.

Shapes: C rows of the chunk, V vocabulary. Rows are PITCH elements apart.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, no_type_check

import triton
import triton.language as tl

# Replaces -inf: the difference of two of them is 0, not nan. No real logit is this low.
LOWEST = tl.constexpr(-1e30)
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# How far a logit may lie above c. A row then sums to at most e^20 V, and 1 / sum times any reasonable weight is a normal float.
ROOM = tl.constexpr(20.0)
VANISHED = tl.constexpr(300.0)  # 2^-300 is 0 in float32


class Launch(NamedTuple):
    """How one program goes through a row: ``block`` elements at a time, with ``warps`` warps."""

    block: int
    warps: int


@cache  # Triton's integer functions cost the host as much as a launch
def launch_two_reads(vocabulary: int, itemsize: int) -> Launch:
    """The launch of `softmax_two_reads`.

    The second read should find the row in the L2 cache: the rows in flight, one per program, must stay well under its 50 or 60 MB on
    Hopper. With 1024 threads one program fills a multiprocessor, with 512 three fit: 132 rows of 256 kB, or 396 of 100 kB. Measured on an
    H200 in bfloat16, counting one read and one write: V=128,256 3.14 TB/s (block 32,768, 32 warps), 2.6-3.0 with smaller blocks;
    V=49,152 3.12 TB/s (8,192, 16), 2.3-2.8 with others.
    """
    if vocabulary <= 2048:
        return Launch(block=max(128, triton.next_power_of_2(vocabulary)), warps=4)
    if vocabulary <= 16384:
        return Launch(block=8192 // itemsize, warps=8)
    return (
        Launch(block=16384 // itemsize, warps=16) if vocabulary <= 65536 else Launch(block=65536 // itemsize, warps=32)
    )


@cache
def launch_one_read(vocabulary: int, itemsize: int) -> Launch:
    """The launch of `softmax_one_read`.

    The largest block whose last one is not mostly empty, since the empty part is computed too, with at most 32 blocks per row (the bits
    of ``left``). On an H200 in bfloat16, over the time of a copy of as many bytes: V=128,256 1.11 (block 16,384), 1.14-1.28 with others;
    V=49,152 1.08 (16,384), 1.09-1.42 with others; V=50,304 1.08 (4,096), 1.60 with 16,384, whose fourth block holds 1,152 elements.
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
def _exp(x):
    return tl.exp2(x * LOG2E)  # a third of the instructions of tl.exp, which keeps denormals


@triton.jit
@no_type_check
def _tanh(x):
    # exp(-2|x|) cannot overflow. The interpreter does not have libdevice's tanh.
    e = _exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0, -t, t)


@triton.jit
@no_type_check
def softmax_two_reads(
    z_ptr, target_ptr, lse_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr, cap,
    V: tl.constexpr, PITCH: tl.constexpr, CAPPED: tl.constexpr, FULL: tl.constexpr, RESIDUAL: tl.constexpr,
    LANES: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """One row: log-sum-exp and log q; with FULL also entropy and top-1; with RESIDUAL the row becomes softmax - onehot."""
    row = tl.program_id(0).to(tl.int64)
    z_row = z_ptr + row * PITCH
    target = tl.load(target_ptr + row).to(tl.int32)
    z_target = tl.load(z_row + target).to(tl.float32)
    if CAPPED:
        z_target = cap * _tanh(z_target / cap)

    # A thread loads PACK neighbours, 16 bytes, at once. Maximum m, sum s and first moment t are kept per lane and merged at the end:
    # reducing over the whole program in every step would stall the loads behind a barrier.
    inside = tl.arange(0, LANES)[:, None] * PACK + tl.arange(0, PACK)[None, :]
    m = tl.full((LANES,), LOWEST, tl.float32)
    s = tl.zeros((LANES,), tl.float32)
    t = tl.zeros((LANES,), tl.float32)
    for start in range(0, V, LANES * PACK):
        column = start + inside
        z = tl.load(z_row + column, mask=column < PITCH, other=0.0).to(tl.float32)
        if CAPPED:
            z = cap * _tanh(z / cap)
        z = tl.where((column < V) & ~(z < LOWEST), z, LOWEST)  # a nan passes and makes the row's sums nan
        higher = tl.maximum(m, tl.max(z, axis=1))
        drop = m - higher
        shrink = _exp(drop)
        below = z - higher[:, None]
        e = _exp(below)
        if FULL:
            t = shrink * (t + drop * s) + tl.sum(e * below, axis=1)
        s = shrink * s + tl.sum(e, axis=1)
        m = higher
    top = tl.max(m, axis=0)
    shrink = _exp(m - top)
    total = tl.sum(shrink * s, axis=0)
    log_total = tl.log(total)
    lse = top + log_total
    tl.store(lse_ptr + row, lse)
    tl.store(logq_ptr + row, z_target - lse)
    if FULL:
        moment = tl.sum(shrink * (t + (m - top) * s), axis=0)
        tl.store(entropy_ptr + row, log_total - moment / total)
        tl.store(top1_ptr + row, (z_target >= top).to(tl.float32))
        tl.store(factor_ptr + row, 1.0)
    if RESIDUAL:
        for start in range(0, V, LANES * PACK):
            column = start + inside
            z = tl.load(z_row + column, mask=column < PITCH, other=-float("inf")).to(tl.float32)
            r = _residual(z, column, target, start, lse, cap, V, PITCH, CAPPED, LANES * PACK)
            tl.store(z_row + column, r.to(z_ptr.dtype.element_ty), mask=column < PITCH)


@triton.jit
@no_type_check
def _residual(
    z, column, target, start, lse, cap,
    V: tl.constexpr, PITCH: tl.constexpr, CAPPED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Derivative of -log q by the raw logits: softmax - onehot, times the slope of the soft cap; 0 in the padding of the row."""
    bent = z
    if CAPPED:
        bent = _tanh(z / cap)
        z = cap * bent
    r = _exp(z - lse)
    if (target >= start) & (target < start + BLOCK):  # only one block per row pays for the comparison
        r -= tl.where(column == target, 1.0, 0.0)
    if CAPPED:
        r *= 1.0 - bent * bent
    if V != PITCH:
        r = tl.where(column < V, r, 0.0)
    return r


@triton.jit
@no_type_check
def overwrite_with_residual(
    z_ptr, target_ptr, lse_ptr, coefficient_ptr, cap,
    V: tl.constexpr, PITCH: tl.constexpr, CAPPED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of one row whose log-sum-exp is known: the logits become coefficient * (softmax - onehot)."""
    row = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * BLOCK
    column = start + tl.arange(0, BLOCK)
    at = z_ptr + row * PITCH + column
    z = tl.load(at, mask=column < PITCH, other=-float("inf")).to(tl.float32)
    target = tl.load(target_ptr + row).to(tl.int32)
    r = _residual(z, column, target, start, tl.load(lse_ptr + row), cap, V, PITCH, CAPPED, BLOCK)
    tl.store(at, (tl.load(coefficient_ptr + row) * r).to(z_ptr.dtype.element_ty), mask=column < PITCH)


@triton.jit
@no_type_check
def _exp2(z, c, j):
    """exp(z - c) / 2^j, and its logarithm to the base 2."""
    # Clamp to -1e4: exp2 of it is 0, and 0 times it is 0, also where z is -inf. A nan passes.
    below = tl.maximum((z - c) * LOG2E - j, -1e4, propagate_nan=tl.PropagateNan.ALL)
    return tl.exp2(below), below


@triton.jit
@no_type_check
def softmax_one_read(
    z_ptr, target_ptr, lse_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr,
    V: tl.constexpr, PITCH: tl.constexpr, LANES: tl.constexpr, PACK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """One row becomes exp(z - c), minus its sum at the target; ``factor`` times that is softmax - onehot."""
    row = tl.program_id(0).to(tl.int64)
    z_row = z_ptr + row * PITCH
    target = tl.load(target_ptr + row).to(tl.int32)
    z_target = tl.load(z_row + target).to(tl.float32)
    # a thread loads PACK neighbours, 16 bytes, at once
    inside = tl.arange(0, LANES)[:, None] * PACK + tl.arange(0, PACK)[None, :]
    # Mask by the padded row: with an odd V as the mask, the row would be read one element at a time.
    first = tl.load(z_row + inside, mask=inside < PITCH, other=-float("inf")).to(tl.float32)
    if V != PITCH:
        first = tl.where(inside < V, first, -float("inf"))
    c = tl.maximum(tl.maximum(tl.max(tl.max(first, axis=1), axis=0), z_target), LOWEST)
    j = tl.full((), 0.0, tl.float32)

    # Everything is kept per lane, also which blocks of a lane are too high: reducing over the whole program in every step would stall the
    # loads behind a barrier, and cost half as much as the second read that this kernel avoids.
    m = tl.full((LANES,), LOWEST, tl.float32)
    s = tl.zeros((LANES,), tl.float32)
    t = tl.zeros((LANES,), tl.float32)
    left = tl.zeros((LANES,), tl.int32)  # bit i: block i of the lane still holds logits
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

    if BLOCKS > 1:  # noqa: SIM102  a compile-time condition, unlike the next: in a row of one block nothing lies above c
        if top > c + ROOM:
            j = tl.minimum(tl.ceil((top - c) * LOG2E), VANISHED)
            shrink = tl.exp2(-j)
            t = shrink * (t - j * s)
            s = shrink * s
            # If everything written so far vanishes, c is free: choose the row's maximum.
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
    # The target's entry is the largest of the row, and its rounding would be the largest error. The factor compensates for it:
    # factor * entry is p - 1 in float32.
    e_target, _ = _exp2(z_target, c, j)
    entry = e_target - total
    rounded = entry.to(z_ptr.dtype.element_ty)
    sure = rounded.to(tl.float32) == 0.0  # p is 1
    tl.store(factor_ptr + row, tl.where(sure, 1.0, entry) / (tl.where(sure, 1.0, rounded.to(tl.float32)) * total))
    tl.debug_barrier()  # the next store overwrites what another thread has just stored
    tl.store(z_row + target, rounded)
