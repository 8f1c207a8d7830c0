"""Rows that count brought to the front of a chunk of logits, as Triton kernels: one launch finds them, one moves them.

Shapes: C rows of the chunk, V vocabulary, H holes.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from .stats import Front


@triton.jit
@no_type_check
def _front(w_ptr, order_ptr, hole_ptr, from_ptr, counts_ptr, size, BLOCK: tl.constexpr):
    """Holes are rows of weight 0 among the first ``count``; as many rows that count lie behind those, and fill them in turn."""
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
    tl.debug_barrier()  # other threads have stored what is read now
    for start in range(0, holes, BLOCK):
        at = start + inside
        hole = tl.load(hole_ptr + at, mask=at < holes, other=0)
        tl.store(order_ptr + hole, tl.load(from_ptr + at, mask=at < holes, other=0), mask=at < holes)
    tl.store(counts_ptr, count.to(tl.int64))
    tl.store(counts_ptr + 1, holes.to(tl.int64))


@triton.jit
@no_type_check
def _move(z_ptr, order_ptr, hole_ptr, PITCH: tl.constexpr, BLOCK: tl.constexpr):
    """One block of one row, from its place to the hole."""
    hole = tl.load(hole_ptr + tl.program_id(0))
    row = tl.load(order_ptr + hole)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(z_ptr + row * PITCH + column, mask=column < PITCH)
    tl.store(z_ptr + hole * PITCH + column, z, mask=column < PITCH)


def front(w_C: Tensor) -> Front:
    """How the rows of weight other than 0 come to the front, with as few moves as there can be; the host need not wait for it."""
    order_C, hole_C, from_C = torch.empty(3, len(w_C), dtype=torch.int64, device=w_C.device).unbind()
    counts = torch.empty(2, dtype=torch.int64, device=w_C.device)
    block = min(16384, max(128, 1 << (len(w_C) - 1).bit_length()))
    _front[(1,)](
        w_C.contiguous(),
        order_C,
        hole_C,
        from_C,
        counts,
        len(w_C),
        BLOCK=block,
        num_warps=max(1, min(32, block // 512)),
    )
    return Front(order_C, hole_C, counts)


def move_(z_CV: Tensor, order_C: Tensor, hole_H: Tensor) -> None:
    """``z[hole] = z[order[hole]]``, in place: no row that is read is written to."""
    block = 8192
    grid: Any = (len(hole_H), -(-z_CV.stride(0) // block))
    _move[grid](z_CV, order_C, hole_H, PITCH=z_CV.stride(0), BLOCK=block, num_warps=8)
