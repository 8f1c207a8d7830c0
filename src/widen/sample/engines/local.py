"""Samples of a Hugging Face causal LM in this process.

Each prompt is read once for all its samples and settings, and each distinct prefix of the samples is computed once. The random numbers
belong to the sample, so the batch changes nothing but the rounding of the logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError

from widen.data.tasks.conversations import template_ids
from widen.disk.checksums import check_files
from widen.disk.digest import weights_digest

from ..chat import StopStrings, check_chat, cut_at, turns
from ..decoding import Settings
from ..engine import Drawn, Have, Identity, Sample, nothing
from ..philox import key, uniforms
from ..prompts import Prompt
from ..shared_prefixes import continue_samples

if TYPE_CHECKING:
    from .cached_model import CachedModel


DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
"""Of the weights; ``auto`` takes them as they were saved."""


class PromptTokens(NamedTuple):
    """A prompt as tokens."""

    prompt: Prompt
    ids: tuple[int, ...]
    without: tuple[int, ...] = ()  # what the second stream of KL guidance starts from


def batches(prompts: Sequence[PromptTokens], *, most: int, read: int = 65_536) -> Iterator[list[PromptTokens]]:
    """At most `most` prompts of similar length at a time, and about `read` tokens; the order of the prompts does not matter."""
    members: list[PromptTokens] = []
    for one in sorted(prompts, key=lambda one: (len(one.ids), one.ids, one.prompt.id)):
        if members and (len(members) == most or (len(members) + 1) * len(one.ids) > read):
            yield members
            members = []
        members.append(one)
    if members:
        yield members


class LocalEngine:
    """A model and its tokenizer.

    Args:
      model: a causal LM of transformers, on its device and in its dtype.
      tokenizer: its tokenizer. With None, prompts must be token ids, and samples have token ids and an empty text.
      batch: samples drawn at a time. The shape of a batch changes the last bits of the logits, so a sample can differ between two batch
        sizes if its uniform falls that close to a boundary.
      name: of the model in the files; its own unless given.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch: int = 256, name: str | None = None) -> None:
        if batch < 1:
            raise ValueError(f"batch={batch}: must be at least 1")
        self.model, self.tokenizer, self.batch = model.eval(), tokenizer, batch
        self.name = name or str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        self.prefilled = 0  # prompts read so far; a prompt that is read twice counts twice
        self._ends = _end_tokens(model, tokenizer)

    @classmethod
    def load(
        cls, path: str, *, device: str | None = None, dtype: str = "auto", batch: int | None = None
    ) -> LocalEngine:
        """Load a folder or a name that transformers resolves. Defaults: a GPU if there is one; a batch of 2048 there, 256 elsewhere."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if dtype not in DTYPES:
            raise ValueError(f"dtype={dtype!r}: must be one of {', '.join(DTYPES)}")
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
        notes = ("no tokenizer: samples have token ids and no text",) if self.tokenizer is None else ()
        weights = {"weights": weights_digest(self.model)[:12]}
        return Identity(engine="local", name=self.name, model=weights, details=details, notes=notes)

    def check(self, settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
        """Refuse a prompt that is too long, that needs a tokenizer or a chat template, or that lacks the text KL guidance needs."""
        check_chat(settings, prompts)
        if self.tokenizer is None and any(setting.stop for setting in settings):
            raise ValueError("tokenizer=None: stop strings are found in texts, and without a tokenizer there is none")
        limit = getattr(self.model.config, "max_position_embeddings", None)
        most = max(setting.max_tokens for setting in settings)
        for one in self._encode(prompts, settings):
            longest = max(len(one.ids), len(one.without)) + most
            if limit is not None and longest > limit:
                raise ValueError(
                    f"prompt {one.prompt.id!r} has {len(one.ids)} tokens; with max_tokens={most} that is "
                    f"{longest}, and the model takes {limit}"
                )

    def draw(
        self, prompts: Sequence[Prompt], settings: Sequence[Settings], *, num: int, have: Have = nothing
    ) -> Iterator[Drawn]:
        """Samples in batches. A batch with any sample missing is drawn whole, so that its samples are the same to the last bit."""
        from .cached_model import CachedModel

        blocks = [range(start, min(start + self.batch, num)) for start in range(0, num, self.batch)]
        guided = any(setting.decoding.kl_sigma is not None for setting in settings)
        for batch in batches(self._encode(prompts, settings), most=max(1, self.batch // num)):
            missing = [
                (setting, block)
                for setting in settings
                for block in blocks
                if not all(have(setting, one.prompt.id, i) for one in batch for i in block)
            ]
            if not missing:
                continue
            self.prefilled += len(batch)
            prompted = CachedModel(self.model, [one.ids for one in batch])
            unprompted = CachedModel(self.model, [one.without for one in batch]) if guided else None
            for setting, block in missing:
                second = unprompted if setting.decoding.kl_sigma is not None else None
                yield Drawn(setting, self._continue(batch, prompted, second, setting, block))

    def _encode(self, prompts: Sequence[Prompt], settings: Sequence[Settings]) -> list[PromptTokens]:
        fields = {s.decoding.without for s in settings if s.decoding.kl_sigma is not None}
        if len(fields) > 1:
            raise ValueError("without=bos and without=field in one call: sample them one after the other")
        one = settings[0]
        return [PromptTokens(p, self._ids(p, one), self._without(p, one, *fields) if fields else ()) for p in prompts]

    def _ids(self, prompt: Prompt, settings: Settings) -> tuple[int, ...]:
        """The tokens of a prompt; an empty text is the model's first token."""
        if prompt.ids is not None:
            return prompt.ids or (self._first_token(),)
        if self.tokenizer is None:
            raise ValueError(
                f"tokenizer=None, but prompt {prompt.id!r} is a text: give a tokenizer, or Prompt(ids=...)"
            )
        if settings.chat:
            return tuple(template_ids(self.tokenizer, turns(prompt, settings), ask=True))
        return tuple(self.tokenizer(prompt.text).input_ids) or (self._first_token(),)

    def _without(self, prompt: Prompt, settings: Settings, kind: str) -> tuple[int, ...]:
        if kind == "bos":
            return (self._first_token(),)
        if prompt.without is None:
            raise ValueError(f"prompt {prompt.id!r} has no 'without' text, which without=field needs")
        return self._ids(Prompt(text=prompt.without, id=prompt.id), settings)

    def _first_token(self) -> int:
        for source in (self.tokenizer, self.model.config):
            if (token := getattr(source, "bos_token_id", None)) is not None:
                return int(token)
        if self._ends:
            return self._ends[0]  # GPT-2 and its relatives begin a text with the token that ends one
        raise ValueError(f"{self.name} has neither a first nor an end token: an empty prompt has nothing to start from")

    def _continue(
        self,
        batch: list[PromptTokens],
        first: CachedModel,
        second: CachedModel | None,
        settings: Settings,
        block: range,
    ) -> list[Sample]:
        """Draw the samples `block` of every prompt of the batch."""
        samples = [(member, index) for member in batch for index in block]
        uniform_BL = None
        if not settings.decoding.greedy:
            keys = [key(settings.seed, member.prompt.id, settings.decoding.temperature) for member, _ in samples]
            drawn = uniforms(np.array(keys, np.uint64), np.array([i for _, i in samples]), settings.max_tokens)
            uniform_BL = torch.from_numpy(drawn).to(self.model.device)
        stops = StopStrings(settings.stop, self.tokenizer)
        ends = (*self._ends, *stops.tokens)
        result = continue_samples(
            first.fork(),
            torch.arange(len(batch), device=self.model.device).repeat_interleave(len(block)),
            settings.decoding,
            uniform_BL,
            length=settings.max_tokens,
            ends=ends,
            unprompted=second.fork() if second is not None else None,
            stops=stops if stops.texts else None,
        )
        texts = [""] * len(samples)
        if self.tokenizer is not None:
            texts = self.tokenizer.batch_decode(result.ids, skip_special_tokens=True)
        whole = [cut_at(text, stops.texts) for text in texts]  # None: no stop string
        return [
            Sample(
                prompt=member.prompt.id,
                index=index,
                text=text if answer is None else answer,
                finish="stop" if tokens[-1] in ends or answer is not None else "length",
                prompt_tokens=len(member.ids),
                num_tokens=len(tokens),
                logq=logq,
                sampler=sampler,
                ids=tuple(tokens),
            )
            for (member, index), text, answer, tokens, logq, sampler in zip(samples, texts, whole, *result, strict=True)
        ]


def _end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """The tokens that end a text, by the model's generation settings, or else by the tokenizer."""
    found = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if found is None:
        found = getattr(tokenizer, "eos_token_id", None)
    if found is None:
        return ()
    return tuple(found) if isinstance(found, (list, tuple)) else (int(found),)
