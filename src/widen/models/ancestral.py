"""Exact ancestral sampling of the small Llama: sequences of a fixed length at a temperature, fast because equal prefixes are computed once.

Each sample's random numbers depend on the seed and its own number only, so the first n of more samples are the same n.

Shapes: B sequences, T = 1 + L tokens with BOS, U distinct prefixes, V vocabulary.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from .tiny_llama import TinyLlama

__all__ = ["sample"]

CHUNK = 2048
"""Prefixes in one forward pass: a few megabytes of activations, which stay in cache."""


@torch.no_grad()
def sample(
    model: TinyLlama, num_samples: int, *, bos: int, length: int, temperature: float = 1.0, seed: int = 0
) -> NDArray[np.int64]:
    """Draw sequences from Q^t, token by token.

    Args:
      model: on any device.
      num_samples: B.
      bos: the first token of every sequence.
      length: L, tokens to draw after it.
      temperature: t in [0, inf]. 0 takes the most likely token, ties with equal chances; inf takes all tokens alike.
      seed: of the random numbers.

    Returns:
      Tokens [B, 1 + L], BOS first.

    Examples:
      >>> sample(TinyLlama(), 3, bos=12, length=8).shape
      (3, 9)
    """
    if num_samples < 1 or length < 1:
        raise ValueError(f"num_samples={num_samples}, length={length}: both must be at least 1")
    if not temperature >= 0:
        raise ValueError(f"temperature={temperature}: must be in [0, inf]")
    prefixes, row = np.array([[bos]], dtype=np.int64), np.zeros(num_samples, dtype=np.int64)
    for position in range(length):
        uniform = np.random.Generator(np.random.Philox(key=np.array([seed, position], dtype=np.uint64))).random(
            num_samples
        )
        cumulative = _cumulative(model, prefixes, temperature)
        token = (cumulative[row] <= uniform[:, None]).sum(axis=1)
        # A prefix and its next token, as one number; only those that were drawn go on.
        drawn, row = np.unique(row * model.shape.vocab + token, return_inverse=True)
        prefixes = np.hstack([prefixes[drawn // model.shape.vocab], (drawn % model.shape.vocab)[:, None]])
    return prefixes[row]


def _cumulative(model: TinyLlama, prefixes_UL: NDArray[np.int64], temperature: float) -> NDArray[np.float64]:
    """Cumulative distribution of the next token after each prefix, [U, V - 1]: the last token takes what is left."""
    device = model.head.device
    logits = []
    for start in range(0, len(prefixes_UL), CHUNK):
        tokens = torch.from_numpy(prefixes_UL[start : start + CHUNK]).to(device)
        logits.append(torch.nn.functional.linear(model(tokens)[:, -1], model.head).double().cpu().numpy())
    gap = np.concatenate(logits)
    gap -= gap.max(axis=1, keepdims=True)
    if temperature == 0:
        mass = (gap == 0).astype(np.float64)
    else:
        mass = np.exp(gap / temperature) if math.isfinite(temperature) else np.ones_like(gap)
    cumulative = np.cumsum(mass, axis=1)
    return np.asarray(cumulative[:, :-1] / cumulative[:, -1:])
