"""The exact score pass: log Q^t(x) of every sequence of a support, at many temperatures, from one pass of the model (THEORY B2).

Each temperature is a re-normalisation of the same logits. Sums are taken in float64. The torch counterpart of
:func:`widen.theory.exact_log_likelihood`, against which it is tested.

Shapes: S sequences, T temperatures, L target tokens, B sequences of a chunk, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from .tiny_llama import TinyLlama

__all__ = ["log_likelihood"]

CHUNK = 1024
"""Sequences at a time: bounds the memory at about 45 MB."""


@torch.no_grad()
def log_likelihood(
    model: TinyLlama, tokens: NDArray[np.int64], temperatures: Sequence[float], *, dtype: torch.dtype = torch.float64
) -> NDArray[np.float64]:
    """log Q^t of every row of `tokens` [S, 1 + L] (BOS first), at every temperature: [T, S].

    `dtype` is that of the forward pass: in float64 the score is that of the model itself, free of rounding.

    Examples:
      >>> from widen.data.mulmod import MulMod
      >>> logq = log_likelihood(TinyLlama(), MulMod(modulus=7, high=9, under_representation=None).support(), [1.0, float("inf")])
      >>> logq.shape, round(float(logq[1, 0] / np.log(13)), 6)
      ((2, 81), -5.0)
    """
    if any(not t >= 0 for t in temperatures):
        raise ValueError(f"temperatures={list(temperatures)}: each must be in [0, inf]")
    device = model.head.device
    net = TinyLlama(model.shape).to(device, dtype).load_flat(model.flat().to(dtype))
    scores = np.empty((len(temperatures), len(tokens)))
    for start in range(0, len(tokens), CHUNK):
        part = slice(start, min(start + CHUNK, len(tokens)))
        rows = torch.from_numpy(tokens[part]).to(device)
        log_BLV = net.logits(rows[:, :-1]).double().log_softmax(-1)
        for i, t in enumerate(temperatures):
            picked = tempered(log_BLV, float(t)).gather(-1, rows[:, 1:, None])[..., 0]
            scores[i, part] = picked.sum(1).cpu().numpy()
    return scores


def tempered(log_BLV: Float[Tensor, "B L V"], temperature: float) -> Float[Tensor, "B L V"]:
    """Log-probabilities at a temperature; 0 shares the mass among the most likely tokens, inf among all of finite logit."""
    if temperature == 0:
        best = (log_BLV == log_BLV.max(-1, keepdim=True).values).double()
        return best.log() - best.sum(-1, keepdim=True).log()
    if temperature == float("inf"):
        finite = (log_BLV > -torch.inf).double()
        return finite.log() - finite.sum(-1, keepdim=True).log()
    return (log_BLV / temperature).log_softmax(-1)
