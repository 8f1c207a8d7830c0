"""A walk that is timed and not shipped: a row of bfloat16 logits stays in registers, whole or in part, instead of coming back from L2.

Alone it is up to a tenth faster than the shipped walk at V of about 50,000; between the products that gain is not seen, and at
V = 128,256 it is slower (results/head_variants_*.md). Two neighbours travel as one 32-bit integer: held as separate numbers, a row of
49,152 would take twice the registers that a program has.

Shapes: C rows of the chunk, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from widen.head.stats import RowStats

LOWEST = tl.constexpr(-1e30)  # as in `widen.head.rows_triton`
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


class Hold(NamedTuple):
    """How one program walks a row: ``block`` elements at a time by ``warps`` warps, the first ``held`` blocks kept in registers.

    ``registers`` caps those of a thread (0 leaves the choice to the compiler); ``evict`` tells L2 which blocks will come back.
    """

    block: int
    warps: int
    held: int
    registers: int = 0
    evict: bool = True


@triton.jit
@no_type_check
def _low(x):
    return (x << 16).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def _high(x):
    return (x & -65536).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def _log2(z, column, V: tl.constexpr, INSIDE: tl.constexpr):
    """Logits to the base 2; LOWEST beyond the vocabulary and in place of -inf, whose 0 * -inf is nan. A nan passes."""
    z = tl.maximum(z * LOG2E, LOWEST, propagate_nan=tl.PropagateNan.ALL)
    return z if INSIDE else tl.where(column < V, z, LOWEST)


@triton.jit
@no_type_check
def _absorb(x, pair, m, s, t, V: tl.constexpr, INSIDE: tl.constexpr):
    """Maximum, sum and first moment of each lane after one block more, to the base 2."""
    low, high = _log2(_low(x), 2 * pair, V, INSIDE), _log2(_high(x), 2 * pair + 1, V, INSIDE)
    higher = tl.maximum(m, tl.max(tl.maximum(low, high), axis=1))
    drop = m - higher
    shrink = tl.exp2(drop)
    low -= higher[:, None]
    high -= higher[:, None]
    e_low, e_high = tl.exp2(low), tl.exp2(high)
    t = shrink * (t + drop * s) + tl.sum(e_low * low + e_high * high, axis=1)
    s = shrink * s + tl.sum(e_low + e_high, axis=1)
    return higher, s, t


@triton.jit
@no_type_check
def _softmax(x, pair, lse2, V: tl.constexpr, INSIDE: tl.constexpr):
    """A block of logits as probabilities, packed again; 0 beyond the vocabulary."""
    low, high = tl.exp2(_low(x) * LOG2E - lse2), tl.exp2(_high(x) * LOG2E - lse2)
    if not INSIDE:
        low, high = tl.where(2 * pair < V, low, 0.0), tl.where(2 * pair + 1 < V, high, 0.0)
    low = low.to(tl.bfloat16).to(tl.uint16, bitcast=True).to(tl.uint32)
    high = high.to(tl.bfloat16).to(tl.uint16, bitcast=True).to(tl.uint32)
    return (low | (high << 16)).to(tl.int32, bitcast=True)


@triton.jit(do_not_specialize=["zero"])
@no_type_check
def _walk_held(
    z_ptr, x_ptr, target_ptr, lse_ptr, logq_ptr, entropy_ptr, top1_ptr, rows, zero,
    V: tl.constexpr, PITCH: tl.constexpr, LANES: tl.constexpr, HELD: tl.constexpr, EVICT: tl.constexpr, PERSIST: tl.constexpr,
):  # fmt: skip
    """Rows become softmax - onehot; log-sum-exp, log q, entropy and top-1 of each are stored.

    ``x_ptr`` is ``z_ptr`` as integers: a cast in here would forget that rows are aligned, and with it the 16-byte loads.
    """
    if PERSIST:
        for start in range(0, rows - tl.program_id(0), tl.num_programs(0)):
            _one_row(
                tl.program_id(0) + start, z_ptr, x_ptr, target_ptr, lse_ptr, logq_ptr, entropy_ptr, top1_ptr, zero,
                V, PITCH, LANES, HELD, EVICT,
            )  # fmt: skip
    else:
        _one_row(
            tl.program_id(0), z_ptr, x_ptr, target_ptr, lse_ptr, logq_ptr, entropy_ptr, top1_ptr, zero,
            V, PITCH, LANES, HELD, EVICT,
        )  # fmt: skip


@triton.jit
@no_type_check
def _one_row(
    row, z_ptr, x_ptr, target_ptr, lse_ptr, logq_ptr, entropy_ptr, top1_ptr, zero,
    V: tl.constexpr, PITCH: tl.constexpr, LANES: tl.constexpr, HELD: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    KEEP: tl.constexpr = "evict_last" if EVICT else ""
    DROP: tl.constexpr = "evict_first" if EVICT else ""
    PAIRS: tl.constexpr = LANES * 4  # four pairs are one 16-byte load of one thread
    BLOCKS: tl.constexpr = (PITCH // 2 + PAIRS - 1) // PAIRS
    UNROLLED: tl.constexpr = BLOCKS - HELD <= 8
    row = row.to(tl.int64)
    z_row = z_ptr + row * PITCH
    target = tl.load(target_ptr + row).to(tl.int32)
    z_target = tl.load(z_row + target).to(tl.float32)
    x_row = x_ptr + row * (PITCH // 2)
    inside = tl.arange(0, LANES)[:, None] * 4 + tl.arange(0, 4)[None, :]
    m = tl.full((LANES,), LOWEST, tl.float32)
    s = tl.zeros((LANES,), tl.float32)
    t = tl.zeros((LANES,), tl.float32)
    held = ()
    for i in tl.static_range(HELD):
        pair = i * PAIRS + inside
        x = tl.load(x_row + pair, mask=pair < PITCH // 2, other=0, eviction_policy=DROP)
        held = held + (x,)  # noqa: RUF005
    for i in tl.static_range(HELD):
        m, s, t = _absorb(held[i], i * PAIRS + inside, m, s, t, V, (i + 1) * 2 * PAIRS <= V)
    if UNROLLED:  # several loads in flight at once
        for i in tl.static_range(HELD, BLOCKS):
            pair = i * PAIRS + inside
            x = tl.load(x_row + pair, mask=pair < PITCH // 2, other=0, eviction_policy=KEEP)
            m, s, t = _absorb(x, pair, m, s, t, V, (i + 1) * 2 * PAIRS <= V)
    else:
        for start in range(HELD * PAIRS, PITCH // 2, PAIRS):
            pair = start + inside
            x = tl.load(x_row + pair, mask=pair < PITCH // 2, other=0, eviction_policy=KEEP)
            m, s, t = _absorb(x, pair, m, s, t, V, False)
    top = tl.max(m, axis=0)
    shrink = tl.exp2(m - top)
    total = tl.sum(shrink * s, axis=0)
    moment = tl.sum(shrink * (t + (m - top) * s), axis=0)
    log_total = tl.log(total)
    lse = top * LN2 + log_total
    lse2 = top + tl.log2(total)
    tl.store(lse_ptr + row, lse)
    tl.store(logq_ptr + row, z_target - lse)
    tl.store(entropy_ptr + row, log_total - LN2 * moment / total)
    tl.store(top1_ptr + row, (z_target * LOG2E >= top).to(tl.int8))
    if UNROLLED:
        for i in tl.static_range(HELD, BLOCKS):
            pair = i * PAIRS + inside
            x = tl.load(x_row + pair, mask=pair < PITCH // 2, other=0, eviction_policy=DROP)
            p = _softmax(x, pair, lse2, V, (i + 1) * 2 * PAIRS <= V)
            tl.store(x_row + pair, p, mask=pair < PITCH // 2, eviction_policy=DROP)
    else:
        for start in range(HELD * PAIRS, PITCH // 2, PAIRS):
            pair = start + inside
            x = tl.load(x_row + pair, mask=pair < PITCH // 2, other=0, eviction_policy=DROP)
            p = _softmax(x, pair, lse2, V, False)
            tl.store(x_row + pair, p, mask=pair < PITCH // 2, eviction_policy=DROP)
    for i in tl.static_range(HELD):
        pair = i * PAIRS + inside
        # `zero` is 0, which the compiler cannot know: it would keep the float32 of the first use instead, twice the registers.
        p = _softmax(held[i] ^ zero, pair, lse2, V, (i + 1) * 2 * PAIRS <= V)
        tl.store(x_row + pair, p, mask=pair < PITCH // 2, eviction_policy=DROP)
    tl.debug_barrier()  # the target's own number goes over what another thread has just stored
    tl.store(z_row + target, (tl.exp2(z_target * LOG2E - lse2) - 1.0).to(tl.bfloat16))


def describe_held(z_CV: Tensor, target_C: Tensor, stats: RowStats, hold: Hold, *, programs: int = 0) -> None:
    """Fill ``stats`` and turn the logits into softmax - onehot; with ``programs`` only that many are at work at a time."""
    rows, vocabulary = z_CV.shape
    extra = {"maxnreg": hold.registers} if hold.registers else {}
    stats.factor_C.fill_(1)
    pitch = z_CV.stride(0)
    x_CP = z_CV.as_strided((rows, pitch), (pitch, 1)).view(torch.int32)  # the padding too: V may be odd
    _walk_held[(programs or rows,)](
        z_CV, x_CP, target_C, stats.lse_C, stats.logq_C, stats.entropy_C, stats.top1_C, rows, 0,
        V=vocabulary, PITCH=pitch, LANES=hold.block // 8, HELD=hold.held, EVICT=hold.evict, PERSIST=programs > 0,
        num_warps=hold.warps, **extra,
    )  # fmt: skip
