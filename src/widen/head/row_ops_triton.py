"""Row operations as Triton kernels; the softmax kernels are in ``softmax_triton.py``.

Each operation is one launch where PyTorch needs up to eighteen: a launch costs the host of a small model about 30 us, and its step waits
for the host. Set TRITON_INTERPRET=1 before the first use to run these kernels on a CPU, slowly, for tests.

Shapes: N tokens, V vocabulary, D hidden, T target rows, C rows of a chunk, H holes, k entries of `SUMS`. Rows of the logits buffer
are `TritonRowOps.pitch` elements apart, so that each starts on a 16-byte boundary (a row of GPT-2's 50,257 would be read two bytes at a
time).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from .row_ops import SUMS, Compaction, RowOps, RowStats
from .softmax_triton import launch_one_read, launch_two_reads, softmax_one_read, softmax_two_reads


@dataclass(frozen=True, kw_only=True)
class TritonRowOps(RowOps):
    """Row operations for CUDA tensors.

    Args:
      one_read: whether `fill_stats` may leave a multiple of the residual, which lets it read the logits once.
    """

    one_read: bool = False

    @staticmethod
    def runs_on(device: torch.device) -> bool:
        """Whether these kernels run on ``device``: CUDA, or any device under Triton's interpreter."""
        return device.type == "cuda" or not isinstance(_multiply, triton.JITFunction)

    def pitch(self, vocabulary: int) -> int:
        """V rounded up to a multiple of 16."""
        return -(-vocabulary // 16) * 16

    def bytes_per_row(self, vocabulary: int, dtype: torch.dtype) -> int:
        """The logits and nothing else."""
        return self.pitch(vocabulary) * dtype.itemsize

    def find_targets(self, target_N: Tensor, vocabulary: int, ignore_index: int) -> tuple[Tensor | None, Tensor]:
        """One launch: PyTorch needs eight, and the first product waits for all of them."""
        if len(target_N) == 0:
            return target_N.long(), target_N.new_zeros(2, dtype=torch.int64)
        row_N, counts = (target_N.new_empty(size, dtype=torch.int64) for size in (len(target_N), 2))
        target_N = target_N.contiguous()
        _find_targets[(1,)](target_N, row_N, counts, len(target_N), vocabulary, ignore_index, BLOCK=4096, num_warps=16)
        return row_N, counts

    def fill_stats(self, z_CV: Tensor, target_C: Tensor, stats: RowStats, *, residual: bool) -> None:
        """One launch. A residual with smoothing or an entropy term reads the logits twice: it needs their sums first."""
        if len(z_CV) == 0:
            return
        (rows, vocabulary), size = z_CV.shape, z_CV.element_size()
        pack, tempered = 16 // size, self.tau != 1
        shared: Any = {"V": vocabulary, "PITCH": z_CV.stride(0), "TEMPERED": tempered, "PACK": pack}
        if residual and self.one_read and not self.smooth and not self.entropy:
            block, warps = launch_one_read(vocabulary, size)
            softmax_one_read[(rows,)](
                z_CV, target_C, *stats, self.tau,
                LANES=block // pack, BLOCKS=-(-vocabulary // block), num_warps=warps, **shared,
            )  # fmt: skip
        else:
            block, warps = launch_two_reads(vocabulary, size)
            softmax_two_reads[(rows,)](
                z_CV, target_C, *stats, self.softcap or 1.0, self.tau, self.smooth, self.entropy, CAPPED=self.softcap is not None,
                RESIDUAL=residual, SMOOTHED=self.smooth != 0, BONUS=self.entropy != 0, LANES=block // pack, num_warps=warps, **shared,
            )  # fmt: skip

    def find_active(self, w_C: Tensor) -> Compaction:
        """One launch without a wait."""
        order_C, hole_C, from_C = torch.empty(3, len(w_C), dtype=torch.int64, device=w_C.device).unbind()
        counts = torch.empty(2, dtype=torch.int64, device=w_C.device)
        block = min(16384, max(128, power_of_two(len(w_C))))
        warps = max(1, min(32, block // 512))
        _find_active[(1,)](
            w_C.contiguous(), order_C, hole_C, from_C, counts, len(w_C), BLOCK=block, num_warps=warps
        )  # fmt: skip
        return Compaction(order_C, hole_C, counts)

    def move_rows_(self, z_CV: Tensor, order_C: Tensor, hole_H: Tensor) -> None:
        """Without a copy of the moved rows."""
        block = 8192
        grid: Any = (len(hole_H), -(-z_CV.stride(0) // block))
        _move_rows[grid](z_CV, order_C, hole_H, PITCH=z_CV.stride(0), BLOCK=block, num_warps=8)

    def scale_rows(self, coefficient_C: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
        """One launch that reads and writes each once.

        PyTorch multiplies bfloat16 rows by a float32 column in its general kernel: 39 us on an H200 where the memory needs 8.
        """
        if pairs[0][0].numel() == 0:
            return
        flat = [(x if x.stride(1) == 1 else x.contiguous(), out) for x, out in pairs]
        (rows, hidden), block = flat[0][0].shape, _columns(flat[0][0].shape[1])
        grid: Any = (rows, -(-hidden // block))
        each = [(x, out, x.stride(0), out.stride(0)) for x, out in flat]
        _scale_rows[grid](
            coefficient_C, *each[0], *each[-1], BOTH=len(each) == 2, D=hidden, BLOCK=block, num_warps=4,
        )  # fmt: skip

    def multiply_(self, factor: Tensor, *tensors: Tensor) -> None:
        """The device reads the factor: no wait, and no memory traffic if it is 1."""
        whole = [x for x in tensors if x.numel()]
        for x, y in zip(whole[::2], [*whole[1::2], None], strict=False):
            # Not one program per block: for a factor of 1, starting 128,000 idle programs takes 80 us at Llama's vocabulary.
            block, most = 4096, 2048
            x_size, y_size = x.numel(), 0 if y is None else y.numel()
            programs = min(most, power_of_two(-(-max(x_size, y_size) // block)))
            _multiply[(programs,)](
                factor, x, x_size, x if y is None else y, y_size, PROGRAMS=programs, BLOCK=block, num_warps=4
            )

    def sum_targets(self, each_kT: Tensor, value_T: Tensor) -> Tensor:
        """One launch: PyTorch needs eighteen."""
        rows = each_kT.shape[1]
        size = len(SUMS)
        if rows == 0:
            return each_kT.new_zeros(size, dtype=torch.float64)
        found = each_kT.new_empty(size, dtype=torch.float64)
        _sum_targets[(1,)](each_kT, value_T, found, rows, each_kT.stride(0), BLOCK=2048, num_warps=16)
        return found


def power_of_two(size: int) -> int:
    """The next power of two; Triton's own function costs the host as much as a launch."""
    return 1 << (size - 1).bit_length()


def _columns(columns: int) -> int:
    """Columns of a row that one program takes, in kernels that split rows."""
    return min(4096, power_of_two(columns))


@triton.jit
@no_type_check
def _find_targets(target_ptr, row_ptr, counts_ptr, size, vocabulary, ignore, BLOCK: tl.constexpr):
    """The target rows in order, then zeros; how many there are, and how many of their targets lie outside the vocabulary."""
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


@triton.jit
@no_type_check
def _find_active(w_ptr, order_ptr, hole_ptr, from_ptr, counts_ptr, size, BLOCK: tl.constexpr):
    """Holes are the rows of weight 0 among the first ``count``. As many active rows lie after them; each fills a hole, in order."""
    inside = tl.arange(0, BLOCK)
    count = 0
    for start in range(0, size, BLOCK):
        w = tl.load(w_ptr + start + inside, mask=start + inside < size, other=0.0)
        count += tl.sum((w != 0).to(tl.int32), axis=0)
    holes = 0
    moved = 0
    for start in range(0, size, BLOCK):
        at = start + inside
        active = tl.load(w_ptr + at, mask=at < size, other=0.0) != 0
        hole = (at < count) & ~active
        mover = (at >= count) & active
        tl.store(order_ptr + at, at.to(tl.int64), mask=at < size)
        tl.store(hole_ptr + holes + tl.cumsum(hole.to(tl.int32), axis=0) - 1, at.to(tl.int64), mask=hole)
        tl.store(from_ptr + moved + tl.cumsum(mover.to(tl.int32), axis=0) - 1, at.to(tl.int64), mask=mover)
        holes += tl.sum(hole.to(tl.int32), axis=0)
        moved += tl.sum(mover.to(tl.int32), axis=0)
    tl.debug_barrier()  # other threads have stored what is read next
    for start in range(0, holes, BLOCK):
        at = start + inside
        hole = tl.load(hole_ptr + at, mask=at < holes, other=0)
        tl.store(order_ptr + hole, tl.load(from_ptr + at, mask=at < holes, other=0), mask=at < holes)
    tl.store(counts_ptr, count.to(tl.int64))
    tl.store(counts_ptr + 1, holes.to(tl.int64))


@triton.jit
@no_type_check
def _move_rows(z_ptr, order_ptr, hole_ptr, PITCH: tl.constexpr, BLOCK: tl.constexpr):
    """Copy one block of one row to its hole."""
    hole = tl.load(hole_ptr + tl.program_id(0))
    row = tl.load(order_ptr + hole)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(z_ptr + row * PITCH + column, mask=column < PITCH)
    tl.store(z_ptr + hole * PITCH + column, z, mask=column < PITCH)


@triton.jit
@no_type_check
def _scale_rows(
    coefficient_ptr, x_ptr, x_out_ptr, x_pitch, x_out_pitch, y_ptr, y_out_ptr, y_pitch, y_out_pitch,
    BOTH: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Multiply one block of one row of x, and with BOTH of y, by the coefficient of the row, in float32."""
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
def _sum_targets(each_ptr, value_ptr, sums_ptr, size, pitch, BLOCK: tl.constexpr):
    """The `SUMS` of all rows. One program sums in a fixed order, so the result is reproducible."""
    inside = tl.arange(0, BLOCK)
    none = tl.zeros((BLOCK,), tl.float64)
    weighted, total, squares, counted, logqs, entropies, tops, rows = none, none, none, none, none, none, none, none
    largest = tl.full((BLOCK,), -float("inf"), tl.float64)
    for start in range(0, size, BLOCK):
        at = start + inside
        here = at < size
        logq = tl.load(each_ptr + at, mask=here, other=0.0).to(tl.float64)
        w = tl.load(each_ptr + pitch + at, mask=here, other=0.0).to(tl.float64)
        value = tl.load(value_ptr + at, mask=here, other=0.0).to(tl.float64)
        weighted += w * tl.where(w == 0.0, 0.0, value)
        total += w
        squares += w * w
        largest = tl.maximum(largest, tl.where(here, w, -float("inf")))
        counted += tl.where(w == 0.0, 0.0, 1.0)
        logqs += logq
        entropies += tl.load(each_ptr + 2 * pitch + at, mask=here, other=0.0).to(tl.float64)
        rows += tl.where(here, 1.0, 0.0)
        tops += tl.load(each_ptr + 3 * pitch + at, mask=here, other=0.0).to(tl.float64)
    tl.store(sums_ptr, tl.sum(weighted, axis=0))
    tl.store(sums_ptr + 1, tl.sum(total, axis=0))
    tl.store(sums_ptr + 2, tl.sum(squares, axis=0))
    tl.store(sums_ptr + 3, tl.max(largest, axis=0))
    tl.store(sums_ptr + 4, tl.sum(counted, axis=0))
    tl.store(sums_ptr + 5, tl.sum(logqs, axis=0))
    tl.store(sums_ptr + 6, tl.sum(entropies, axis=0))
    tl.store(sums_ptr + 7, tl.sum(tops, axis=0))
    tl.store(sums_ptr + 8, tl.sum(rows, axis=0))
