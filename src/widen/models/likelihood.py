"""The exact score pass: log Q^t(x) of every sequence of a support, at many temperatures, for M models side by side (THEORY B2).

One teacher-forced pass; each temperature is then a re-normalisation of the same logits. Sums are taken in float64. The torch twin of
:func:`widen.theory.exact_log_likelihood`, against which it is tested.

Shapes: M models, S sequences, T temperatures, L target tokens, N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from .prefix import Prefixes, SharedBatch
from .stacked import StackedLlama
from .tiny_llama import LlamaShape, TinyLlama

__all__ = ["log_likelihood", "stacked_log_likelihood"]

CHUNK = 1024
"""Sequences at a time: bounds the memory at about 45 MB a model."""


def log_likelihood(model: TinyLlama, tokens: NDArray[np.int64], temperatures: Sequence[float]) -> NDArray[np.float64]:
    """log Q^t of every row of `tokens` [S, 1 + L] (BOS first), at every temperature: [T, S].

    Examples:
      >>> from widen.data.mulmod import MulMod
      >>> logq = log_likelihood(TinyLlama(), MulMod(modulus=7, high=9, under_representation=None).support(), [1.0, float("inf")])
      >>> logq.shape, round(float(logq[1, 0] / np.log(13)), 6)
      ((2, 81), -5.0)
    """
    return np.asarray(stacked_log_likelihood(model.flat()[None], tokens, temperatures, shape=model.shape)[0])


@torch.no_grad()
def stacked_log_likelihood(
    flat_MP: Float[Tensor, "M P"],
    tokens: NDArray[np.int64],
    temperatures: Sequence[float],
    *,
    shape: LlamaShape,
    dtype: torch.dtype = torch.float64,
) -> NDArray[np.float64]:
    """The same for M models given by their flat parameters, on the device where these are: [M, T, S].

    `dtype` is that of the forward pass: in float64 the score is that of the model itself, free of rounding.
    """
    if any(not t >= 0 for t in temperatures):
        raise ValueError(f"temperatures={list(temperatures)}: each must be in [0, inf]")
    net = StackedLlama(flat_MP.to(dtype), shape=shape)
    prefixes = Prefixes.of(tokens, batch_size=min(CHUNK, len(tokens)))
    device, M = flat_MP.device, flat_MP.shape[0]
    roots_MKR = torch.from_numpy(prefixes.roots.T.copy()).to(device).expand(M, -1, -1).contiguous()
    scores = np.empty((M, len(temperatures), len(tokens)))
    for start in range(0, len(tokens), CHUNK):
        part = slice(start, min(start + CHUNK, len(tokens)))
        index = torch.from_numpy(prefixes.index[part]).to(device).expand(M, -1)
        tokens_MTB = torch.from_numpy(tokens[part].T.copy()).to(device).expand(M, -1, -1)
        trace = net.forward(SharedBatch(roots_MKR, index, tokens_MTB))
        log_MNV, at_ML = trace.logall_MNV.double(), trace.at_MLB.flatten(1)
        for i, t in enumerate(temperatures):
            picked = tempered(log_MNV, float(t)).flatten(1).gather(1, at_ML).view(trace.at_MLB.shape)
            scores[:, i, part] = picked.sum(1).cpu().numpy()
    return scores


def tempered(log_MNV: Float[Tensor, "M N V"], temperature: float) -> Float[Tensor, "M N V"]:
    """Log-probabilities at a temperature; 0 shares the mass among the most likely tokens, inf among all of finite logit."""
    if temperature == 0:
        best = (log_MNV == log_MNV.max(-1, keepdim=True).values).double()
        return best.log() - best.sum(-1, keepdim=True).log()
    if temperature == float("inf"):
        finite = (log_MNV > -torch.inf).double()
        return finite.log() - finite.sum(-1, keepdim=True).log()
    return (log_MNV / temperature).log_softmax(-1)
