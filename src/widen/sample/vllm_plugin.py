"""Two filters inside vLLM, as logits processors:

    vllm serve MODEL --logits-processors widen.sample.vllm_plugin:TopNSigma widen.sample.vllm_plugin:MinPFirst

`TopNSigma` keeps logits within n standard deviations of the largest. vLLM applies it after the temperature and min-p, before top-k and
top-p. `MinPFirst` is min-p on the model's own distribution: vLLM applies it before the temperature, so that a request can truncate and then
heat. vLLM's own min-p comes after the temperature.

A request asks with ``vllm_xargs={"top_n_sigma": 1.0}`` or ``vllm_xargs={"min_p_first": 0.1}``; in Python, with
``SamplingParams(extra_args=...)``. Other requests are not changed.

The classes are made on first use, because their parent class is in vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .processors import top_n_sigma

if TYPE_CHECKING:
    MinPFirst: type[Any]
    TopNSigma: type[Any]


def min_p_of_rows(scores_BV: Tensor, m_B1: Tensor) -> Tensor:
    """Keep ``q >= m max q``, with one m per row."""
    floor_B1 = scores_BV.amax(-1, keepdim=True) + m_B1.log()
    return scores_BV.masked_fill(scores_BV < floor_B1, -torch.inf)


class _Filter(NamedTuple):
    key: str  # of `extra_args`
    apply: Callable[[Tensor, Tensor], Tensor]  # logits [B, V], values [B, 1] -> logits
    argmax_invariant: bool  # vLLM applies a processor before the temperature if it may change the argmax, else after it
    most: float
    legal: str


_FILTERS = {
    "TopNSigma": _Filter("top_n_sigma", top_n_sigma, True, math.nextafter(math.inf, 0), "a number above 0"),
    "MinPFirst": _Filter("min_p_first", min_p_of_rows, False, 1.0, "a number above 0 and at most 1"),
}


def _processor(parent: type[Any], name: str) -> type[Any]:
    one = _FILTERS[name]

    class Processor(parent):  # type: ignore[misc]
        """A filter as a logits processor of vLLM."""

        @classmethod
        def validate_params(cls, sampling_params: Any) -> None:
            """Refuse an illegal value; vLLM turns this into status 400."""
            value = (sampling_params.extra_args or {}).get(one.key)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value <= one.most):
                raise ValueError(f"{one.key}={value!r}: must be {one.legal}")

        def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
            self.values: dict[int, float] = {}  # of the rows of vLLM's batch that asked for this filter

        def is_argmax_invariant(self) -> bool:
            return one.argmax_invariant

        def update_state(self, batch_update: Any) -> None:
            """Follow the rows, in the order that vLLM prescribes: removed, added, moved."""
            if batch_update is None:
                return
            for row in batch_update.removed:
                self.values.pop(row, None)
            for row, params, _, _ in batch_update.added:
                self.values.pop(row, None)  # a new request may replace an old one
                value = (params.extra_args or {}).get(one.key)
                if value is not None:
                    self.values[row] = float(value)
            for source, target, direction in batch_update.moved:
                here, there = self.values.pop(source, None), self.values.pop(target, None)
                if here is not None:
                    self.values[target] = here
                if there is not None and direction.name == "SWAP":
                    self.values[source] = there

        def apply(self, logits: Tensor) -> Tensor:
            """Filter the rows that asked, in place."""
            if self.values:
                rows = torch.tensor(list(self.values), device=logits.device)
                value_B1 = torch.tensor(list(self.values.values()), device=logits.device, dtype=logits.dtype)[:, None]
                logits[rows] = one.apply(logits[rows], value_B1)
            return logits

    Processor.__module__ = __name__
    Processor.__name__ = Processor.__qualname__ = name
    return Processor


def __getattr__(name: str) -> Any:
    if name not in _FILTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    interface = import_module("vllm.v1.sample.logits_processor")
    globals()[name] = _processor(interface.LogitsProcessor, name)
    return globals()[name]
