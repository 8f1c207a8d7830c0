"""Triton kernels that turn a chunk of logits into row statistics and residuals, in place.

One program owns one row, so nothing is summed across programs and every result is reproducible. There are two kernels:

- `softmax_two_reads` reads the row for its sums, then again to write its residual: any that `RowOps` has.
- `softmax_one_read` reads and writes the row once, like a copy, for the residual softmax(z / tau) - onehot. It writes exp((z - c) / tau) as
  it goes, with c the largest logit of the row's first block, and returns 1 / sum beside it: the coefficient of a row multiplies the hidden
  states anyway, and the sum goes there with it. For tau other than 1, log q and the entropy come from sums of exp(z - c) in the same read.
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
    Hopper. Measured on an H200 in bfloat16, counting one read and one write: V=128,256 3.14 TB/s (block 32,768, 32 warps), 2.6-3.0 with
    smaller blocks; V=49,152 3.12 TB/s (8,192, 16), 2.3-2.8 with others.
    """
    if vocabulary <= 2048:
        return Launch(block=max(128, triton.next_power_of_2(vocabulary)), warps=4)
    if vocabulary <= 16384:
        return Launch(block=8192 // itemsize, warps=8)
    if vocabulary <= 65536:
        return Launch(block=16384 // itemsize, warps=16)
    return Launch(block=65536 // itemsize, warps=32)


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
    z_ptr, target_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr, value_ptr, cap, tau, smooth, bonus,
    V: tl.constexpr, PITCH: tl.constexpr, CAPPED: tl.constexpr, RESIDUAL: tl.constexpr,
    TEMPERED: tl.constexpr, SMOOTHED: tl.constexpr, BONUS: tl.constexpr, LANES: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """One row: its statistics; with RESIDUAL the row becomes its residual. TEMPERED: tau is not 1; SMOOTHED, BONUS: the term is there."""
    row = tl.program_id(0).to(tl.int64)
    z_row = z_ptr + row * PITCH
    target = tl.load(target_ptr + row).to(tl.int32)
    z_target = tl.load(z_row + target).to(tl.float32)
    if CAPPED:
        z_target = cap * _tanh(z_target / cap)

    # A thread loads PACK neighbours, 16 bytes, at once. Maximum m, sum s and first moment t are kept per lane and merged at the end:
    # reducing over the whole program in every step would stall the loads behind a barrier. u sums exp((z - m) / tau), d sums z - z_target.
    inside = tl.arange(0, LANES)[:, None] * PACK + tl.arange(0, PACK)[None, :]
    m = tl.full((LANES,), LOWEST, tl.float32)
    s = tl.zeros((LANES,), tl.float32)
    t = tl.zeros((LANES,), tl.float32)
    u = tl.zeros((LANES,), tl.float32)
    d = tl.zeros((LANES,), tl.float32)
    for start in range(0, V, LANES * PACK):
        column = start + inside
        z = tl.load(z_row + column, mask=column < PITCH, other=0.0).to(tl.float32)
        if CAPPED:
            z = cap * _tanh(z / cap)
        if SMOOTHED:
            d += tl.sum(tl.where(column < V, z - z_target, 0.0), axis=1)
        z = tl.where((column < V) & ~(z < LOWEST), z, LOWEST)  # a nan passes and makes the row's sums nan
        higher = tl.maximum(m, tl.max(z, axis=1))
        drop = m - higher
        shrink = _exp(drop)
        below = z - higher[:, None]
        e = _exp(below)
        t = shrink * (t + drop * s) + tl.sum(e * below, axis=1)
        s = shrink * s + tl.sum(e, axis=1)
        if TEMPERED:
            u = _exp(drop / tau) * u + tl.sum(_exp(below / tau), axis=1)
        m = higher
    top = tl.max(m, axis=0)
    shrink = _exp(m - top)
    total = tl.sum(shrink * s, axis=0)
    log_total = tl.log(total)
    lse = top + log_total
    entropy = log_total - tl.sum(shrink * (t + (m - top) * s), axis=0) / total
    lse_tau = lse  # tau times the log-sum-exp of z / tau
    if TEMPERED:
        lse_tau = top + tau * tl.log(tl.sum(_exp((m - top) / tau) * u, axis=0))
    tl.store(logq_ptr + row, z_target - lse)
    tl.store(entropy_ptr + row, entropy)
    tl.store(top1_ptr + row, (z_target >= top).to(tl.float32))
    tl.store(factor_ptr + row, 1.0)
    if TEMPERED or SMOOTHED or BONUS:
        value = z_target - lse_tau
        if SMOOTHED:
            value += smooth * tl.sum(d, axis=0) / V
        if BONUS:
            value += bonus * entropy
        tl.store(value_ptr + row, value)
    if RESIDUAL:
        for start in range(0, V, LANES * PACK):
            column = start + inside
            z = tl.load(z_row + column, mask=column < PITCH, other=-float("inf")).to(tl.float32)
            bent = z
            if CAPPED:
                bent = _tanh(z / cap)
                z = cap * bent
            if TEMPERED:
                r = _exp((z - lse_tau) / tau)
            else:
                r = _exp(z - lse)
            if BONUS:
                logp = tl.maximum(z - lse, -1e4, propagate_nan=tl.PropagateNan.ALL)  # 0 * -inf would be nan
                r += bonus * _exp(logp) * (logp + entropy)
            if SMOOTHED:
                r -= smooth / V
            if (target >= start) & (target < start + LANES * PACK):  # only one block per row pays for the comparison
                if SMOOTHED:
                    r -= tl.where(column == target, 1.0 - smooth, 0.0)
                else:
                    r -= tl.where(column == target, 1.0, 0.0)
            if CAPPED:
                r *= 1.0 - bent * bent
            if V != PITCH:
                r = tl.where(column < V, r, 0.0)
            tl.store(z_row + column, r.to(z_ptr.dtype.element_ty), mask=column < PITCH)


@triton.jit
@no_type_check
def _exp2(z, c, j, rate):
    """exp(z - c) / 2^j if ``rate`` is log2(e), and its logarithm to the base 2; exp((z - c) / tau) if the rate is 1 / tau of that."""
    # Clamp to -1e4: exp2 of it is 0, and 0 times it is 0, also where z is -inf. A nan passes.
    below = tl.maximum((z - c) * rate - j, -1e4, propagate_nan=tl.PropagateNan.ALL)
    return tl.exp2(below), below


@triton.jit
@no_type_check
def softmax_one_read(
    z_ptr, target_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr, value_ptr, tau,
    V: tl.constexpr, PITCH: tl.constexpr, TEMPERED: tl.constexpr, LANES: tl.constexpr, PACK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """One row becomes exp((z - c) / tau), minus its sum at the target; ``factor`` times that is softmax(z / tau) - onehot.

    TEMPERED: tau is not 1. The sums of exp(z - c), from which log q and the entropy come, are then others than those of the row.
    """
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
    rate, room = LOG2E, ROOM
    if TEMPERED:
        rate, room = LOG2E / tau, ROOM * tl.minimum(tau, 1.0)

    # Everything is kept per lane, also which blocks of a lane are too high: reducing over the whole program in every step would stall the
    # loads behind a barrier, and cost half as much as the second read that this kernel avoids.
    m = tl.full((LANES,), LOWEST, tl.float32)
    s = tl.zeros((LANES,), tl.float32)  # of exp(z - c)
    t = tl.zeros((LANES,), tl.float32)
    u = tl.zeros((LANES,), tl.float32)  # of exp((z - c) / tau)
    left = tl.zeros((LANES,), tl.int32)  # bit i: block i of the lane still holds logits
    for i in range(0, BLOCKS):
        column = i * LANES * PACK + inside
        z = tl.load(z_row + column, mask=column < PITCH, other=-float("inf")).to(tl.float32)
        if V != PITCH:
            z = tl.where(column < V, z, -float("inf"))
        highest = tl.max(z, axis=1)
        m = tl.maximum(m, highest)
        high = highest > c + room
        left |= high.to(tl.int32) << i
        e, below = _exp2(z, c, 0.0, LOG2E)
        s += tl.where(high, 0.0, tl.sum(e, axis=1))
        t += tl.where(high, 0.0, tl.sum(e * below, axis=1))
        if TEMPERED:
            e, below = _exp2(z, c, 0.0, rate)
            u += tl.where(high, 0.0, tl.sum(e, axis=1))
        tl.store(z_row + column, tl.where(high[:, None], z, e).to(z_ptr.dtype.element_ty), mask=column < PITCH)
    top = tl.max(m, axis=0)
    b = c  # s and t are relative to b

    if BLOCKS > 1:  # noqa: SIM102  a compile-time condition, unlike the next: in a row of one block nothing lies above c
        if top > c + room:
            j = tl.minimum(tl.ceil((top - c) * rate), VANISHED)
            shrink = tl.exp2(-j)
            if TEMPERED:
                u = shrink * u
                drop = tl.maximum((c - top) * LOG2E, -VANISHED)
                t = tl.exp2(drop) * (t + drop * s)
                s = tl.exp2(drop) * s
                b = top
            else:
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
                z = tl.where(high, x, -float("inf"))
                e, below = _exp2(z, c, j, rate)
                if TEMPERED:
                    u += tl.sum(e, axis=1)
                    p, below = _exp2(z, b, 0.0, LOG2E)
                    s += tl.sum(p, axis=1)
                    t += tl.sum(p * below, axis=1)
                else:
                    s += tl.sum(e, axis=1)
                    t += tl.sum(e * below, axis=1)
                e += tl.where(high, 0.0, x) * shrink
                tl.store(z_row + column, e.to(z_ptr.dtype.element_ty), mask=column < PITCH)

    total = tl.sum(s, axis=0)
    log_total = tl.log(total)
    written = total  # the sum of the row
    if TEMPERED:
        written = tl.sum(u, axis=0)
        tl.store(logq_ptr + row, (z_target - b) - log_total)
        tl.store(value_ptr + row, (z_target - c) - tau * (tl.log(written) + j * LN2))
    else:
        tl.store(logq_ptr + row, (z_target - c) - (log_total + j * LN2))
    tl.store(entropy_ptr + row, log_total - tl.sum(t, axis=0) * LN2 / total)
    tl.store(top1_ptr + row, (z_target >= top).to(tl.float32))
    # The target's entry is the largest of the row, and its rounding would be the largest error. The factor compensates for it:
    # factor * entry is p - 1 in float32.
    e_target, _ = _exp2(z_target, c, j, rate)
    entry = e_target - written
    rounded = entry.to(z_ptr.dtype.element_ty)
    sure = rounded.to(tl.float32) == 0.0  # p is 1
    tl.store(factor_ptr + row, tl.where(sure, 1.0, entry) / (tl.where(sure, 1.0, rounded.to(tl.float32)) * written))
    tl.debug_barrier()  # the next store overwrites what another thread has just stored
    tl.store(z_row + target, rounded)
