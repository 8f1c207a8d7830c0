"""A Hugging Face model after many prefixes, with one row of its own key-value cache per prefix.

The cache of transformers copies all its keys and values to append a token or to split a row. Here a token is written into a spare position
and a new row into a spare row.

Shapes: U prefixes (rows of the cache), S positions so far, V vocabulary, K heads, E head dimension.
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
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

SPARE_POSITIONS = 64
SPARE_ROWS = 0.25  # as a share of the rows in use


class CachedModel:
    """Reads the prompts in one forward pass; `step` then adds one token to each prefix.

    Args:
      model: a causal LM of transformers.
      prompts: token ids. Shorter ones are padded on the left, so that new tokens share one column.
    """

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]]) -> None:
        self.model = model
        self._known = inspect.signature(model.forward).parameters
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=model.device)
        self._mask_US = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        self._cache: Any = None
        self.logits_UV: Float[Tensor, "U V"] = self._forward(ids, (self._mask_US.cumsum(1) - 1).clamp(min=0))
        if self._cache is None:
            raise ValueError(f"{type(model).__name__} keeps no key-value cache: it cannot be sampled here")
        # Sliding windows and the states of linear attention stay as they are.
        for index, layer in enumerate(self._cache.layers):
            if type(layer) is DynamicLayer and layer.is_initialized:
                self._cache.layers[index] = GrowingLayer(layer)

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
            if dropped or not isinstance(layer, GrowingLayer):
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


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of the cache: `keys` and `values` [U, K, S, E] are views of the parts of two buffers that are in use."""

    def __init__(self, layer: DynamicLayer) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = layer.dtype, layer.device, True
        self.keys, self.values = self._buffers = layer.keys, layer.values

    def update(
        self, key_states: Float[Tensor, "U K n E"], value_states: Float[Tensor, "U K n E"], *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Append n positions; returns all keys and values."""
        rows, _, used, _ = self.keys.shape
        end = used + key_states.shape[2]
        if end > self._buffers[0].shape[2]:
            self._move(slice(None), rows, end + SPARE_POSITIONS)
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:rows, :, used:end] = new
        self._show(rows, end)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Int[Tensor, " U"]) -> None:
        """Row u becomes row `beam_idx[u]`, by a copy of all rows."""
        rows, used = len(beam_idx), self.keys.shape[2]
        self._move(beam_idx, rows + int(SPARE_ROWS * rows), used + SPARE_POSITIONS)
        self._show(rows, used)

    def replace_rows(self, target: Int[Tensor, " u"], source: Int[Tensor, " u"], *, rows: int) -> None:
        """Row `target[i]` becomes row `source[i]`; other rows stay. There are `rows` rows afterwards."""
        used = self.keys.shape[2]
        if rows > len(self._buffers[0]):
            self._move(slice(None), rows + int(SPARE_ROWS * rows), used + SPARE_POSITIONS)
        for buffer in self._buffers:
            buffer[target, :, :used] = buffer[source, :, :used]
        self._show(rows, used)

    def _move(self, row: Any, rows: int, positions: int) -> None:
        """Copy these rows of the used parts to new buffers of the given size."""
        used, moved = self.keys.shape[2], []
        for part in (self.keys, self.values):
            kept = part[row]
            buffer = part.new_empty((rows, part.shape[1], positions, part.shape[3]))
            buffer[: len(kept), :, :used] = kept
            moved.append(buffer)
        self._buffers = tuple(moved)

    def _show(self, rows: int, used: int) -> None:
        self.keys, self.values = (buffer[:rows, :, :used] for buffer in self._buffers)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> Any:
    """Under a padding mask transformers repeats the key-value heads for the query heads, which copies the cache at every step. For one new
    token, the query heads of a key-value head can take the place of query positions instead.
    """
    (B, H, L, E), K = query.shape, key.shape[1]
    special = any(options.get(name) is not None for name in ("position_bias", "softcap", "s_aux"))
    if L > 1 or K == H or attention_mask is None or special:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    grouped = query.reshape(B, K, H // K, E)
    out = F.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=options.get("scaling"))
    return out.reshape(B, 1, H, out.shape[-1]), None


AttentionInterface.register("widen_grouped", _attend)
AttentionMaskInterface.register("widen_grouped", sdpa_mask)


@contextmanager
def _grouped_attention(model: Any) -> Iterator[None]:
    """Let a model with torch's attention decode without copies of its key-value heads; its own setting is restored afterwards."""
    config = model.config
    ours = config._attn_implementation == "sdpa" and getattr(model, "_supports_attention_backend", False)
    if ours:
        config._attn_implementation = "widen_grouped"
    try:
        yield
    finally:
        if ours:
            config._attn_implementation = "sdpa"
