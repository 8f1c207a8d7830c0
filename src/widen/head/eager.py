"""The head as one writes it down: six lines that keep all N x V logits. The oracle for the others, and what they are timed against.

Shapes: N tokens, V vocabulary, D hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from .stats import RowStats, real_dtype


def eager_logp(
    hidden_ND: Float[Tensor, "N D"],
    head_VD: Float[Tensor, "V D"],
    bias_V: Float[Tensor, " V"] | None,
    softcap: float | None,
) -> Float[Tensor, "N V"]:
    """Log-probabilities of the whole vocabulary, in float32 or better."""
    z_NV = F.linear(hidden_ND, head_VD, bias_V)
    z_NV = z_NV.to(real_dtype(z_NV.dtype))
    if softcap is not None:
        z_NV = softcap * torch.tanh(z_NV / softcap)
    return z_NV.log_softmax(-1)


def eager_logq(logp_NV: Float[Tensor, "N V"], target_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Those of the targets."""
    return logp_NV.gather(-1, target_N[:, None])[:, 0]


@torch.no_grad()
def eager_stats(logp_NV: Float[Tensor, "N V"], target_N: Int[Tensor, " N"]) -> RowStats:
    """What a trainer logs, from the whole vocabulary's log-probabilities (the log-sum-exp of which is 0)."""
    logq_N = eager_logq(logp_NV, target_N)
    entropy_N = torch.special.entr(logp_NV.exp()).sum(-1)
    top1_N = torch.zeros_like(logq_N)
    if logp_NV.numel():
        top1_N = (logq_N >= logp_NV.amax(-1)).to(logq_N.dtype)
    return RowStats(torch.zeros_like(logq_N), logq_N, entropy_N, top1_N, torch.ones_like(logq_N))
