"""Attention of one new token a row over its cached keys and values, as one Triton kernel: each key and each value is read once.

This is what sampling at a large batch spends its time on. A cached row is short (a few hundred positions) and there are thousands of
rows, so one program takes one row and one key-value head whole, with all the query heads that share it; nothing is split and nothing is
summed across programs. The softmax is the running one of Milakov & Gimelshein (2018).
Set TRITON_INTERPRET=1 before the first use to run it on a CPU, slowly, for tests.

Shapes: B rows, H query heads, K key-value heads, G = H/K, S cached positions, E head dimension.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["decode"]

BLOCK = 64
"""Positions read at a time. Longer blocks waste more at the end of a row than they save in between."""

# Stands in for -inf: a block that is masked whole must not make the running maximum's difference a nan.
LOWEST = tl.constexpr(-1e30)


@triton.jit
@no_type_check
def _decode(
    query, key, value, mask, out, scale, lengths,
    key_b, key_k, key_s, value_b, value_k, value_s, mask_b, query_b, query_h,
    G: tl.constexpr, E: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One row, one key-value head."""
    length = tl.load(lengths)  # from memory, so that a CUDA graph that was captured at one length runs at another
    row = tl.program_id(0).to(tl.int64)  # rows x positions x width passes 2^31 elements at a batch that fits
    head = tl.program_id(1)
    g, e, s = tl.arange(0, GROUP), tl.arange(0, WIDTH), tl.arange(0, STEP)
    heads = (head * G + g)[:, None]
    inside = (g[:, None] < G) & (e[None, :] < E)
    q = tl.load(query + row * query_b + heads * query_h + e[None, :], mask=inside, other=0.0)
    top = tl.full((GROUP,), LOWEST, tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    mixed = tl.zeros((GROUP, WIDTH), tl.float32)
    for first in range(0, length, STEP):
        at = first + s
        seen = at < length
        if MASKED:
            seen = seen & (tl.load(mask + row * mask_b + at, mask=seen, other=0) != 0)
        there = seen[:, None] & (e[None, :] < E)
        k = tl.load(key + row * key_b + head * key_k + at[:, None] * key_s + e[None, :], mask=there, other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        score = tl.where(seen[None, :], score, LOWEST)
        higher = tl.maximum(top, tl.max(score, 1))
        weight = tl.where(seen[None, :], tl.exp(score - higher[:, None]), 0.0)
        shrink = tl.exp(top - higher)
        v = tl.load(value + row * value_b + head * value_k + at[:, None] * value_s + e[None, :], mask=there, other=0.0)
        mixed = mixed * shrink[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        total = total * shrink + tl.sum(weight, 1)
        top = higher
    result = mixed / total[:, None]
    tl.store(out + row * (G * tl.num_programs(1) * E) + heads * E + e[None, :], result, mask=inside)


def decode(
    query_BHE: Float[Tensor, "B H E"],
    key_BKSE: Float[Tensor, "B K S E"],
    value_BKSE: Float[Tensor, "B K S E"],
    mask_BS: Bool[Tensor, "B S"] | None,
    *,
    scale: float,
    length: Int[Tensor, " 1"] | None = None,
) -> Float[Tensor, "B H E"]:
    """softmax(scale q k) v for one new position a row.

    Args:
      query_BHE: query heads; those that share a key-value head are neighbours.
      key_BKSE, value_BKSE: views into larger buffers are read where they lie; their last dimension must be contiguous.
      mask_BS: False where a position is not to be seen; None sees all. A row that sees nothing gives nan, as torch's does.
      length: int32 on the device: look at the first so many positions only; None is all S.
    """
    B, H, E = query_BHE.shape
    K, S = key_BKSE.shape[1:3]
    query_BHE = query_BHE if query_BHE.stride(-1) == 1 else query_BHE.contiguous()
    out = torch.empty((B, H, E), dtype=query_BHE.dtype, device=query_BHE.device)
    mask = None if mask_BS is None else mask_BS.contiguous().view(torch.uint8)
    if length is None:
        length = torch.full((1,), S, dtype=torch.int32, device=query_BHE.device)
    _decode[(B, K)](
        query_BHE, key_BKSE, value_BKSE, mask, out, scale, length,
        *key_BKSE.stride()[:3], *value_BKSE.stride()[:3], 0 if mask is None else mask.stride(0), *query_BHE.stride()[:2],
        G=H // K, E=E, GROUP=max(16, triton.next_power_of_2(H // K)), WIDTH=max(16, triton.next_power_of_2(E)), STEP=BLOCK,
        MASKED=mask is not None, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
