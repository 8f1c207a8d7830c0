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
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .row_ops import RowStats
from .row_ops_triton import TritonRowOps
from .softmax_triton import LN2, LOG2E

ROOM = tl.constexpr(110.0)
"""How far log2 of an entry may lie above the target's: 2^110 times the sum over a vocabulary is a normal float."""
M, N, DEPTH, GROUP = 128, 128, 64, 8
"""Tile of the product: rows, columns, hidden columns at a time, and rows of tiles that share the columns which they read."""


@dataclass(frozen=True, kw_only=True)
class ExpRowOps(TritonRowOps):
    """Row operations whose first product fills the statistics and leaves the residual / ``factor_C``. For softmax - onehot only."""

    def bytes_per_row(self, vocabulary: int, dtype: torch.dtype) -> int:
        """The exponentials, and three sums for each tile of the row."""
        return super().bytes_per_row(vocabulary, dtype) + 3 * 4 * -(-vocabulary // N)

    def product_(
        self, z_CV: Tensor, hidden_CD: Tensor, head_VD: Tensor, bias_V: Tensor | None, target_C: Tensor, stats: RowStats
    ) -> None:  # fmt: skip
        """Four launches: the targets' logits, the product, the rows, and the repair of rows that overflow."""
        (rows, hidden), vocabulary, pitch = hidden_CD.shape, len(head_VD), z_CV.stride(0)
        if rows == 0:
            return
        hidden_CD, head_VD, target_C = hidden_CD.contiguous(), head_VD.contiguous(), target_C.contiguous()
        tiles = -(-vocabulary // N)
        c_C, part_3KC = (
            hidden_CD.new_empty(rows, dtype=torch.float32),
            hidden_CD.new_empty(3, tiles, rows, dtype=torch.float32),
        )
        bias = head_VD if bias_V is None else bias_V
        shared: Any = {"BIAS": bias_V is not None}
        _target_logits[(rows,)](
            hidden_CD,
            head_VD,
            bias,
            target_C,
            c_C,
            D=hidden,
            BLOCK=triton.next_power_of_2(hidden),
            num_warps=4,
            **shared,
        )
        x_desc, w_desc = (TensorDescriptor.from_tensor(x, [size, DEPTH]) for x, size in ((hidden_CD, M), (head_VD, N)))
        z_desc = TensorDescriptor.from_tensor(z_CV, [M, N])
        _exp_product[(triton.cdiv(rows, M) * tiles,)](
            x_desc, w_desc, z_desc, bias, c_C, part_3KC, rows, vocabulary, hidden, tiles,
            M=M, N=N, K=DEPTH, GROUP=GROUP, num_warps=8, num_stages=3, **shared,
        )  # fmt: skip
        each = stats[:4]
        _finish_rows[(triton.cdiv(rows, 32),)](
            part_3KC, z_CV, target_C, *each, rows, tiles, pitch, R=32, B=32, num_warps=4
        )
        _repair_rows[(rows,)](
            hidden_CD, head_VD, bias, z_CV, target_C, c_C, part_3KC, *each, rows, tiles, vocabulary, pitch,
            D=hidden, K=64, B=64, num_warps=4, **shared,
        )  # fmt: skip

    def fill_stats(self, z_CV: Tensor, target_C: Tensor, stats: RowStats, *, residual: bool) -> None:
        """Nothing: `product_` has filled them."""


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
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """One tile of exp(x w' + b - c), and its largest exponent, sum and first moment for each row.

    Two programs share a multiprocessor: one multiplies while the other takes exponentials.
    """
    # GROUP rows of tiles share the columns that they read, which then stay in the cache.
    tile, rows = tl.program_id(0), tl.cdiv(C, M)
    width = GROUP * TILES
    first = (tile // width) * GROUP
    height = tl.minimum(rows - first, GROUP)
    pm, pn = first + (tile % width) % height, (tile % width) // height
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, D, K):
        acc = tl.dot(x_desc.load([pm * M, k]), w_desc.load([pn * N, k]).T, acc)
    row, column = pm * M + tl.arange(0, M), pn * N + tl.arange(0, N)
    if BIAS:
        acc += tl.load(bias_ptr + column, mask=column < V, other=0.0).to(tl.float32)[None, :]
    below = (acc - tl.load(c_ptr + row, mask=row < C, other=0.0)[:, None]) * LOG2E
    # Clamp to -1e4: exp2 of it is 0, and 0 times it is 0, also where a bias is -inf. A nan passes.
    below = tl.maximum(below, -1e4, propagate_nan=tl.PropagateNan.ALL)
    below = tl.where((column < V)[None, :], below, -1e4)
    e = tl.exp2(below)
    at = part_ptr + pn.to(tl.int64) * C + row
    tl.store(at, tl.max(below, axis=1), mask=row < C)
    tl.store(at + TILES.to(tl.int64) * C, tl.sum(e, axis=1), mask=row < C)
    tl.store(at + 2 * TILES.to(tl.int64) * C, tl.sum(e * below, axis=1), mask=row < C)
    z_desc.store([pm * M, pn * N], e.to(z_desc.dtype))


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
    size = TILES.to(tl.int64) * C
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
    tl.store(logq_ptr + row, -log_total, mask=good)
    tl.store(entropy_ptr + row, log_total - tl.sum(t, axis=0) * LN2 / total, mask=good)
    tl.store(top1_ptr + row, (top < 1e-5).to(tl.float32), mask=good)
    rounded, factor = _entry(1.0, total, z_ptr.dtype.element_ty)
    tl.store(factor_ptr + row, factor, mask=good)
    target = tl.load(target_ptr + row, mask=good, other=0).to(tl.int64)
    tl.store(z_ptr + row.to(tl.int64) * PITCH + target, rounded, mask=good)


@triton.jit
@no_type_check
def _repair_rows(
    x_ptr, w_ptr, bias_ptr, z_ptr, target_ptr, c_ptr, part_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr, C, TILES, V, PITCH,
    D: tl.constexpr, K: tl.constexpr, B: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Compute one row again, relative to its largest logit, if that lies too far above its target. Slow, and rare."""
    row = tl.program_id(0).to(tl.int64)
    top = tl.load(part_ptr + row)
    if top > ROOM:
        c = tl.load(c_ptr + row) * LOG2E + top
        v, k = tl.arange(0, B), tl.arange(0, K)
        s = tl.zeros((B,), tl.float32)
        t = tl.zeros((B,), tl.float32)
        for start in range(0, V, B):
            column = (start + v).to(tl.int64)
            z = tl.zeros((B,), tl.float32)
            for first in range(0, D, K):
                d = first + k
                x = tl.load(x_ptr + row * D + d, mask=d < D, other=0.0).to(tl.float32)
                here = (column < V)[:, None] & (d < D)[None, :]
                z += tl.sum(
                    tl.load(w_ptr + column[:, None] * D + d[None, :], mask=here, other=0.0).to(tl.float32) * x[None, :],
                    axis=1,
                )
            if BIAS:
                z += tl.load(bias_ptr + column, mask=column < V, other=0.0).to(tl.float32)
            below = tl.maximum(z * LOG2E - c, -1e4, propagate_nan=tl.PropagateNan.ALL)
            below = tl.where(column < V, below, -1e4)
            e = tl.exp2(below)
            s += e
            t += e * below
            tl.store(z_ptr + row * PITCH + column, e.to(z_ptr.dtype.element_ty), mask=column < V)
        total = tl.sum(s, axis=0)
        log_total = tl.log(total)
        tl.store(logq_ptr + row, -top * LN2 - log_total)
        tl.store(entropy_ptr + row, log_total - tl.sum(t, axis=0) * LN2 / total)
        tl.store(top1_ptr + row, 0.0)
        rounded, factor = _entry(tl.exp2(-top), total, z_ptr.dtype.element_ty)
        tl.store(factor_ptr + row, factor)
        tl.debug_barrier()  # the next store overwrites what another thread has just stored
        tl.store(z_ptr + row * PITCH + tl.load(target_ptr + row).to(tl.int64), rounded)
