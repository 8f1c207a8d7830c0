"""A key-value cache in buffers with spare rows and positions.

The cache of transformers copies all its keys and values to append a token or to split a row. Here a token is written into a spare position
and a new row into a spare row.

Shapes: B rows, K heads, S positions, E head dimension.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import DynamicLayer

SPARE_POSITIONS = 64
SPARE_ROWS = 0.25  # as a share of the rows in use


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of the cache: `keys` and `values` [B, K, S, E] are views of the parts of two buffers that are in use."""

    def __init__(self, layer: DynamicLayer) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = layer.dtype, layer.device, True
        self.keys, self.values = self._buffers = layer.keys, layer.values

    def update(
        self, key_states: Float[Tensor, "B K n E"], value_states: Float[Tensor, "B K n E"], *_: Any, **__: Any
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

    def reorder_cache(self, beam_idx: Int[Tensor, " B"]) -> None:
        """Row b becomes row `beam_idx[b]`, by a copy of all rows."""
        rows, used = len(beam_idx), self.keys.shape[2]
        self._move(beam_idx, rows + int(SPARE_ROWS * rows), used + SPARE_POSITIONS)
        self._show(rows, used)

    def replace_rows(self, target: Int[Tensor, " b"], source: Int[Tensor, " b"], *, rows: int) -> None:
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


def replace_plain_layers(cache: Any) -> None:
    """Make the plain layers growing ones. Sliding windows and the states of linear attention stay as they are."""
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer and layer.is_initialized:
            cache.layers[index] = GrowingLayer(layer)
