"""Texts to features: pooled hidden states of any Hugging Face model, batched by length, each text embedded once.

The paper's featuriser is GPT2-large with the mean over tokens (App., "Precision and Recall for the WritingPrompts Task"; Le Bronnec et
al., 2024, take the last token). Equal texts get equal features to the bit, which the k-NN metrics' duplicates rely on.

Shapes: B texts of a batch, L tokens, D features, N texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from .embed_cache import FeatureCache, folder_fingerprint
from .embed_folder import Pooling, read_recipe

VERSION = 1
SAVE_EVERY = 1000  # texts between writes to the cache: a killed run loses no more


@dataclass(frozen=True, kw_only=True)
class EmbedSettings:
    """All that features depend on but the text. ``model_hash`` tells two checkpoints of one path apart."""

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
    """Features of some texts, and what was done to get them.

    Args:
      features: (N, D) float32.
      truncated: texts that were cut at ``settings.max_tokens``.
      empty: texts of blanks or nothing; their features are those of the tokenizer's marks, or of the end-of-text token alone.
    """

    features: NDArray[np.float32]
    settings: EmbedSettings
    truncated: int
    empty: int


@dataclass
class Embedder:
    """A model that turns texts into features; its weights are read once, when the first text is not in the cache.

    Args:
      model: a Hugging Face name or a folder; a sentence-transformers folder brings its own pooling, cut and normalisation.
      pooling: ``mean`` over tokens, ``last`` or ``first`` token; by default the folder's, else ``mean``.
      max_tokens: longer texts are cut; by default the folder's or the model's own limit.
      normalise: scale rows to length 1; by default the folder's, else no.
      device: where the model runs; by default a GPU if there is one.
      batch_tokens: padded tokens in one forward pass.
      dtype: of the weights; features come back in float32.
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
        recipe = read_recipe(Path(self.model))
        source = self._source = str(recipe.model if recipe else self.model)
        self._device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._tokenizer: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        config: Any = AutoConfig.from_pretrained(source, trust_remote_code=False)
        limit = position_limit(config, self._tokenizer)
        asked = self.max_tokens or (recipe.max_tokens if recipe else None) or limit
        commit = getattr(config, "_commit_hash", None)
        self.settings = EmbedSettings(
            model=str(self.model),
            model_hash=folder_fingerprint(Path(source)) if Path(source).is_dir() else f"{source}@{commit}",
            pooling=self.pooling or (recipe.pooling if recipe else "mean"),
            max_tokens=min(asked, limit),
            normalise=self.normalise if self.normalise is not None else bool(recipe and recipe.normalise),
            lowercase=bool(recipe and recipe.lowercase),
            dtype=str(self.dtype).removeprefix("torch."),
        )

    def __call__(
        self,
        texts: Sequence[str],
        *,
        cache: str | Path | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> EmbeddedTexts:
        """Features of some texts, in their order.

        Args:
          texts: at least one.
          cache: a folder in which features are kept and looked for.
          progress: called as (stage, done, total), in different texts.
        """
        check_texts(texts)
        kept = FeatureCache(cache, vars(self.settings) | {"model": ""}) if cache is not None else None
        different = sorted(set(texts))
        found = {text: row for text in different if kept and (row := kept.get(text)) is not None}
        missing = [text for text in different if text not in found]
        waiting: list[str] = []
        for batch, rows in self._embedded(missing):
            found.update(zip(batch, rows, strict=True))
            waiting += batch
            if kept is not None and (len(waiting) >= SAVE_EVERY or len(found) == len(different)):
                kept.put(waiting, np.stack([found[text] for text in waiting]))
                waiting = []
            if progress is not None:
                progress("embed", len(found), len(different))
        lengths = dict(zip(different, map(len, self._tokens(different, cut=False)), strict=True))
        return EmbeddedTexts(
            features=np.stack([found[text] for text in texts]),
            settings=self.settings,
            truncated=sum(lengths[text] > self.settings.max_tokens for text in texts),
            empty=sum(not text.strip() for text in texts),
        )

    @cached_property
    def _network(self) -> Any:
        """The weights, read when the first text is not in the cache."""
        from transformers import AutoModel

        network: Any = AutoModel.from_pretrained(self._source, dtype=self.dtype, trust_remote_code=False)
        network = network.get_encoder() if network.config.is_encoder_decoder else network
        return network.to(self._device).eval()

    def _tokens(self, texts: list[str], *, cut: bool) -> list[list[int]]:
        if not texts:
            return []
        given = [text.lower() for text in texts] if self.settings.lowercase else texts
        options = {"truncation": True, "max_length": self.settings.max_tokens} if cut else {"verbose": False}
        ids: list[list[int]] = self._tokenizer(given, padding=False, **options)["input_ids"]
        return ids

    def _embedded(self, texts: list[str]) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Batches of texts of like length with their features, shortest first."""
        end = next((i for i in (self._tokenizer.eos_token_id, self._tokenizer.sep_token_id) if i is not None), 0)
        ids = [tokens or [end] for tokens in self._tokens(texts, cut=True)]
        order = sorted(range(len(texts)), key=lambda place: len(ids[place]))
        batch: list[int] = []
        for place in order:
            if batch and (len(batch) + 1) * len(ids[place]) > self.batch_tokens:
                yield [texts[i] for i in batch], self._forward([ids[i] for i in batch])
                batch = []
            batch.append(place)
        if batch:
            yield [texts[i] for i in batch], self._forward([ids[i] for i in batch])

    @torch.no_grad()
    def _forward(self, ids: list[list[int]]) -> NDArray[np.float32]:
        longest = max(map(len, ids))
        tokens, mask = (
            torch.zeros(len(ids), longest, dtype=torch.int64),
            torch.zeros(len(ids), longest, dtype=torch.bool),
        )
        for row, of_text in enumerate(ids):
            tokens[row, : len(of_text)] = torch.tensor(of_text)
            mask[row, : len(of_text)] = True
        tokens, mask = tokens.to(self._device), mask.to(self._device)
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
    """One vector a text from its tokens' vectors; padding, where the mask is false, never counts.

    Examples:
      >>> hidden = torch.tensor([[[1.0], [3.0], [99.0]]])
      >>> [pool(hidden, torch.tensor([[True, True, False]]), how).item() for how in ("mean", "last", "first")]
      [2.0, 3.0, 1.0]
    """
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "last":
        return hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]
    return torch.where(mask[..., None], hidden, 0.0).sum(1) / mask.sum(1, keepdim=True)


def position_limit(config: Any, tokenizer: Any) -> int:
    """The longest text that the model has positions for."""
    limits = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    known = [limit for limit in [*limits, tokenizer.model_max_length] if isinstance(limit, int) and 0 < limit < 10**7]
    return min(known, default=512)


def check_texts(texts: Sequence[str]) -> None:
    """Refuse what is not a list of strings."""
    if isinstance(texts, str) or len(texts) == 0:
        raise ValueError("texts must be a list of at least one string")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts must be strings, text {place} is {type(text).__name__}")


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
    """`Embedder` for a single use.

    Args:
      texts: at least one.
      model: as in `Embedder`.
      pooling: as in `Embedder`.
      max_tokens: as in `Embedder`.
      normalise: as in `Embedder`.
      device: as in `Embedder`.
      cache: a folder in which features are kept and looked for.
      progress: called as (stage, done, total).
    """
    embedder = Embedder(model, pooling, max_tokens, normalise, device)
    return embedder(texts, cache=cache, progress=progress)
