"""Exact ancestral sampling of the small Llama: sequences of a fixed length at a temperature.

Keys and values are kept, so each token costs one row; sequences that begin alike share their rows. Each sample's random numbers depend on
the seed and its own number only, so the first n of more samples are the same n.

Shapes: B sequences of a chunk, T = 1 + L tokens with BOS, U distinct prefixes, l positions so far, H heads, E dimensions of a head,
D hidden, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from .tiny_llama import Layer, TinyLlama, rotary, turn

__all__ = ["sample"]

CHUNK = 4096
"""Samples drawn together. Their keys and values are 34 MB for the paper's model."""


@torch.no_grad()
def sample(
    model: TinyLlama, num_samples: int, *, bos: int, length: int, temperature: float = 1.0, seed: int = 0
) -> NDArray[np.int64]:
    """Draw sequences from Q^t, token by token.

    Args:
      model: on any device.
      num_samples: how many.
      bos: the first token of every sequence.
      length: L, tokens to draw after it.
      temperature: t in [0, inf]. 0 takes the most likely token, ties with equal chances; inf takes all tokens alike.
      seed: of the random numbers.

    Returns:
      Tokens [num_samples, 1 + L], BOS first.

    Examples:
      >>> sample(TinyLlama(), 3, bos=12, length=8).shape
      (3, 9)
    """
    if num_samples < 1 or length < 1:
        raise ValueError(f"num_samples={num_samples}, length={length}: both must be at least 1")
    if not temperature >= 0:
        raise ValueError(f"temperature={temperature}: must be in [0, inf]")
    keys = [np.array([seed, position], dtype=np.uint64) for position in range(length)]
    uniform = np.stack([np.random.Generator(np.random.Philox(key=key)).random(num_samples) for key in keys])
    chunks = range(0, num_samples, CHUNK)
    return np.concatenate([_draw(model, uniform[:, at : at + CHUNK], bos, temperature) for at in chunks])


def _draw(model: TinyLlama, uniform_LB: NDArray[np.float64], bos: int, temperature: float) -> NDArray[np.int64]:
    """One chunk of samples, one uniform number a token."""
    L, B = uniform_LB.shape
    V, device = model.shape.vocab, model.head.device
    cos, sin = rotary(model.shape, L, device=device, dtype=model.head.dtype)
    prefixes, row = np.full((1, 1), bos, dtype=np.int64), np.zeros(B, dtype=np.int64)
    cache = [_Cache.empty(layer) for layer in model.layers]
    parents = torch.zeros(1, dtype=torch.int64, device=device)
    for position in range(L):
        tokens = torch.from_numpy(prefixes[:, -1]).to(device)
        logits, cache = _advance(model, tokens, parents, cache, cos[position], sin[position])
        token = (_cumulative(logits, temperature)[row] <= uniform_LB[position, :, None]).sum(axis=1)
        # A prefix and its next token, as one number; only those that were drawn go on.
        drawn, row = np.unique(row * V + token, return_inverse=True)
        prefixes = np.hstack([prefixes[drawn // V], (drawn % V)[:, None]])
        parents = torch.from_numpy(drawn // V).to(device)
    return prefixes[row]


class _Cache(NamedTuple):
    """Keys and values of one layer, for every prefix."""

    k: Float[Tensor, "U l H E"]
    v: Float[Tensor, "U l H E"]

    @classmethod
    def empty(cls, layer: object) -> _Cache:
        assert isinstance(layer, Layer)
        none = layer.qkv.new_empty(1, 0, layer.shape.heads, layer.shape.head_dim)
        return cls(none, none)


def _advance(
    model: TinyLlama,
    tokens_U: Int[Tensor, " U"],
    parents_U: Int[Tensor, " U"],
    cache: list[_Cache],
    cos: Float[Tensor, " e"],
    sin: Float[Tensor, " e"],
) -> tuple[Float[Tensor, "U V"], list[_Cache]]:
    """Logits after one more token of every prefix; `parents` says which cached prefix each of them goes on from."""
    shape, dim = model.shape, (model.shape.dim,)
    x_UD, grown = F.embedding(tokens_U, model.embed), []
    for layer, before in zip(model.layers, cache, strict=True):
        assert isinstance(layer, Layer)
        qkv = F.linear(F.rms_norm(x_UD, dim, layer.attention_norm, shape.norm_eps), layer.qkv)
        q, k, v = qkv.view(-1, 3, 1, shape.heads, shape.head_dim).unbind(1)
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        keys, values = torch.cat([before.k[parents_U], k], dim=1), torch.cat([before.v[parents_U], v], dim=1)
        p_UlH = ((q * keys).sum(-1) * shape.head_dim**-0.5).softmax(dim=1)
        x_UD = x_UD + F.linear((p_UlH[..., None] * values).sum(1).flatten(1), layer.out)
        gate, up = F.linear(F.rms_norm(x_UD, dim, layer.mlp_norm, shape.norm_eps), layer.gate_up).chunk(2, dim=-1)
        x_UD = x_UD + F.linear(F.silu(gate) * up, layer.down)
        grown.append(_Cache(keys, values))
    return F.linear(F.rms_norm(x_UD, dim, model.norm, shape.norm_eps), model.head), grown


def _cumulative(logits_UV: Float[Tensor, "U V"], temperature: float) -> NDArray[np.float64]:
    """Cumulative distribution of the next token after each prefix, [U, V - 1]: the last token takes what is left."""
    gap = logits_UV.double().cpu().numpy()
    gap = gap - gap.max(axis=1, keepdims=True)
    if temperature == 0:
        mass = (gap == 0).astype(np.float64)
    else:
        mass = np.exp(gap / temperature) if math.isfinite(temperature) else np.ones_like(gap)
    cumulative = np.cumsum(mass, axis=1)
    return np.asarray(cumulative[:, :-1] / cumulative[:, -1:])
