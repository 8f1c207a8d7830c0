"""The sums over all targets of a call as one Triton kernel: the loss, and what a trainer logs.

PyTorch takes eighteen operations for them. Each is a launch of some 30 us to the host of a small model, which is what its step waits for.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from .stats import TargetSums


@triton.jit
@no_type_check
def _sum(each_ptr, sums_ptr, size, pitch, BLOCK: tl.constexpr):
    """`TargetSums` of all rows, by one program, in one order: reproducible."""
    inside = tl.arange(0, BLOCK)
    none = tl.zeros((BLOCK,), tl.float64)
    weighted, total, squares, counted, logqs, entropies, tops, rows = none, none, none, none, none, none, none, none
    largest = tl.full((BLOCK,), -float("inf"), tl.float64)
    for start in range(0, size, BLOCK):
        at = start + inside
        here = at < size
        logq = tl.load(each_ptr + at, mask=here, other=0.0).to(tl.float64)
        w = tl.load(each_ptr + pitch + at, mask=here, other=0.0).to(tl.float64)
        weighted += w * tl.where(w == 0.0, 0.0, logq)
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


def sums(each_kT: Tensor) -> Tensor:
    """`TargetSums` of rows that all count, from log q, weight, entropy and top-1 of each."""
    rows = each_kT.shape[1]
    size = len(TargetSums._fields)
    if rows == 0:
        return each_kT.new_zeros(size, dtype=torch.float64)
    found = each_kT.new_empty(size, dtype=torch.float64)
    _sum[(1,)](each_kT, found, rows, each_kT.stride(0), BLOCK=2048, num_warps=16)
    return found
