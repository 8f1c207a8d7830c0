"""Samples of the paper's small Llama on the integer task: sequences of a fixed length, 100,000 in seconds on a CPU.

Shapes: U distinct prefixes, L positions, V vocabulary.
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
from widen.models.tiny_llama import TinyLlama

from ..decoding import Settings
from ..engine import Drawn, Have, Identity, Sample, nothing
from ..philox import key, uniforms
from ..prompts import Prompt
from ..shared_prefixes import continue_samples

UNPROMPTED = Prompt(id="bos", ids=(BOS,))
"""The prompt of the integer task: its first token alone."""

_CHARACTERS = "0123456789x="

CHUNK = 4096  # rows per forward pass: a few megabytes of activations


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
        if ids[:1] != (BOS,) or len(ids) > self.task.length:
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
        drawn = continue_samples(TokenRows(self.model, ids), start, settings.decoding, uniform, length=length)
        texts = self.task.text(np.insert(drawn.ids, 0, ids[-1], axis=1))  # `text` leaves out the first column
        finish: Literal["stop", "length"] = "stop" if length == left else "length"
        return [
            Sample(prompt.id, i, text, finish, len(ids), length, logq, sampler, tuple(tokens))
            for i, text, tokens, logq, sampler in zip(block, texts, *drawn, strict=True)
        ]


class TokenRows:
    """The model after U continuations of `ids`. Sequences are short, so every step reads them whole again."""

    def __init__(self, model: TinyLlama, ids: Sequence[int]) -> None:
        self.model = model
        self._read(torch.tensor([ids], device=model.head.device))

    def step(self, parent_U: Int[Tensor, " U"] | None, token_U: Int[Tensor, " U"]) -> None:
        """Row u becomes row `parent_U[u]` followed by `token_U[u]`; None keeps the order of the rows."""
        rows = self._tokens_UL if parent_U is None else self._tokens_UL[parent_U]
        self._read(torch.cat([rows, token_U[:, None]], dim=1))

    @torch.no_grad()
    def _read(self, tokens_UL: Int[Tensor, "U L"]) -> None:
        self._tokens_UL = tokens_UL
        last = [F.linear(self.model(part)[:, -1], self.model.head) for part in torch.split(tokens_UL, CHUNK)]
        self.logits_UV: Float[Tensor, "U V"] = torch.cat(last)
