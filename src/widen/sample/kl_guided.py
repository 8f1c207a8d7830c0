r"""KL-guided temperature sampling (Chang et al., 2023; in the paper's comparison of decoding methods, table `tab:appendix-decoding`).

.. math::  t_l = T \cdot 2^{-KL(p_{with} \| p_{without}) / \sigma}

with p_with the next-token law given the prompt and p_without the law of the same continuation without it, both at temperature 1. Where
the prompt matters, KL is large and the temperature falls; where it does not, sampling stays at T. sigma is a half-life in nats:
a KL of sigma halves the temperature. sigma = inf is plain sampling, token for token.

Shapes: B sequences, V vocabulary.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["MIN_TEMPERATURE", "guided_temperature"]

MIN_TEMPERATURE = 1e-4
"""The temperature does not fall below this: at it a gap of 0.01 between logits is already e^100, so it is greedy but for ties."""


def guided_temperature(
    with_BV: Float[Tensor, "B V"], without_BV: Float[Tensor, "B V"], *, temperature: float, sigma: float
) -> Float[Tensor, " B"]:
    """The temperature of each row's next token.

    Args:
      with_BV, without_BV: logits of the two streams, before any filter or temperature.
      temperature: T.
      sigma: the half-life, above 0.

    Returns:
      t_l, at least `MIN_TEMPERATURE`.

    Examples:
      >>> same, other = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]])
      >>> guided_temperature(same, same, temperature=0.8, sigma=1.0)
      tensor([0.8000])
      >>> bool(guided_temperature(other, same, temperature=0.8, sigma=0.1) < 0.5)
      True

    Paper note: the authors clip probabilities at 1e-7 before the logarithm and cut KL at 0; in log space neither is needed
    (KL is clamped at 0 only against rounding).
    """
    if sigma == torch.inf:  # 0 / inf is 0, but a KL of inf over inf is nothing
        return with_BV.new_full((with_BV.shape[0],), temperature)
    logp, logr = with_BV.log_softmax(-1), without_BV.log_softmax(-1)
    kl_B = (logp.exp() * (logp - logr)).nan_to_num(nan=0.0).sum(-1).clamp(min=0)  # a token at -inf in both has p = 0
    return (temperature * torch.exp2(-kl_B / sigma)).clamp(min=MIN_TEMPERATURE)
