"""A first product that writes exponentials: the logits never reach memory, and no kernel walks over them.

    e = exp(x w' + b - c), with c the logit of the target           one Triton kernel, with the sums of each row and tile beside it
    log q = -log(sum of e);   softmax - onehot = (e - sum at the target) / sum      a small kernel for each row

The factor 1 / sum goes into the row's coefficient, which multiplies the hidden states and dX anyway. The logits are rounded nowhere: e has
the relative error of its dtype. A row whose largest logit lies more than `ROOM` above its target overflows bfloat16; a last kernel computes
such a row again, relative to its largest logit.

Shapes: C rows of a chunk, V vocabulary, D hidden, K tiles of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .row_ops import RowStats
from .row_ops_triton import TritonRowOps, power_of_two
from .softmax_triton import LN2, LOG2E

ROOM = tl.constexpr(110.0)
"""How far log2 of an entry may lie above the target's: 2^110 times the sum over a vocabulary is a normal float."""
M, N, DEPTH, GROUP = 128, 256, 64, 8
"""Tile of the product: rows, columns, hidden columns at a time, and rows of tiles that share the columns which they read. On an H200 this
first product takes .93 to 1.07 of cuBLAS's, which writes logits; one tile of 128 by 128 per program, 1.01 to 1.09 with four warps and 1.12
to 1.25 with eight (``benchmarks/results/exp_product_nvidia-h200.md``)."""


