"""Samples of the paper's small Llama on the integer task: sequences of a fixed length, a hundred thousand in seconds on a CPU.

Samples that begin alike have the same next-token law, so it is computed once for each distinct prefix
(:mod:`widen.sample.prefix_tree`); each sample then draws from it with its own uniform, as in every other engine.

Shapes: B samples, U distinct prefixes, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from widen.data.mulmod import BOS, MulMod
from widen.models.tiny_llama import TinyLlama

from .decoding import Settings
from .draw import choose
from .engine import Drawn, Have, Identity, Sample, nothing
from .philox import key, uniforms
from .prefix_tree import PrefixTree
from .processors import apply_steps, pipeline
from .prompts import Prompt

__all__ = ["UNPROMPTED", "MulModEngine"]

UNPROMPTED = Prompt(id="bos", ids=(BOS,))
"""The empty prompt of the task: its first token alone."""

_CHARACTERS = "0123456789x="


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
        length = min(settings.max_tokens, self.task.length + 1 - len(ids))
        index = np.arange(block.start, block.stop)
        keys = np.full(len(index), key(settings.seed, prompt.id, settings.decoding.temperature), np.uint64)
        uniform = None if settings.decoding.greedy else torch.from_numpy(uniforms(keys, index, length))
        drawn = _draw(self.model, ids, settings, uniform, rows=len(index), length=length)
        texts = self.task.text(drawn.tokens_BT.numpy()[:, len(ids) - 1 :])
        whole = len(ids) + length == 1 + self.task.length
        return [
            Sample(
                prompt.id,
                i,
                text,
                "stop" if whole else "length",
                len(ids),
                length,
                logq,
                sampler,
                tuple(tokens[len(ids) :]),
            )
            for i, text, tokens, logq, sampler in zip(
                index.tolist(),
                texts,
                drawn.tokens_BT.tolist(),
                drawn.logq_B.tolist(),
                drawn.sampler_B.tolist(),
                strict=True,
            )
        ]


class _Rows(NamedTuple):
    """Whole sequences, prompt included, and their log-probabilities given the prompt."""

    tokens_BT: Int[Tensor, "B T"]
    logq_B: Float[Tensor, " B"]
    sampler_B: Float[Tensor, " B"]


@torch.inference_mode()
def _draw(
    model: TinyLlama,
    ids: tuple[int, ...],
    settings: Settings,
    uniform_BL: Float[Tensor, "B L"] | None,
    *,
    rows: int,
    length: int,
) -> _Rows:
    """Token after token; `prefix_U` holds the distinct beginnings, `row_B` which of them each sample has."""
    steps, vocab = pipeline(settings.decoding), model.shape.vocab
    tree = PrefixTree(model, ids, depth=length)
    prefix_U, row_B = torch.tensor([ids]), torch.zeros(rows, dtype=torch.long)
    logq_B, sampler_B = torch.zeros(rows, dtype=torch.float64), torch.zeros(rows, dtype=torch.float64)
    for position in range(length):
        logits_UV = tree.logits_UV.float().cpu()
        temperature_U = logits_UV.new_full((len(logits_UV),), settings.decoding.temperature)
        scores_UV = apply_steps(steps, logits_UV, temperature_U) if steps else None
        chosen = choose(
            logits_UV[row_B],
            scores_UV[row_B] if scores_UV is not None else None,
            uniform_BL[:, position] if uniform_BL is not None else None,
        )
        logq_B += chosen.logq_B
        sampler_B += chosen.sampler_B
        # A prefix and its next token as one number; only those that were drawn go on.
        drawn, row_B = torch.unique(row_B * vocab + chosen.token_B, return_inverse=True)
        parent_U, token_U = drawn // vocab, drawn % vocab
        prefix_U = torch.cat([prefix_U[parent_U], token_U[:, None]], dim=1)
        if position + 1 < length:
            tree.grow(parent_U, token_U)
    return _Rows(prefix_U[row_B], logq_B, sampler_B)
