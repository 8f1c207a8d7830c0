"""Key-value caches for many samples of few prompts, and attention that does not copy them.

Two costs of `generate` at a large batch are removed here. Its cache grows by concatenation, so every step copies all keys and values;
ours lies in buffers made once. And under a padding mask Hugging Face repeats the key-value heads to match the query heads; here
the query heads of one key-value head stand in the place of query *positions*, which for a single new token is the same arithmetic.

Shapes: B rows, H query heads, K key-value heads, G = H/K, S cached positions, E head dimension.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

__all__ = ["decoding_attention", "in_buffers", "rows_of", "select_rows", "triton_here"]

NAME = "widen_decode"

PROGRAMS = 256
"""Rows times key-value heads from which the kernel is used: about two programs a multiprocessor of an H100."""


@lru_cache(maxsize=1)
def _row_layer() -> type[Any]:
    """The cache layer, a class made on first use: its parent lives in transformers."""
    from transformers.cache_utils import DynamicLayer

    class RowLayer(DynamicLayer):  # type: ignore[misc]
        """Keys and values in buffers [B, K, S_max, E]; what is handed to attention is a view of the part in use."""

        def take(self, source: Any, rows: Tensor, room: int) -> RowLayer:
            """Row b continues row `rows[b]` of `source`, with space for `room` tokens in all."""
            self.dtype, self.device, self.is_initialized = source.keys.dtype, source.keys.device, True
            self.length, self.place = source.get_seq_length(), cast("Tensor | None", None)
            self._keys, self._values = (self._buffer(part, rows, room) for part in (source.keys, source.values))
            self._show()
            return self

        def _buffer(self, part: Tensor, rows: Tensor, room: int) -> Tensor:
            _, heads, _, dim = part.shape
            buffer = part.new_empty((len(rows), heads, room, dim))
            buffer[:, :, : self.length] = part[:, :, : self.length].index_select(0, rows)
            return buffer

        def _show(self) -> None:
            self.keys, self.values = self._keys[:, :, : self.length], self._values[:, :, : self.length]

        def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            """Write the new token and show everything up to it; under `place`, write there and show the whole buffers."""
            if self.place is not None:
                self._keys.index_copy_(2, self.place, key_states)
                self._values.index_copy_(2, self.place, value_states)
                return self._keys, self._values
            end = self.length + key_states.shape[2]
            self._keys[:, :, self.length : end] = key_states
            self._values[:, :, self.length : end] = value_states
            self.length = end
            self._show()
            return self.keys, self.values

        def stand_still(self, place: Tensor | None, length: int) -> None:
            """Let a position held in memory say where the next token goes, as a CUDA graph needs it; None ends that."""
            self.place, self.length = place, length
            self._show()

        def get_seq_length(self) -> int:
            return int(self.length)

    return RowLayer


def rows_of(cache: Any, rows: Int[Tensor, " B"], *, room: int) -> Any:
    """A cache whose row b continues row `rows[b]` of `cache`, which stays as it is.

    Args:
      room: positions to make space for. Layers other than plain ones (sliding windows, states of linear attention) are copied as
        they are and go on growing in their own way.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    if all(type(layer) is DynamicLayer and layer.is_initialized for layer in cache.layers):
        ours = DynamicCache()
        ours.layers = [_row_layer()().take(layer, rows, room) for layer in cache.layers]
        return ours
    ours = copy.deepcopy(cache)
    ours.reorder_cache(rows)
    return ours


def in_buffers(cache: Any) -> bool:
    """Whether every layer of the cache lies in buffers made once."""
    return all(isinstance(layer, _row_layer()) for layer in cache.layers)


def select_rows(cache: Any, rows: Int[Tensor, " B"], *, room: int) -> None:
    """Keep these rows only, in place; one layer at a time, so that two caches never stand side by side."""
    for index, layer in enumerate(cache.layers):
        if isinstance(layer, _row_layer()):
            cache.layers[index] = _row_layer()().take(layer, rows, room)
        else:
            layer.reorder_cache(rows)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> Any:
    """Attention of one new token a row over its cache; anything else goes to Hugging Face's own function."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    B, H, L, E = query.shape
    K, S = key.shape[1:3]
    # One query position, and nothing that only their function knows about.
    special = any(settings.get(name) is not None for name in ("position_bias", "softcap", "s_aux"))
    if L > 1 or special:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    if _kernel_pays(query, key, value, attention_mask):
        from .attention_triton import decode

        mask_BS = None if attention_mask is None else attention_mask.expand(B, 1, 1, S)[:, 0, 0]
        scale = settings.get("scaling")
        out = decode(query[:, :, 0], key, value, mask_BS, scale=E**-0.5 if scale is None else scale)
        return out[:, None], None
    if K == H or attention_mask is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    grouped = F.scaled_dot_product_attention(
        query.reshape(B, K, H // K, E), key, value, attn_mask=attention_mask, scale=settings.get("scaling")
    )
    return grouped.reshape(B, 1, H, grouped.shape[-1]), None


def _kernel_pays(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether our kernel attends: on CUDA, with a program for every multiprocessor, and only what it was written for.

    With fewer programs torch's kernels, which split a row among several, are faster. float64 is for checking, by torch's own.
    """
    if query.device.type != "cuda" or query.dtype == torch.float64 or not triton_here():
        return False
    enough = key.shape[0] * key.shape[1] >= PROGRAMS
    plain_mask = mask is None or (
        mask.dtype == torch.bool and mask.shape[1:3] == (1, 1) and mask.shape[3] == key.shape[2]
    )
    rows_lie_well = key.stride(-1) == 1 and value.stride(-1) == 1 and key.shape[3] == value.shape[3] <= 256
    return enough and plain_mask and rows_lie_well


@lru_cache(maxsize=1)
def triton_here() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


@contextmanager
def decoding_attention(model: Any) -> Iterator[None]:
    """While inside, `model` attends through `_attend`, if it uses torch's attention; its own setting comes back afterwards."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    config = model.config
    if getattr(config, "_attn_implementation", None) != "sdpa" or not getattr(
        model, "_supports_attention_backend", False
    ):
        yield
        return
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"