@dataclass(frozen=True, kw_only=True)
class ExpRowOps(TritonRowOps):
    """Row operations whose first product fills the statistics and leaves the residual / ``factor_C``. For softmax - onehot only.

    The workspace counts the exponentials alone, so that chunks are those of `TritonRowOps`. The sums of the tiles take 2.3 % more while the
    first product of a chunk runs, and are freed before the next.
    """

    @property
    def needs_targets(self) -> bool:
        """True: the exponentials are relative to the targets' logits."""
        return True

    def right_factor(self, head_VD: Tensor) -> TensorDescriptor:
        """The head as the tensor memory accelerator reads it."""
        return TensorDescriptor.from_tensor(head_VD, [N, DEPTH])

    def product_(
        self, z_CV: Tensor, hidden_CD: Tensor, right: TensorDescriptor, bias_V: Tensor | None, target_C: Tensor | None, stats: RowStats
    ) -> None:  # fmt: skip
        """Four launches: the targets' logits, the product, the rows, and the repair of rows that overflow."""
        head_VD, (rows, hidden), pitch = right.base, hidden_CD.shape, z_CV.stride(0)
        if rows == 0 or target_C is None:
            return
        hidden_CD, target_C = hidden_CD.contiguous(), target_C.contiguous()
        vocabulary = len(head_VD)
        tiles = -(-vocabulary // N)
        c_C = hidden_CD.new_empty(rows, dtype=torch.float32)
        part_3KC = hidden_CD.new_empty(3, tiles, rows, dtype=torch.float32)
        bias = head_VD if bias_V is None else bias_V
        shared: Any = {"BIAS": bias_V is not None}
        _target_logits[(rows,)](
            hidden_CD, head_VD, bias, target_C, c_C, D=hidden, BLOCK=power_of_two(hidden), num_warps=4, **shared
        )  # fmt: skip
        left, into = TensorDescriptor.from_tensor(hidden_CD, [M, DEPTH]), TensorDescriptor.from_tensor(z_CV, [M, N])
        programs = _multiprocessors(z_CV.device)
        _exp_product[(min(programs, -(-rows // M) * tiles),)](
            left, right, into, bias, c_C, part_3KC, rows, vocabulary, hidden, tiles,
            M=M, N=N, K=DEPTH, GROUP=GROUP, PROGRAMS=programs, num_warps=8, num_stages=3, **shared,
        )  # fmt: skip
        each = stats[:4]
        _finish_rows[(-(-rows // 32),)](part_3KC, z_CV, target_C, *each, rows, tiles, pitch, R=32, B=32, num_warps=4)
        _repair_rows[(-(-rows // 16),)](
            hidden_CD, head_VD, bias, z_CV, target_C, c_C, part_3KC, *each, rows, vocabulary, pitch,
            D=hidden, R=16, K=256, B=64, num_warps=8, **shared,
        )  # fmt: skip

    def fill_stats(self, z_CV: Tensor, target_C: Tensor, stats: RowStats, *, residual: bool) -> None:
        """Nothing: `product_` has filled them."""


@cache
def _multiprocessors(device: torch.device) -> int:
    """Programs that run at a time; under the interpreter, few enough to take several tiles each."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 2


@triton.jit
@no_type_check
def _target_logits(x_ptr, w_ptr, bias_ptr, target_ptr, c_ptr, D: tl.constexpr, BLOCK: tl.constexpr, BIAS: tl.constexpr):
    """The logit of one row's target, in float32."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row).to(tl.int64)
    d = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * D + d, mask=d < D, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + target * D + d, mask=d < D, other=0.0).to(tl.float32)
    c = tl.sum(x * w, axis=0)
    if BIAS:
        c += tl.load(bias_ptr + target).to(tl.float32)
    tl.store(c_ptr + row, c)


@triton.jit
@no_type_check
def _exp_product(
    x_desc, w_desc, z_desc, bias_ptr, c_ptr, part_ptr, C, V, D, TILES,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """exp(x w' + b - c), and for each row and tile the largest exponent, the sum and the first moment.

    Each multiprocessor runs one program, which loads its next tile while it takes the exponentials of this one.
    """
    rows = tl.cdiv(C, M)
    for tile in tl.range(tl.program_id(0), rows * TILES, PROGRAMS, flatten=True):
        pm, pn = _place(tile, rows, TILES, GROUP)
        acc = tl.zeros((M, N), tl.float32)
        for k in range(0, D, K):
            acc = tl.dot(x_desc.load([pm * M, k]), w_desc.load([pn * N, k]).T, acc)
        row, column = pm * M + tl.arange(0, M), pn * N + tl.arange(0, N)
        if BIAS:
            acc += tl.load(bias_ptr + column, mask=column < V, other=0.0).to(tl.float32)[None, :]
        below = (acc - tl.load(c_ptr + row, mask=row < C, other=0.0)[:, None]) * LOG2E
        if BIAS:  # it may be -inf: exp2 of -1e4 is 0 as well, and 0 times it is 0. A nan passes.
            below = tl.maximum(below, -1e4, propagate_nan=tl.PropagateNan.ALL)
        below = tl.where((column < V)[None, :], below, -1e4)
        e = tl.exp2(below)
        at = part_ptr + pn.to(tl.int64) * C + row
        tl.store(at, tl.max(below, axis=1), mask=row < C)
        tl.store(at + tl.cast(TILES, tl.int64) * C, tl.sum(e, axis=1), mask=row < C)
        tl.store(at + 2 * tl.cast(TILES, tl.int64) * C, tl.sum(e * below, axis=1), mask=row < C)
        z_desc.store([pm * M, pn * N], e.to(z_desc.dtype))


@triton.jit
@no_type_check
def _place(tile, rows, columns, GROUP: tl.constexpr):
    """Row and column of a tile: GROUP rows of tiles share the columns that they read, which then stay in the cache."""
    width = GROUP * columns
    first = (tile // width) * GROUP
    height = tl.minimum(rows - first, GROUP)
    return first + (tile % width) % height, (tile % width) // height


@triton.jit
@no_type_check
def _entry(e_target, total, dtype: tl.constexpr):
    """The target's entry, e - sum, as it is stored, and the factor that makes it p - 1 exactly: its rounding would be the largest error."""
    entry = e_target - total
    rounded = entry.to(dtype)
    back = rounded.to(tl.float32)
    sure = back == 0.0  # p is 1
    return rounded, tl.where(sure, 1.0, entry) / tl.where(sure, 1.0, back) / total


@triton.jit
@no_type_check
def _finish_rows(
    part_ptr, z_ptr, target_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr, C, TILES, PITCH, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Statistics and factor of R rows from the sums of their tiles; the target's entry becomes 1 - sum."""
    row, tile = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, B)
    size = tl.cast(TILES, tl.int64) * C
    m = tl.full((B, R), -1e4, tl.float32)
    s = tl.zeros((B, R), tl.float32)
    t = tl.zeros((B, R), tl.float32)
    for start in range(0, TILES, B):
        at = part_ptr + (start + tile).to(tl.int64)[:, None] * C + row[None, :]
        here = ((start + tile) < TILES)[:, None] & (row < C)[None, :]
        m = tl.maximum(m, tl.load(at, mask=here, other=-1e4))
        s += tl.load(at + size, mask=here, other=0.0)
        t += tl.load(at + 2 * size, mask=here, other=0.0)
    good, top, total = row < C, tl.max(m, axis=0), tl.sum(s, axis=0)
    tl.store(part_ptr + row, top, mask=good)  # for the repair; the first tile's is not read again
    log_total = tl.log(total)
    # The target is in the sum, so that log q is at most 0; but its logit was computed twice, and the two differ by rounding.
    tl.store(logq_ptr + row, tl.minimum(-log_total, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=good)
    tl.store(entropy_ptr + row, log_total - tl.sum(t, axis=0) * LN2 / total, mask=good)
    tl.store(top1_ptr + row, (top < 1e-5).to(tl.float32), mask=good)
    rounded, factor = _entry(1.0, total, z_ptr.dtype.element_ty)
    tl.store(factor_ptr + row, factor, mask=good)
    target = tl.load(target_ptr + row, mask=good, other=0).to(tl.int64)
    tl.store(z_ptr + row.to(tl.int64) * PITCH + target, rounded, mask=good)


@triton.jit
@no_type_check
def _row_logits(
    x_ptr, w_ptr, bias_ptr, row, column, V, D: tl.constexpr, K: tl.constexpr, B: tl.constexpr, BIAS: tl.constexpr
):  # fmt: skip
    """B logits of one row over ln 2; -inf beyond the vocabulary."""
    sums = tl.zeros((B, K), tl.float32)
    for first in range(0, D, K):
        d = first + tl.arange(0, K)
        x = tl.load(x_ptr + row * D + d, mask=d < D, other=0.0).to(tl.float32)
        here = (column < V)[:, None] & (d < D)[None, :]
        w = tl.load(w_ptr + column[:, None] * D + d[None, :], mask=here, other=0.0).to(tl.float32)
        sums += w * x[None, :]
    z = tl.sum(sums, axis=1)
    if BIAS:
        z += tl.load(bias_ptr + column, mask=column < V, other=0.0).to(tl.float32)
    return tl.where(column < V, z * LOG2E, -float("inf"))


@triton.jit
@no_type_check
def _repair_row(
    row, x_ptr, w_ptr, bias_ptr, z_ptr, target_ptr, c_ptr, part_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr, V, PITCH,
    D: tl.constexpr, K: tl.constexpr, B: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Compute one row again, relative to its largest logit, if that lies too far above its target."""
    top = tl.load(part_ptr + row)
    if top > ROOM:
        v = tl.arange(0, B)
        c = tl.load(c_ptr + row) * LOG2E
        largest = c + top
        if top == float("inf"):  # the target's bias is -inf
            most = tl.full((B,), -float("inf"), tl.float32)
            for start in range(0, V, B):
                column = (start + v).to(tl.int64)
                most = tl.maximum(most, _row_logits(x_ptr, w_ptr, bias_ptr, row, column, V, D, K, B, BIAS))
            largest = tl.max(most, axis=0)
        s = tl.zeros((B,), tl.float32)
        t = tl.zeros((B,), tl.float32)
        for start in range(0, V, B):
            column = (start + v).to(tl.int64)
            below = _row_logits(x_ptr, w_ptr, bias_ptr, row, column, V, D, K, B, BIAS) - largest
            below = tl.maximum(below, -1e4, propagate_nan=tl.PropagateNan.ALL)
            e = tl.exp2(below)
            s += e
            t += e * below
            tl.store(z_ptr + row * PITCH + column, e.to(z_ptr.dtype.element_ty), mask=column < V)
        total = tl.sum(s, axis=0)
        log_total = tl.log(total)
        tl.store(logq_ptr + row, (c - largest) * LN2 - log_total)
        tl.store(entropy_ptr + row, log_total - tl.sum(t, axis=0) * LN2 / total)
        tl.store(top1_ptr + row, 0.0)
        rounded, factor = _entry(tl.exp2(c - largest), total, z_ptr.dtype.element_ty)
        tl.store(factor_ptr + row, factor)
        tl.debug_barrier()  # the next store overwrites what another thread has just stored
        tl.store(z_ptr + row * PITCH + tl.load(target_ptr + row).to(tl.int64), rounded)


@triton.jit
@no_type_check
def _repair_rows(
    x_ptr, w_ptr, bias_ptr, z_ptr, target_ptr, c_ptr, part_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr, C, V, PITCH,
    D: tl.constexpr, R: tl.constexpr, K: tl.constexpr, B: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Repair up to R rows, one after the other. Slow, since one program reads the whole head for a row, and rare."""
    first, step = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    row = first + step * tl.arange(0, R)
    if tl.max(tl.load(part_ptr + row, mask=row < C, other=-1e4), axis=0) > ROOM:
        for at in range(first, C, step):
            _repair_row(
                at, x_ptr, w_ptr, bias_ptr, z_ptr, target_ptr, c_ptr, part_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr,
                V, PITCH, D, K, B, BIAS,
            )  # fmt: skip
