"""Samples of a Hugging Face causal LM in this process.

Each prompt is read once for all its samples and all settings. Rows that have ended are taken out of the batch as it shrinks. The
random numbers belong to the sample (:mod:`widen.sample.philox`), so the batch decides nothing but the rounding of the logits.

Shapes: B rows of a batch, L positions of a sample, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from widen.disk.checksums import check_files
from widen.disk.digest import weights_digest

from .decoding import Settings
from .engine import Drawn, Have, Identity, Sample, nothing
from .philox import key, uniforms
from .plan import Encoded, Group, groups
from .prompts import Prompt
from .rows import Continued, continue_rows
from .stream import Prefilled, Stream, prefill

__all__ = ["LocalEngine"]


class LocalEngine:
    """A model and its tokenizer.

    Args:
      model: a causal LM of transformers, on the device and in the dtype it is to run in.
      tokenizer: its tokenizer.
      batch: rows drawn at a time. Samples are the same at every batch wherever the logits are: the shape of a batch changes the last
        bits of a matrix product, and a sample whose uniform falls that close to a boundary comes out differently.
      name: of the model in the files; its own unless given.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch: int = 256, name: str | None = None) -> None:
        if batch < 1:
            raise ValueError(f"batch={batch}: must be at least 1")
        self.model, self.tokenizer, self.batch = model.eval(), tokenizer, batch
        self.name = name or str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        self.prefilled = 0
        """Prompts read so far, each counted every time it is read."""
        self._ends = _end_tokens(model, tokenizer)

    @classmethod
    def load(
        cls, path: str, *, device: str | None = None, dtype: str = "auto", batch: int | None = None
    ) -> LocalEngine:
        """From a folder, or a name that transformers resolves. On a GPU if there is one, 2048 rows at a time there and 256 elsewhere."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        check_files(path)
        try:
            model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, trust_remote_code=False).to(device)
        except SafetensorError as error:
            raise ValueError(f"{path}: its weights are not a whole safetensors file: {error}") from None
        rows = batch or (2048 if device.startswith("cuda") else 256)
        return cls(model, AutoTokenizer.from_pretrained(path, trust_remote_code=False), batch=rows, name=path)

    def identity(self) -> Identity:
        """Name and fingerprint of the weights; two checkpoints under one path are two models."""
        details = {
            "batch": self.batch,
            "device": str(self.model.device),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "torch": torch.__version__,
        }
        return Identity(
            engine="local", name=self.name, model={"weights": weights_digest(self.model)[:12]}, details=details
        )

    def check(self, settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
        """Every method works here; a prompt may still be too long, or lack the text that KL guidance needs."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        most = max(setting.max_tokens for setting in settings)
        for encoded in self._encode(prompts, settings):
            longest = max(len(encoded.ids), len(encoded.without)) + most
            if limit is not None and longest > limit:
                raise ValueError(
                    f"prompt {encoded.prompt.id!r} has {len(encoded.ids)} tokens; with max_tokens={most} that is "
                    f"{longest}, and the model takes {limit}"
                )

    def draw(
        self, prompts: Sequence[Prompt], settings: Sequence[Settings], *, num: int, have: Have = nothing
    ) -> Iterator[Drawn]:
        """Samples in batches, by neighbours in length. A batch with any sample missing is drawn whole, so that it comes out the same."""
        for group in groups(self._encode(prompts, settings), num=num, batch=self.batch):
            missing = [
                (setting, block)
                for setting in settings
                for block in group.blocks
                if not all(have(setting, member.prompt.id, i) for member in group.members for i in block)
            ]
            if not missing:
                continue
            read = self._read(group, settings)
            for setting, block in missing:
                yield Drawn(setting, self._continue(group, read, setting, block))

    def _encode(self, prompts: Sequence[Prompt], settings: Sequence[Settings]) -> list[Encoded]:
        """Prompts as tokens, with what the second stream of KL guidance starts from."""
        fields = {s.decoding.without for s in settings if s.decoding.kl_sigma is not None}
        if len(fields) > 1:
            raise ValueError("without=bos and without=field in one call: sample them one after the other")
        return [Encoded(p, self._ids(p), self._without(p, *fields) if fields else ()) for p in prompts]

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        ids = prompt.ids if prompt.ids is not None else tuple(self.tokenizer(prompt.text).input_ids)
        return ids or (self._first_token(),)

    def _without(self, prompt: Prompt, kind: str) -> tuple[int, ...]:
        if kind == "bos":
            return (self._first_token(),)
        if prompt.without is None:
            raise ValueError(f"prompt {prompt.id!r} has no 'without' text, which without=field needs")
        return tuple(self.tokenizer(prompt.without).input_ids) or (self._first_token(),)

    def _first_token(self) -> int:
        for source in (self.tokenizer, self.model.config):
            if (token := getattr(source, "bos_token_id", None)) is not None:
                return int(token)
        if self._ends:
            return self._ends[0]  # GPT-2 and its kin begin a text with the token that ends one
        raise ValueError(
            f"{self.name} has neither a first nor an end token: there is nothing to start an empty prompt from"
        )

    def _read(self, group: Group, settings: Sequence[Settings]) -> tuple[Prefilled, Prefilled | None]:
        self.prefilled += len(group.members)
        guided = any(s.decoding.kl_sigma is not None for s in settings)
        second = prefill(self.model, [m.without for m in group.members]) if guided else None
        return prefill(self.model, [m.ids for m in group.members]), second

    def _continue(
        self, group: Group, read: tuple[Prefilled, Prefilled | None], settings: Settings, block: range
    ) -> list[Sample]:
        """Draw the samples `block` of every member of the group."""
        rows = [(member, index) for member in group.members for index in block]
        of_prompt = torch.arange(len(group.members), device=self.model.device).repeat_interleave(len(block))
        room = settings.max_tokens
        first = Stream(self.model, read[0], of_prompt, room=room)
        second = (
            Stream(self.model, read[1], of_prompt, room=room)
            if settings.decoding.kl_sigma is not None and read[1]
            else None
        )
        uniform_BL = None
        if not settings.decoding.greedy:
            keys = [key(settings.seed, member.prompt.id, settings.decoding.temperature) for member, _ in rows]
            drawn = uniforms(np.array(keys, np.uint64), np.array([index for _, index in rows]), room)
            uniform_BL = torch.from_numpy(drawn).to(self.model.device)
        result = continue_rows(first, second, settings, uniform_BL, ends=self._ends)
        return self._samples(rows, result)

    def _samples(self, rows: list[tuple[Encoded, int]], result: Continued) -> list[Sample]:
        """Rows as records."""
        ids = [tokens[:n].tolist() for tokens, n in zip(result.tokens_BL, result.length_B.tolist(), strict=True)]
        texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return [
            Sample(
                prompt=member.prompt.id,
                index=index,
                text=text,
                finish="stop" if tokens[-1] in self._ends else "length",
                prompt_tokens=len(member.ids),
                num_tokens=len(tokens),
                logq=float(logq),
                sampler=float(sampler),
                ids=tuple(tokens),
            )
            for (member, index), tokens, text, logq, sampler in zip(
                rows, ids, texts, result.logq_B.tolist(), result.sampler_B.tolist(), strict=True
            )
        ]


def _end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """The tokens that end a text, by the model's generation settings, or else by the tokenizer."""
    found = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if found is None:
        found = getattr(tokenizer, "eos_token_id", None)
    if found is None:
        return ()
    return tuple(found) if isinstance(found, (list, tuple)) else (int(found),)
