"""One token from one uniform: the inverse of the cumulative distribution, in token order.

A single uniform a token (not V of them, as in Gumbel-max) costs nothing to make and has a useful property: where two runs have nearly
the same logits, they draw the same token unless the uniform falls within that difference of a boundary.

Shapes: B sequences, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["Token", "choose", "draw"]

BLOCK = 256
"""Tokens whose weights are summed before the search: V is read once, and the search runs over V / 256 sums and then 256 weights."""


class Token(NamedTuple):
    """What was drawn, and its log-probabilities."""

    token_B: Int[Tensor, " B"]
    logq_B: Float[Tensor, " B"]  # under the model, at temperature 1 and unfiltered
    sampler_B: Float[Tensor, " B"]  # under what was sampled from


def draw(
    scores_BV: Float[Tensor, "B V"], uniform_B: Float[Tensor, " B"]
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """A token of softmax(scores) a row, and its log-probability.

    Token x is drawn when ``F(x - 1) <= u < F(x)``. A token at -inf is never drawn.

    Args:
      scores_BV: float32 or float64 logits; -inf removes a token.
      uniform_B: float64, in [0, 1).

    Examples:
      >>> scores = torch.tensor([[0.5, 0.25, 0.25]]).log().expand(3, 3)
      >>> draw(scores, torch.tensor([0.49, 0.5, 0.99], dtype=torch.float64))[0]
      tensor([0, 1, 2])
    """
    B, V = scores_BV.shape
    top_B1 = scores_BV.amax(-1, keepdim=True)
    weight_BV = (scores_BV - top_B1).exp_()  # in place: at a batch of thousands this is gigabytes
    # Sums over blocks in the scores' dtype, the running total in float64: a float32 running sum over a vocabulary of 1e5 tokens
    # loses the tail's tokens altogether.
    whole = V // BLOCK * BLOCK
    sums = weight_BV[:, :whole].reshape(B, V // BLOCK, BLOCK).sum(-1)
    if whole < V:
        sums = torch.cat([sums, weight_BV[:, whole:].sum(-1, keepdim=True)], dim=1)
    total = sums.double().cumsum(-1)
    target = uniform_B[:, None] * total[:, -1:]
    block = torch.searchsorted(total, target, right=True).clamp(max=total.shape[1] - 1)
    before = torch.where(block > 0, total.gather(1, (block - 1).clamp(min=0)), 0.0)
    column = block * BLOCK + torch.arange(min(BLOCK, V), device=scores_BV.device)
    inside = weight_BV.gather(1, column.clamp(max=V - 1)).double().masked_fill(column >= V, 0.0)
    at = torch.searchsorted(inside.cumsum(-1), target - before, right=True)
    # The block's sum in float32 may exceed its float64 sum by a rounding: then the last token of the block that has any weight.
    last = torch.where(inside > 0, torch.arange(inside.shape[1], device=inside.device), 0).amax(-1, keepdim=True)
    token_B1 = block * BLOCK + torch.minimum(at, last)
    logq = (scores_BV.gather(1, token_B1) - top_B1).double() - total[:, -1:].log()
    return token_B1[:, 0], logq[:, 0]


def choose(
    logits_BV: Float[Tensor, "B V"], scores_BV: Float[Tensor, "B V"] | None, uniform_B: Float[Tensor, " B"] | None
) -> Token:
    """The next token with both log-probabilities.

    Args:
      logits_BV: the model's logits, float32.
      scores_BV: what to draw from; None where that is the logits themselves.
      uniform_B: None is greedy: the likeliest token, the first of several.
    """
    if uniform_B is None:
        token_B = logits_BV.argmax(-1)
        return Token(token_B, _logq(logits_BV, token_B), torch.zeros_like(token_B, dtype=torch.float64))
    if scores_BV is None:
        token_B, logq_B = draw(logits_BV, uniform_B)
        return Token(token_B, logq_B, logq_B)
    token_B, sampler_B = draw(scores_BV, uniform_B)
    return Token(token_B, _logq(logits_BV, token_B), sampler_B)


def _logq(logits_BV: Float[Tensor, "B V"], token_B: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    return logits_BV.gather(1, token_B[:, None])[:, 0].double() - logits_BV.logsumexp(-1).double()
