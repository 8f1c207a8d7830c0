"""Samples of the paper's small Llama on the integer task: sequences of a fixed length, 100,000 in seconds on a CPU.

Shapes: U nodes of a level, A ancestors of a node including itself, D hidden, H heads, E = D/H, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from widen.data.mulmod import BOS, MulMod
from widen.models.tiny_llama import Layer, TinyLlama, rotary

from ..decoding import Settings
from ..engine import Drawn, Have, Identity, Sample, nothing
from ..philox import key, uniforms
from ..prompts import Prompt
from ..shared_prefixes import continue_samples

__all__ = ["UNPROMPTED", "MulModEngine", "PrefixTree"]

UNPROMPTED = Prompt(id="bos", ids=(BOS,))
"""The prompt of the integer task: its first token alone."""

_CHARACTERS = "0123456789x="

CHUNK = 4096  # nodes per forward pass: a few megabytes of activations, which stay in the CPU's cache


class MulModEngine:
    """A trained small Llama and its task.

    Args:
      model: on any device.
      task: gives the length of a sequence.
      batch: samples drawn at a time.
      name: of the model in the files.
    """

    def __init__(self, model: TinyLlama, task: MulMod, *, batch: int = 100_000, name: str = "mulmod") -> None:
        if batch < 1:
            raise ValueError(f"batch={batch}: must be at least 1")
        self.model, self.task, self.batch, self.name = model.eval(), task, batch, name

    def identity(self) -> Identity:
        """Name and fingerprint of all the weights."""
        digest = hashlib.sha256(self.model.flat().cpu().numpy().tobytes()).hexdigest()[:12]
        details = {"batch": self.batch, "device": str(self.model.head.device), "torch": torch.__version__}
        return Identity(engine="mulmod", name=self.name, model={"weights": digest}, details=details)

    def check(self, settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
        """Refuse KL guidance, which needs a prompt to leave out, and prompts that are not of the task."""
        if any(setting.chat or setting.stop for setting in settings):
            raise ValueError(
                "the integer task has neither a chat template nor texts that end early: leave chat and stop out"
            )
        if any(setting.decoding.kl_sigma is not None for setting in settings):
            raise ValueError("kl_sigma needs a prompt to compare with; the integer task is sampled without one")
        for prompt in prompts:
            self._ids(prompt)

    def draw(
        self, prompts: Sequence[Prompt], settings: Sequence[Settings], *, num: int, have: Have = nothing
    ) -> Iterator[Drawn]:
        """Samples in blocks of `batch`."""
        for setting in settings:
            for prompt in prompts:
                for start in range(0, num, self.batch):
                    block = range(start, min(start + self.batch, num))
                    if not all(have(setting, prompt.id, i) for i in block):
                        yield Drawn(setting, self._block(prompt, setting, block))

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        """BOS and what follows it; a text such as ``42x`` is a prompt too."""
        if wrong := set(prompt.text) - set(_CHARACTERS):
            raise ValueError(f"prompt {prompt.id!r}: {sorted(wrong)[0]!r} is none of the task's signs {_CHARACTERS}")
        ids = prompt.ids if prompt.ids is not None else (BOS, *(_CHARACTERS.index(c) for c in prompt.text))
        if ids[0] != BOS or len(ids) > self.task.length:
            raise ValueError(
                f"prompt {prompt.id!r}: needs BOS ({BOS}) first and at most {self.task.length - 1} tokens after it"
            )
        if max(ids) >= self.model.shape.vocab:
            raise ValueError(f"prompt {prompt.id!r}: the model has no token {max(ids)}")
        return ids

    def _block(self, prompt: Prompt, settings: Settings, block: range) -> list[Sample]:
        ids = self._ids(prompt)
        left = self.task.length + 1 - len(ids)
        length = min(settings.max_tokens, left)
        index, device = np.arange(block.start, block.stop), self.model.head.device
        keys = np.full(len(index), key(settings.seed, prompt.id, settings.decoding.temperature), np.uint64)
        uniform = None if settings.decoding.greedy else torch.from_numpy(uniforms(keys, index, length)).to(device)
        start = torch.zeros(len(index), dtype=torch.long, device=device)
        tree = PrefixTree(self.model, ids, depth=length)
        drawn = continue_samples(tree, start, settings.decoding, uniform, length=length)
        texts = self.task.text(np.insert(drawn.ids, 0, ids[-1], axis=1))  # `text` leaves out the first column
        finish: Literal["stop", "length"] = "stop" if length == left else "length"
        return [
            Sample(prompt.id, i, text, finish, len(ids), length, logq, sampler, tuple(tokens))
            for i, text, tokens, logq, sampler in zip(block, texts, *drawn, strict=True)
        ]


class PrefixTree:
    """The model after many continuations of `ids`, which form a tree.

    Each node stores its keys and values once, and attention gathers them along the node's path. So a new level costs one token per node.
    `logits_UV` belongs to the nodes of the last level.

    Args:
      model: on any device; results stay there.
      ids: at least one token.
      depth: the largest number of levels below `ids`.
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
        turn = torch.cat([-sin[: E // 2], sin[: E // 2]])  # pairs (e, e + E/2) are rotated
        q_UHE, k_UHE, v_UHE = F.linear(x_UD, layer.qkv).view(U, 3, H, E).unbind(1)
        q_UHE, k_UHE = (z * cos + z.roll(E // 2, -1) * turn for z in (q_UHE, k_UHE))
        own = slice(int(path_UA[0, -1]), int(path_UA[-1, -1]) + 1)  # nodes of a level have consecutive numbers
        self._keys[i][own], self._values[i][own] = k_UHE.reshape(U, -1), v_UHE.reshape(U, -1)
        keys, values = (table[i][path_UA].view(U, A, H, E) for table in (self._keys, self._values))
        weight_UAH = ((q_UHE[:, None] * keys).sum(-1) * E**-0.5).softmax(1)
        return F.linear((weight_UAH[..., None] * values).sum(1).reshape(U, -1), layer.out)
