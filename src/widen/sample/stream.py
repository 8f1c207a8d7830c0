"""A batch of rows being continued by a Hugging Face model: prompts read once, then one token a row and step.

Shapes: P prompts, B rows (each a sample of some prompt), S positions so far, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .attention import decoding_attention, rows_of, select_rows
from .step_graph import StepGraph, pays, try_capture

__all__ = ["Prefilled", "Stream", "prefill"]


class Prefilled(NamedTuple):
    """Prompts that have been read."""

    cache: Any
    logits_PV: Float[Tensor, "P V"]
    mask_PS: Int[Tensor, "P S"]  # 0 at the padding, which stands at the left


@torch.inference_mode()
def prefill(model: Any, prompts: Sequence[Sequence[int]]) -> Prefilled:
    """Read the prompts in one pass, padded at the left: what is generated then stands in one column."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
    known = {"attention_mask": _mask(mask), "position_ids": (mask.cumsum(1) - 1).clamp(min=0), "logits_to_keep": 1}
    out = model(input_ids=ids, use_cache=True, **_only_known(model, **known))
    if getattr(out, "past_key_values", None) is None:
        raise ValueError(f"{type(model).__name__} keeps no key-value cache; only models with one can be sampled here")
    return Prefilled(out.past_key_values, out.logits[:, -1].float(), mask)


class Stream:
    """Rows that go on from `prefilled`: row b is a sample of prompt `rows[b]`.

    Args:
      room: tokens that may still come.
    """

    def __init__(self, model: Any, prefilled: Prefilled, rows: Int[Tensor, " B"], *, room: int) -> None:
        self.model = model
        self._known = set(inspect.signature(model.forward).parameters)
        width = prefilled.mask_PS.shape[1]
        self._room = width + room
        self.cache = rows_of(prefilled.cache, rows, room=self._room)
        self.logits_BV = prefilled.logits_PV.index_select(0, rows)
        mask_BS = prefilled.mask_PS.index_select(0, rows)
        self._mask = torch.cat([mask_BS, mask_BS.new_ones((len(rows), room))], dim=1)
        self._padded = not bool(mask_BS.all())
        self._position = mask_BS.sum(1, keepdim=True)
        self._length = width
        self._graph: StepGraph | None = None
        self._may_capture = True

    @property
    def captured(self) -> bool:
        """Whether steps run as a CUDA graph."""
        return self._graph is not None

    @torch.inference_mode()
    def step(self, token_B: Int[Tensor, " B"]) -> None:
        """Append a token a row; `logits_BV` is then that of the next."""
        if self._graph is None and self._may_capture:
            self._capture()
        self._length += 1
        if self._graph is not None:
            self.logits_BV = self._graph.run(token_B)
            return
        known = {
            "attention_mask": self._mask[:, : self._length] if self._padded else None,
            "position_ids": self._position,
        }
        with decoding_attention(self.model):
            out = self.model(
                input_ids=token_B[:, None],
                past_key_values=self.cache,
                use_cache=True,
                **{name: value for name, value in known.items() if name in self._known},
            )
        self._position = self._position + 1
        self.logits_BV = out.logits[:, -1].float()

    def _capture(self) -> None:
        """Make a graph of the step where that pays; asked once for a batch."""
        self._may_capture = False
        if "position_ids" in self._known and pays(self.model, self.cache, steps=self._room - self._length):
            mask_BS = self._mask.bool() if self._padded else None
            self._graph = try_capture(self.model, self.cache, mask_BS, self._position, length=self._length)

    @torch.inference_mode()
    def select(self, rows: Int[Tensor, " B"]) -> None:
        """Keep these rows only."""
        if self._graph is not None:
            self._position = self._graph.position_B1
            self._graph.close()
            self._graph, self._may_capture = None, True
        select_rows(self.cache, rows, room=self._room)
        self.logits_BV, self._mask, self._position = self.logits_BV[rows], self._mask[rows], self._position[rows]
        self._padded = not bool(self._mask[:, : self._length].all())


def _mask(mask: Int[Tensor, "P S"]) -> Int[Tensor, "P S"] | None:
    """No mask where nothing is padded: attention is faster without one."""
    return None if bool(mask.all()) else mask


def _only_known(model: Any, **arguments: Any) -> dict[str, Any]:
    """Those arguments that this model's forward takes: position ids mean nothing to a model without them."""
    known = inspect.signature(model.forward).parameters
    return {name: value for name, value in arguments.items() if name in known}
