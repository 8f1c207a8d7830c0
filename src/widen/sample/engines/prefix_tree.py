"""The small Llama after many prefixes at once.

The prefixes of the samples form a tree. Each node stores its keys and values once, and attention gathers them along the node's path. So a
new level costs one token per node, and the keys and values of shared ancestors are not copied.

Shapes: U nodes of a level, A ancestors of a node including itself, D hidden, H heads, E = D/H, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from widen.models.tiny_llama import Layer, TinyLlama, rotary

__all__ = ["PrefixTree"]

CHUNK = 4096
"""Nodes per forward pass: a few megabytes of activations, which stay in the CPU's cache."""


class PrefixTree:
    """The tree of the continuations of `ids`; `logits_UV` belongs to the nodes of the last level.

    Args:
      model: on any device; results stay there.
      ids: at least one token.
      depth: the largest number of levels below `ids`.

    Examples:
      >>> model = TinyLlama(seed=0)
      >>> tree = PrefixTree(model, [12, 4], depth=1)
      >>> tree.step(torch.tensor([0, 0]), torch.tensor([7, 9]))
      >>> expected = model.logits(torch.tensor([[12, 4, 7], [12, 4, 9]]))[:, -1]
      >>> torch.allclose(tree.logits_UV, expected, atol=1e-5)
      True
    """

    def __init__(self, model: TinyLlama, ids: Sequence[int], *, depth: int) -> None:
        self.model = model
        shape, self.device = model.shape, model.head.device
        self._angles = rotary(shape, len(ids) + depth, device=self.device, dtype=model.head.dtype)
        empty = torch.empty((0, shape.dim), device=self.device, dtype=model.head.dtype)
        self._keys, self._values = [empty] * shape.layers, [empty] * shape.layers
        self._path_UA = torch.empty((1, 0), dtype=torch.long, device=self.device)  # numbers of the nodes on each path
        self.logits_UV: Float[Tensor, "U V"] = torch.empty((0, shape.vocab), device=self.device)
        for token in ids:
            self.step(None, torch.tensor([token]))

    @torch.no_grad()
    def step(self, parent_U: Int[Tensor, " U"] | None, token_U: Int[Tensor, " U"]) -> None:
        """Add a level: node u continues node `parent_U[u]` of the last level with `token_U[u]`; None continues each node once."""
        token_U = token_U.to(self.device)
        path_UA = self._path_UA if parent_U is None else self._path_UA[parent_U.to(self.device)]
        first = len(self._keys[0])
        own = first + torch.arange(len(token_U), device=self.device)
        self._path_UA = torch.cat([path_UA, own[:, None]], dim=1)
        room = torch.empty((len(token_U), self.model.shape.dim), device=self.device, dtype=self.model.head.dtype)
        self._keys = [torch.cat([keys, room]) for keys in self._keys]
        self._values = [torch.cat([values, room]) for values in self._values]
        parts = zip(torch.split(token_U, CHUNK), torch.split(self._path_UA, CHUNK), strict=True)
        self.logits_UV = torch.cat([self._forward(token, path) for token, path in parts])

    def _forward(self, token_U: Int[Tensor, " u"], path_UA: Int[Tensor, "u A"]) -> Float[Tensor, "u V"]:
        model, shape = self.model, self.model.shape
        x_UD = F.embedding(token_U, model.embed)
        for i, layer in enumerate(model.layers):
            assert isinstance(layer, Layer)
            x_UD = x_UD + self._attend(
                i, layer, F.rms_norm(x_UD, (shape.dim,), layer.attention_norm, shape.norm_eps), path_UA
            )
            gate, up = F.linear(F.rms_norm(x_UD, (shape.dim,), layer.mlp_norm, shape.norm_eps), layer.gate_up).chunk(
                2, dim=-1
            )
            x_UD = x_UD + F.linear(F.silu(gate) * up, layer.down)
        return F.linear(F.rms_norm(x_UD, (shape.dim,), model.norm, shape.norm_eps), model.head)

    def _attend(
        self, i: int, layer: Layer, x_UD: Float[Tensor, "u D"], path_UA: Int[Tensor, "u A"]
    ) -> Float[Tensor, "u D"]:
        """Attention of each node over its path; its own key and value are written on the way."""
        (U, A), H, E = path_UA.shape, self.model.shape.heads, self.model.shape.head_dim
        cos, sin = (part[A - 1].repeat(2) for part in self._angles)
        q_UHE, k_UHE, v_UHE = F.linear(x_UD, layer.qkv).view(U, 3, H, E).unbind(1)
        q_UHE, k_UHE = (z * cos + _quarter(z) * sin for z in (q_UHE, k_UHE))
        own = slice(int(path_UA[0, -1]), int(path_UA[-1, -1]) + 1)  # nodes of a level have consecutive numbers
        self._keys[i][own], self._values[i][own] = k_UHE.reshape(U, -1), v_UHE.reshape(U, -1)
        keys, values = (table[i][path_UA].view(U, A, H, E) for table in (self._keys, self._values))
        weight_UAH = ((q_UHE[:, None] * keys).sum(-1) * E**-0.5).softmax(1)
        return F.linear((weight_UAH[..., None] * values).sum(1).reshape(U, -1), layer.out)


def _quarter(z: Float[Tensor, "u H E"]) -> Float[Tensor, "u H E"]:
    """(a, b) -> (-b, a): the part that the sine multiplies when pairs (e, e + E/2) are turned."""
    a, b = z.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)
