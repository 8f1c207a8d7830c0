"""One token from one uniform: the inverse of the cumulative distribution, in token order.

If two runs have nearly the same logits, they draw the same token unless the uniform falls within that difference of a boundary.

Shapes: B samples, U distributions, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

LEAST = -87.0
"""Log-weights below become 0: `exp` is ten times slower if it underflows, and float32 has few numbers below e^-87."""
BLOCK = 256  # tokens summed before the search: it then covers V / 256 sums and 256 weights


def draw(
    scores_UV: Float[Tensor, "U V"], uniform_B: Float[Tensor, " B"], row_B: Int[Tensor, " B"]
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """A token of softmax(scores) per sample, and its log-probability.

    Token x is drawn when ``F(x - 1) <= u < F(x)``. A token at -inf is never drawn.

    Args:
      scores_UV: float32 or float64 logits; -inf removes a token.
      uniform_B: float64, in [0, 1).
      row_B: the row of `scores_UV` that each sample draws from.
    """
    U, V = scores_UV.shape
    top_U1 = scores_UV.amax(-1, keepdim=True)
    weight_UV = (scores_UV - top_U1).clamp_(min=LEAST).exp_()  # in place: for thousands of rows this takes gigabytes
    torch.threshold_(weight_UV, 2 * math.exp(LEAST), 0.0)
    # Blocks are summed in the scores' dtype, the running total in float64: a float32 running sum over 1e5 tokens loses the tail.
    whole = V // BLOCK * BLOCK
    sums = weight_UV[:, :whole].reshape(U, V // BLOCK, BLOCK).sum(-1)
    if whole < V:
        sums = torch.cat([sums, weight_UV[:, whole:].sum(-1, keepdim=True)], dim=1)
    total = sums.double().cumsum(-1)[row_B]
    target = uniform_B[:, None] * total[:, -1:]
    block = torch.searchsorted(total, target, right=True).clamp(max=total.shape[1] - 1)
    before = torch.where(block > 0, total.gather(1, (block - 1).clamp(min=0)), 0.0)
    column = block * BLOCK + torch.arange(min(BLOCK, V), device=scores_UV.device)
    inside = weight_UV[row_B[:, None], column.clamp(max=V - 1)].double().masked_fill(column >= V, 0.0)
    at = torch.searchsorted(inside.cumsum(-1), target - before, right=True)
    # The block's float32 sum may exceed its float64 sum by a rounding error: then take the last token of the block with any weight.
    last = torch.where(inside > 0, torch.arange(inside.shape[1], device=inside.device), 0).amax(-1, keepdim=True)
    token_B = (block * BLOCK + torch.minimum(at, last))[:, 0]
    logq_B = (scores_UV[row_B, token_B] - top_U1[row_B, 0]).double() - total[:, -1].log()
    return token_B, logq_B


def choose(
    logits_UV: Float[Tensor, "U V"],
    scores_UV: Float[Tensor, "U V"] | None,
    uniform_B: Float[Tensor, " B"] | None,
    row_B: Int[Tensor, " B"],
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"]]:
    """The next token of each sample, its log-probability under the model, and that under `scores_UV`; greedy decoding gives 0 for the last.

    Args:
      logits_UV: the model's logits.
      scores_UV: what to draw from; None draws from the logits.
      uniform_B: None is greedy: the likeliest token, the first of several.
      row_B: the row of `logits_UV` and `scores_UV` that each sample draws from.
    """
    if uniform_B is None:
        token_B = logits_UV.argmax(-1)[row_B]
        sampler_B = torch.zeros_like(token_B, dtype=torch.float64)
    else:
        token_B, sampler_B = draw(logits_UV if scores_UV is None else scores_UV, uniform_B, row_B)
        if scores_UV is None:
            return token_B, sampler_B, sampler_B
    logq_B = logits_UV[row_B, token_B].double() - logits_UV.logsumexp(-1).double()[row_B]
    return token_B, logq_B, sampler_B
