"""Row operations on a chunk of logits, as Triton kernels: the chunk is overwritten in place. `one_read` has the faster walk.

Same functions as `rows_torch`. One program owns one row, so nothing is summed across programs and every result is reproducible.
Set TRITON_INTERPRET=1 before the first use to run these kernels on a CPU, slowly, for tests.

Shapes: C rows of the chunk, V vocabulary. A row of the buffer is `pitch` elements apart from the next, so that it starts on a
16-byte boundary whatever V is (GPT-2's 50,257 would otherwise be read two bytes at a time).
"""

from __future__ import annotations

from functools import cache
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from .front_triton import front as front
from .front_triton import move_ as move_
from .one_read import LOG2E, LOWEST, Launch
from .stats import RowStats
from .sums_triton import sums as sums


@cache  # Triton's own integer functions take the host as long as a launch of PyTorch's
def launch_for(vocabulary: int, itemsize: int) -> Launch:
    """The launch for a row of logits that may be read twice.

    The residual is written in a second walk over the row, which should find the row still in the L2 cache: the rows in flight,
    one a program, must stay well under its 50 or 60 MB on Hopper. At 1024 threads one program fills a multiprocessor, at 512
    three fit: 132 rows of 256 kB, or 396 of 100 kB. Measured on an H200 in bfloat16, one read and one write counted: V=128,256
    3.14 TB/s so (block 32,768, 32 warps), 2.6-3.0 with smaller blocks; V=49,152 3.12 TB/s so (8,192, 16), 2.3-2.8 otherwise.
    """
    if vocabulary <= 2048:
        return Launch(block=max(128, triton.next_power_of_2(vocabulary)), warps=4)
    if vocabulary <= 16384:
        return Launch(block=8192 // itemsize, warps=8)
    return (
        Launch(block=16384 // itemsize, warps=16) if vocabulary <= 65536 else Launch(block=65536 // itemsize, warps=32)
    )


def pitch(vocabulary: int) -> int:
    """Elements from one row of the buffer to the next: V rounded up to a multiple of 16."""
    return -(-vocabulary // 16) * 16


def scratch_bytes(vocabulary: int, dtype: torch.dtype, softcap: float | None) -> int:
    """Bytes of workspace per row: the logits and nothing else."""
    return pitch(vocabulary) * dtype.itemsize


def runs_on(device: torch.device) -> bool:
    """Whether these kernels can run on ``device``: CUDA, or anything under Triton's interpreter."""
    return device.type == "cuda" or not isinstance(_walk, triton.JITFunction)


@triton.jit
@no_type_check
def _exp(x):
    return tl.exp2(x * LOG2E)  # a third of the instructions of tl.exp, which keeps denormals


@triton.jit
@no_type_check
def _tanh(x):
    # From exp(-2|x|), which cannot overflow; libdevice's tanh is not in the interpreter.
    e = _exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0, -t, t)


@triton.jit
@no_type_check
def _walk(
    z_ptr, target_ptr, lse_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr, cap,
    V: tl.constexpr, PITCH: tl.constexpr, CAPPED: tl.constexpr, FULL: tl.constexpr, RESIDUAL: tl.constexpr,
    LANES: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """One row: log-sum-exp and log q; with FULL entropy and top-1; with RESIDUAL the row becomes softmax - onehot."""
    row = tl.program_id(0).to(tl.int64)
    z_row = z_ptr + row * PITCH
    target = tl.load(target_ptr + row).to(tl.int32)
    z_target = tl.load(z_row + target).to(tl.float32)
    if CAPPED:
        z_target = cap * _tanh(z_target / cap)

    # PACK neighbours are one 16-byte load of one thread. Maximum m, sum s and first moment t are kept per lane and merged once
    # at the end: a reduction over the whole program in every step would stall the loads behind a barrier.
    inside = tl.arange(0, LANES)[:, None] * PACK + tl.arange(0, PACK)[None, :]
    m = tl.full((LANES,), LOWEST, tl.float32)
    s = tl.zeros((LANES,), tl.float32)
    t = tl.zeros((LANES,), tl.float32)
    for start in range(0, V, LANES * PACK):
        column = start + inside
        z = tl.load(z_row + column, mask=column < PITCH, other=0.0).to(tl.float32)
        if CAPPED:
            z = cap * _tanh(z / cap)
        z = tl.where((column < V) & ~(z < LOWEST), z, LOWEST)  # a nan passes, and makes the row's sums nan
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
    """Derivative of -log q by the raw logits: softmax - onehot, times the cap's slope; 0 in the padding of the row."""
    bent = z
    if CAPPED:
        bent = _tanh(z / cap)
        z = cap * bent
    r = _exp(z - lse)
    if (target >= start) & (target < start + BLOCK):  # one block a row pays for the comparison
        r -= tl.where(column == target, 1.0, 0.0)
    if CAPPED:
        r *= 1.0 - bent * bent
    if V != PITCH:
        r = tl.where(column < V, r, 0.0)
    return r


@triton.jit
@no_type_check
def _rewrite(
    z_ptr, target_ptr, lse_ptr, coefficient_ptr, cap,
    V: tl.constexpr, PITCH: tl.constexpr, CAPPED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of one row, its log-sum-exp known: the logits become coefficient * (softmax - onehot)."""
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
def _scale(
    coefficient_ptr, x_ptr, x_out_ptr, x_pitch, x_out_pitch, y_ptr, y_out_ptr, y_pitch, y_out_pitch,
    BOTH: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of one row of x, and with BOTH of y, times the coefficient of the row, in float32."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    coefficient = tl.load(coefficient_ptr + row)
    x = tl.load(x_ptr + row * x_pitch + column, mask=column < D, other=0.0).to(tl.float32)
    tl.store(x_out_ptr + row * x_out_pitch + column, (x * coefficient).to(x_out_ptr.dtype.element_ty), mask=column < D)
    if BOTH:
        y = tl.load(y_ptr + row * y_pitch + column, mask=column < D, other=0.0).to(tl.float32)
        tl.store(
            y_out_ptr + row * y_out_pitch + column, (y * coefficient).to(y_out_ptr.dtype.element_ty), mask=column < D
        )


@triton.jit
@no_type_check
def _multiply(factor_ptr, x_ptr, x_size, y_ptr, y_size, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    factor = tl.load(factor_ptr).to(tl.float32)
    if factor != 1.0:
        first = tl.program_id(0).to(tl.int64) * BLOCK
        for start in range(first, x_size, PROGRAMS * BLOCK):
            at = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + at, mask=at < x_size, other=0.0).to(tl.float32)
            tl.store(x_ptr + at, (x * factor).to(x_ptr.dtype.element_ty), mask=at < x_size)
        for start in range(first, y_size, PROGRAMS * BLOCK):
            at = start + tl.arange(0, BLOCK)
            y = tl.load(y_ptr + at, mask=at < y_size, other=0.0).to(tl.float32)
            tl.store(y_ptr + at, (y * factor).to(y_ptr.dtype.element_ty), mask=at < y_size)


@triton.jit
@no_type_check
def _pick(target_ptr, row_ptr, counts_ptr, size, vocabulary, ignore, BLOCK: tl.constexpr):
    """The rows whose target counts, end to end, then zeros; how many there are, and how many lie outside the vocabulary."""
    inside = tl.arange(0, BLOCK)
    count = 0
    wrong = 0
    for start in range(0, size, BLOCK):
        at = start + inside
        target = tl.load(target_ptr + at, mask=at < size, other=0).to(tl.int64)
        keep = (at < size) & (target != ignore)
        place = count + tl.cumsum(keep.to(tl.int32), axis=0) - 1
        tl.store(row_ptr + place, at.to(tl.int64), mask=keep)
        count += tl.sum(keep.to(tl.int32), axis=0)
        wrong += tl.sum((keep & ((target < 0) | (target >= vocabulary))).to(tl.int32), axis=0)
    for start in range(count, size, BLOCK):
        at = start + inside
        tl.store(row_ptr + at, tl.zeros((BLOCK,), tl.int64), mask=at < size)
    tl.store(counts_ptr, count.to(tl.int64))
    tl.store(counts_ptr + 1, wrong.to(tl.int64))


def pick(target_N: Tensor, vocabulary: int, ignore_index: int) -> tuple[Tensor | None, Tensor]:
    """The rows whose target counts, without a wait for how many there are; and that number, and how many are out of range.

    One program in one launch: the same in PyTorch is eight, and the first product waits for all of them.
    """
    if len(target_N) == 0:
        return target_N.long(), target_N.new_zeros(2, dtype=torch.int64)
    row_N, counts = (target_N.new_empty(size, dtype=torch.int64) for size in (len(target_N), 2))
    target_N = target_N.contiguous()
    _pick[(1,)](target_N, row_N, counts, len(target_N), vocabulary, ignore_index, BLOCK=4096, num_warps=16)
    return row_N, counts


def _launch_walk(
    z_CV: Tensor, target_C: Tensor, stats: RowStats, softcap: float | None, *, full: bool, residual: bool
) -> None:
    rows, vocabulary = z_CV.shape
    if rows == 0:
        return
    block, warps = launch_for(vocabulary, z_CV.element_size())
    pack = 16 // z_CV.element_size()
    _walk[(rows,)](
        z_CV, target_C, *stats, softcap or 1.0,
        V=vocabulary, PITCH=z_CV.stride(0), CAPPED=softcap is not None, FULL=full, RESIDUAL=residual,
        LANES=block // pack, PACK=pack, num_warps=warps,
    )  # fmt: skip


def normalise(z_CV: Tensor, target_C: Tensor, stats: RowStats, *, softcap: float | None) -> None:
    """Fill ``lse`` and ``logq`` of ``stats``."""
    _launch_walk(z_CV, target_C, stats, softcap, full=False, residual=False)


def describe(z_CV: Tensor, target_C: Tensor, stats: RowStats, *, softcap: float | None, residual: bool) -> None:
    """Fill all of ``stats``; with ``residual`` the logits become softmax - onehot, in the same launch."""
    _launch_walk(z_CV, target_C, stats, softcap, full=True, residual=residual)


def residual_(z_CV: Tensor, target_C: Tensor, lse_C: Tensor, coefficient_C: Tensor, *, softcap: float | None) -> None:
    """Overwrite the logits with coefficient * (softmax - onehot)."""
    rows, vocabulary = z_CV.shape
    if rows == 0:
        return
    block = _block(vocabulary)
    grid: Any = (rows, -(-z_CV.stride(0) // block))
    _rewrite[grid](
        z_CV, target_C, lse_C, coefficient_C, softcap or 1.0,
        V=vocabulary, PITCH=z_CV.stride(0), CAPPED=softcap is not None, BLOCK=block, num_warps=4,
    )  # fmt: skip


def scale(coefficient_C: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
    """``out = x`` with each row times its coefficient, for one or two pairs (x, out) of one shape; ``out`` may be ``x``.

    One read and one write of each, in one launch. PyTorch's product of bfloat16 rows and a float32 column goes through its general
    kernel: 39 us on an H200 where the memory needs 8.
    """
    if pairs[0][0].numel() == 0:
        return
    flat = [(x if x.stride(1) == 1 else x.contiguous(), out) for x, out in pairs]
    (rows, hidden), block = flat[0][0].shape, _block(flat[0][0].shape[1])
    grid: Any = (rows, -(-hidden // block))
    each = [(x, out, x.stride(0), out.stride(0)) for x, out in flat]
    _scale[grid](
        coefficient_C, *each[0], *each[-1], BOTH=len(each) == 2, D=hidden, BLOCK=block, num_warps=4,
    )  # fmt: skip


def multiply_(factor: Tensor, *tensors: Tensor) -> None:
    """``x *= factor`` for each, where a factor of 1 moves no memory and waits for nothing: the factor is read on the device."""
    whole = [x for x in tensors if x.numel()]
    for x, y in zip(whole[::2], [*whole[1::2], None], strict=False):
        # No program per block: where the factor is 1, starting 128,000 of them for nothing takes 80 us at Llama's vocabulary.
        block, most = 4096, 2048
        x_size, y_size = x.numel(), 0 if y is None else y.numel()
        programs = min(most, _power_of_two(-(-max(x_size, y_size) // block)))
        _multiply[(programs,)](
            factor, x, x_size, x if y is None else y, y_size, PROGRAMS=programs, BLOCK=block, num_warps=4
        )


def _power_of_two(size: int) -> int:
    """The next one; Triton's own function takes the host as long as a launch of PyTorch's."""
    return 1 << (size - 1).bit_length()


def _block(columns: int) -> int:
    """Columns of a row that one program takes."""
    return min(4096, _power_of_two(columns))
