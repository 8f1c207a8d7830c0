"""Texts to features: pooled hidden states of any Hugging Face model, batched by length, each text embedded once.

The paper uses GPT2-large and the mean over tokens (App., "Precision and Recall for the WritingPrompts Task"). Equal texts get equal
features to the bit; the k-NN metrics need this to see duplicates.

Shapes: B texts of a batch, L tokens, D features, N texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from .embed_cache import FeatureCache, folder_fingerprint
from .ngrams import check_texts

Pooling = Literal["mean", "last", "first"]

MODES: dict[str, Pooling] = {"mean": "mean", "lasttoken": "last", "cls": "first"}
FLAGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "lasttoken", "pooling_mode_cls_token": "cls"}

VERSION = 1
SAVE_EVERY = 1000  # texts between writes to the cache; a killed run loses at most these


@dataclass(frozen=True, kw_only=True)
class EmbedSettings:
    """Everything but the text that features depend on. ``model_hash`` distinguishes two checkpoints with the same path."""

    model: str
    model_hash: str
    pooling: Pooling
    max_tokens: int
    normalise: bool
    lowercase: bool
    dtype: str
    version: int = VERSION


@dataclass(frozen=True)
class EmbeddedTexts:
    """Features of texts.

    Args:
      features: (N, D) float32.
      truncated: number of texts cut at ``settings.max_tokens``.
      empty: number of texts without content; their features are those of the tokenizer's special tokens.
    """

    features: NDArray[np.float32]
    settings: EmbedSettings
    truncated: int
    empty: int


@dataclass
class Embedder:
    """A model that turns texts into features. Its weights are loaded when the first text is not in the cache.

    Args:
      model: a Hugging Face name or a folder. A sentence-transformers folder sets the defaults of pooling, max_tokens and normalise.
      pooling: ``mean`` over tokens, ``last`` or ``first`` token; by default ``mean``.
      max_tokens: longer texts are cut; by default the model's limit.
      normalise: scale rows to length 1; by default no.
      device: where the model runs; by default a GPU if there is one.
      batch_tokens: padded tokens in one forward pass.
      dtype: of the weights; features are float32.
    """

    model: str | Path = "gpt2-large"
    pooling: Pooling | None = None
    max_tokens: int | None = None
    normalise: bool | None = None
    device: str | torch.device | None = None
    batch_tokens: int = 16384
    dtype: torch.dtype = torch.float32
    settings: EmbedSettings = field(init=False)

    def __post_init__(self) -> None:
        from transformers import AutoConfig, AutoTokenizer

        if self.pooling is not None and self.pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, got {self.pooling!r}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        recipe = read_recipe(self.model)
        source = self._source = recipe["model"]
        self._device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
            config: Any = AutoConfig.from_pretrained(source, trust_remote_code=False)
        except (OSError, ValueError) as error:
            place = "" if Path(source).exists() else " (there is no folder of that name here)"
            reason = (str(error).strip().splitlines() or [""])[0]
            raise FileNotFoundError(f"the embedder {source!r} cannot be loaded{place}: {reason}") from None
        limits = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
        limits.append(self._tokenizer.model_max_length)
        limit = min((n for n in limits if isinstance(n, int) and 0 < n < 10**7), default=512)
        commit = getattr(config, "_commit_hash", None)
        self.settings = EmbedSettings(
            model=str(self.model),
            model_hash=folder_fingerprint(Path(source)) if Path(source).is_dir() else f"{source}@{commit}",
            pooling=self.pooling or recipe["pooling"],
            max_tokens=min(self.max_tokens or recipe["max_tokens"] or limit, limit),
            normalise=recipe["normalise"] if self.normalise is None else self.normalise,
            lowercase=recipe["lowercase"],
            dtype=str(self.dtype).removeprefix("torch."),
        )

    def __call__(
        self,
        texts: Sequence[str],
        *,
        cache: str | Path | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> EmbeddedTexts:
        """Features of texts, in their order.

        Args:
          cache: a folder where features are stored and looked up.
          progress: called as (stage, done, total), counting different texts.
        """
        check_texts(texts)
        kept = FeatureCache(cache, vars(self.settings) | {"model": ""}) if cache is not None else None
        different = sorted(set(texts))
        found = {text: row for text in different if kept and (row := kept.get(text)) is not None}
        waiting: list[str] = []
        for batch, rows in self._embedded([text for text in different if text not in found]):
            found.update(zip(batch, rows, strict=True))
            waiting += batch
            if kept is not None and (len(waiting) >= SAVE_EVERY or len(found) == len(different)):
                kept.put(waiting, np.stack([found[text] for text in waiting]))
                waiting = []
            if progress is not None:
                progress("embed", len(found), len(different))
        lengths = dict(zip(different, map(len, self._tokens(different, verbose=False)), strict=True))
        return EmbeddedTexts(
            features=np.stack([found[text] for text in texts]),
            settings=self.settings,
            truncated=sum(lengths[text] > self.settings.max_tokens for text in texts),
            empty=sum(not text.strip() for text in texts),
        )

    @cached_property
    def _network(self) -> Any:
        from transformers import AutoModel

        network: Any = AutoModel.from_pretrained(self._source, dtype=self.dtype, trust_remote_code=False)
        network = network.get_encoder() if network.config.is_encoder_decoder else network
        return network.to(self._device).eval()

    def _tokens(self, texts: list[str], **options: Any) -> list[list[int]]:
        given = [text.lower() for text in texts] if self.settings.lowercase else texts
        ids: list[list[int]] = self._tokenizer(given, padding=False, **options)["input_ids"] if texts else []
        return ids

    def _embedded(self, texts: list[str]) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Batches of texts of similar length with their features, shortest first."""
        end = next((i for i in (self._tokenizer.eos_token_id, self._tokenizer.sep_token_id) if i is not None), 0)
        cut = self._tokens(texts, truncation=True, max_length=self.settings.max_tokens)
        queue = sorted(zip(texts, (ids or [end] for ids in cut), strict=True), key=lambda pair: len(pair[1]))
        while queue:
            size = 1
            while size < len(queue) and (size + 1) * len(queue[size][1]) <= self.batch_tokens:
                size += 1
            batch, queue = queue[:size], queue[size:]
            yield [text for text, _ in batch], self._forward([ids for _, ids in batch])

    @torch.no_grad()
    def _forward(self, ids: list[list[int]]) -> NDArray[np.float32]:
        tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(one) for one in ids], batch_first=True).to(self._device)
        lengths = torch.tensor([len(one) for one in ids], device=self._device)
        mask = torch.arange(tokens.shape[1], device=self._device) < lengths[:, None]
        hidden = self._network(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        rows = pool(hidden.float(), mask, self.settings.pooling)
        if self.settings.normalise:
            rows = torch.nn.functional.normalize(rows, dim=1)
        if not bool(rows.isfinite().all()):
            raise ValueError(
                f"{self.settings.model} gave features that are not finite in {self.settings.dtype}: use dtype=torch.float32"
            )
        result: NDArray[np.float32] = rows.cpu().numpy()
        return result


def pool(hidden: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"], pooling: Pooling) -> Float[Tensor, "B D"]:
    """One vector per text from the vectors of its tokens; padding, where the mask is false, does not count."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "last":
        return hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]
    return torch.where(mask[..., None], hidden, 0.0).sum(1) / mask.sum(1, keepdim=True)


def read_recipe(model: str | Path) -> dict[str, Any]:
    """How a sentence-transformers folder, which has ``modules.json``, makes its features; the defaults for any other model.

    The keys are settings of `Embedder`, ``lowercase``, and ``model``, the name or folder of the transformer. An unknown stage or
    pooling is an error.
    """
    listed = Path(model) / "modules.json"
    if not listed.is_file():
        return {"model": str(model), "pooling": "mean", "normalise": False, "max_tokens": None, "lowercase": False}
    stages = sorted(json.loads(listed.read_text()), key=lambda stage: stage["idx"])
    kinds = [str(stage["type"]).rsplit(".", 1)[-1] for stage in stages]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(f"{listed}: stages must be Transformer, Pooling and perhaps Normalize, got {', '.join(kinds)}")
    transformer, pooling_file = (Path(model) / stage["path"] for stage in stages[:2])
    pooling_file /= "config.json"
    if not pooling_file.is_file():
        raise FileNotFoundError(
            f"{pooling_file}: there is no such file, though {listed} names its folder; copy the whole model"
        )
    limits, pooling = (
        json.loads(file.read_text()) if file.is_file() else {}
        for file in (transformer / "sentence_bert_config.json", pooling_file)
    )
    on = [name for name, value in pooling.items() if name.startswith("pooling_mode_") and value is True]
    modes = [FLAGS.get(name, name) for name in on] or [str(pooling.get("pooling_mode", "none"))]
    if len(modes) != 1 or modes[0] not in MODES:
        legal = ", ".join(get_args(Pooling))
        raise ValueError(f"{pooling_file}: pooling must be one of {legal}, got {', '.join(modes)}")
    return {
        "model": str(transformer),
        "pooling": MODES[modes[0]],
        "normalise": kinds[-1] == "Normalize",
        "max_tokens": limits.get("max_seq_length"),
        "lowercase": bool(limits.get("do_lower_case", False)),
    }


def embed_texts(
    texts: Sequence[str],
    *,
    model: str | Path = "gpt2-large",
    pooling: Pooling | None = None,
    max_tokens: int | None = None,
    normalise: bool | None = None,
    device: str | torch.device | None = None,
    cache: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> EmbeddedTexts:
    """`Embedder` for a single use; the arguments are those of `Embedder` and of its call."""
    return Embedder(model, pooling, max_tokens, normalise, device)(texts, cache=cache, progress=progress)
