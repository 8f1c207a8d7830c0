"""A Hugging Face model after many prefixes, with one row of its own key-value cache per prefix.

Shapes: P prompts, U prefixes, S positions so far, V vocabulary.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


class CachedModel:
    """Reads the prompts in one forward pass; `step` then adds one token to each prefix.

    Args:
      model: a causal LM of transformers.
      prompts: token ids. Shorter ones are padded on the left, so that new tokens share one column.
    """

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]]) -> None:
        from .growing_cache import replace_plain_layers

        self.model = model
        self._known = inspect.signature(model.forward).parameters
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=model.device)
        self._mask_US = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        self._cache: Any = None
        self.logits_UV: Float[Tensor, "U V"] = self._forward(ids, (self._mask_US.cumsum(1) - 1).clamp(min=0))
        if self._cache is None:
            raise ValueError(
                f"{type(model).__name__} keeps no key-value cache; only models with one can be sampled here"
            )
        replace_plain_layers(self._cache)

    def fork(self) -> CachedModel:
        """A copy that can be continued on its own."""
        fork = copy.copy(self)
        fork._cache = copy.deepcopy(self._cache)
        return fork

    def step(self, parent_U: Int[Tensor, " U"] | None, token_U: Int[Tensor, " U"]) -> None:
        """Prefix u becomes prefix `parent_U[u]` followed by `token_U[u]`; None keeps the order of the prefixes."""
        if parent_U is not None:
            self._reorder(parent_U)
            self._mask_US = self._mask_US[parent_U]
        position_U1 = self._mask_US.sum(1, keepdim=True)
        self._mask_US = torch.cat([self._mask_US, torch.ones_like(position_U1)], dim=1)
        self.logits_UV = self._forward(token_U[:, None], position_U1)

    def _reorder(self, parent_U: Int[Tensor, " U"]) -> None:
        """Make row u of the cache row `parent_U[u]`. Rows that keep their place are not copied, unless rows are dropped."""
        moved = (parent_U != torch.arange(len(parent_U), device=parent_U.device)).nonzero()[:, 0]
        dropped = len(parent_U) < len(self._mask_US)
        for layer in self._cache.layers:
            if dropped or not hasattr(layer, "replace_rows"):
                layer.reorder_cache(parent_U)
            else:
                layer.replace_rows(moved, parent_U[moved], rows=len(parent_U))

    @torch.inference_mode()
    def _forward(self, ids: Int[Tensor, "U n"], positions: Int[Tensor, "U n"]) -> Float[Tensor, "U V"]:
        # Without padding no mask is passed: attention is faster without one.
        mask = None if bool(self._mask_US.all()) else self._mask_US
        optional = {"attention_mask": mask, "position_ids": positions, "logits_to_keep": 1}
        taken = {name: value for name, value in optional.items() if name in self._known}
        with _grouped_attention(self.model):
            out = self.model(input_ids=ids, past_key_values=self._cache, use_cache=True, **taken)
        self._cache = getattr(out, "past_key_values", None)
        logits: Tensor = out.logits[:, -1].float()
        return logits


@contextmanager
def _grouped_attention(model: Any) -> Iterator[None]:
    """Let a model with torch's attention decode without copies of its key-value heads; its own setting is restored afterwards."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    config = model.config
    ours = config._attn_implementation == "sdpa" and getattr(model, "_supports_attention_backend", False)
    if ours:
        AttentionInterface.register("widen_grouped", _attend)
        AttentionMaskInterface.register("widen_grouped", sdpa_mask)
        config._attn_implementation = "widen_grouped"
    try:
        yield
    finally:
        if ours:
            config._attn_implementation = "sdpa"


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> Any:
    """Under a padding mask transformers repeats the key-value heads for the query heads, which copies the cache at every step. For one new
    token, the query heads of a key-value head can take the place of query positions instead.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    (B, H, L, E), K = query.shape, key.shape[1]
    special = any(options.get(name) is not None for name in ("position_bias", "softcap", "s_aux"))
    if L > 1 or K == H or attention_mask is None or special:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    grouped = query.reshape(B, K, H // K, E)
    out = F.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=options.get("scaling"))
    return out.reshape(B, 1, H, out.shape[-1]), None
