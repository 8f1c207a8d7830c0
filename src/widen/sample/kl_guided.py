r"""KL-guided temperature sampling (Chang et al., 2023; in the paper's comparison of decoding methods, table `tab:appendix-decoding`).

.. math::  t_l = T \cdot 2^{-KL(p_{with} \| p_{without}) / \sigma}

p_with is the next-token distribution given the prompt, p_without that of the same continuation without it, both at temperature 1. Where
the prompt matters, KL is large and the temperature falls. A KL of sigma nats halves the temperature; sigma = inf is plain sampling.

Shapes: B sequences, V vocabulary.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

MIN_TEMPERATURE = 1e-4  # there a gap of 0.01 between logits is a factor of e^100: greedy except for ties


def guided_temperature(
    with_BV: Float[Tensor, "B V"], without_BV: Float[Tensor, "B V"], *, temperature: float, sigma: float
) -> Float[Tensor, " B"]:
    """The temperature t_l of each row's next token, at least `MIN_TEMPERATURE`, from the logits with and without the prompt.

    Paper note: the authors clip probabilities at 1e-7 before the logarithm; in log space this is not needed.
    """
    if sigma == torch.inf:  # a KL of inf over inf would be nan
        return with_BV.new_full((with_BV.shape[0],), temperature)
    logp, logr = with_BV.log_softmax(-1), without_BV.log_softmax(-1)
    kl_B = (logp.exp() * (logp - logr)).nan_to_num(nan=0.0).sum(-1).clamp(min=0)  # a token at -inf in both has p = 0
    return (temperature * torch.exp2(-kl_B / sigma)).clamp(min=MIN_TEMPERATURE)
