"""Two filters inside vLLM, as logits processors:

    vllm serve MODEL --logits-processors widen.sample.vllm_plugin:TopNSigma widen.sample.vllm_plugin:MinPFirst

`TopNSigma` keeps logits within n standard deviations of the largest. vLLM applies it after the temperature and min-p, before top-k and
top-p. `MinPFirst` is min-p on the model's own law: vLLM applies it before the temperature, so that a request can truncate and then heat.
vLLM's own min-p comes after the temperature.

A request asks with ``vllm_xargs={"top_n_sigma": 1.0}`` or ``vllm_xargs={"min_p_first": 0.1}``; in Python, with
``SamplingParams(extra_args=...)``. Other requests are not changed. KL guidance is not here: it needs a second stream of the model.

The classes are made on first use, because their parent is in vLLM. `Rows` is plain torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .processors import top_n_sigma

if TYPE_CHECKING:
    MinPFirst: type[Any]
    TopNSigma: type[Any]

__all__ = ["MinPFirst", "Rows", "TopNSigma", "min_p_of_rows"]


def min_p_of_rows(scores_BV: Tensor, m_B1: Tensor) -> Tensor:
    """Keep ``q >= m max q``, with one m per row.

    Examples:
      >>> min_p_of_rows(torch.tensor([[0.0, -1.0, -3.0]]), torch.tensor([[0.1]])).tolist()
      [[0.0, -1.0, -inf]]
    """
    floor_B1 = scores_BV.amax(-1, keepdim=True) + m_B1.log()
    return scores_BV.masked_fill(scores_BV < floor_B1, -torch.inf)


@dataclass(frozen=True, kw_only=True)
class _Filter:
    """One filter.

    Args:
      key: of ``extra_args``.
      apply: maps logits [B, V] and values [B, 1] to logits.
      before_temperature: vLLM applies processors before the temperature if they say that they may change the argmax, else after it.
      legal, text: which values are legal, and the sentence that says so.
    """

    key: str
    apply: Callable[[Tensor, Tensor], Tensor]
    before_temperature: bool
    legal: Callable[[float], bool]
    text: str

    def check(self, extra_args: dict[str, Any] | None) -> None:
        """Refuse an illegal value; vLLM turns this into status 400."""
        value = (extra_args or {}).get(self.key)
        if value is not None and not (
            isinstance(value, (int, float)) and not isinstance(value, bool) and self.legal(value)
        ):
            raise ValueError(f"{self.key}={value!r}: must be {self.text}")


_FILTERS = {
    "TopNSigma": _Filter(
        key="top_n_sigma",
        apply=top_n_sigma,
        before_temperature=False,
        legal=lambda n: 0 < n < math.inf,
        text="a number above 0",
    ),
    "MinPFirst": _Filter(
        key="min_p_first",
        apply=min_p_of_rows,
        before_temperature=True,
        legal=lambda m: 0 < m <= 1,
        text="a number above 0 and at most 1",
    ),
}


class Rows:
    """Which rows of vLLM's batch asked for a filter, kept up to date while vLLM moves rows."""

    def __init__(self, one: _Filter) -> None:
        self.filter = one
        self.n: dict[int, float] = {}

    def update(self, removed: Any, added: Any, moved: Any) -> None:
        """Apply one change of the batch, in the order that vLLM asks for."""
        for row in removed:
            self.n.pop(row, None)
        for row, params, _, _ in added:
            self.n.pop(row, None)  # a new request may take the place of an old one
            n = (params.extra_args or {}).get(self.filter.key)
            if n is not None:
                self.n[row] = float(n)
        for one, other, direction in moved:
            here, there = self.n.pop(one, None), self.n.pop(other, None)
            if here is not None:
                self.n[other] = here
            if there is not None and direction.name == "SWAP":
                self.n[one] = there

    def apply(self, logits: Tensor) -> Tensor:
        """Filter the rows that asked, in place."""
        if self.n:
            rows = torch.tensor(list(self.n), device=logits.device)
            n = torch.tensor(list(self.n.values()), device=logits.device, dtype=logits.dtype)[:, None]
            logits[rows] = self.filter.apply(logits[rows], n)
        return logits


def _processor(parent: type[Any], name: str) -> type[Any]:
    one = _FILTERS[name]

    class Processor(parent):  # type: ignore[misc]
        """A filter as a logits processor of vLLM."""

        @classmethod
        def validate_params(cls, sampling_params: Any) -> None:
            one.check(sampling_params.extra_args)

        def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
            self.rows = Rows(one)

        def is_argmax_invariant(self) -> bool:
            return not one.before_temperature

        def update_state(self, batch_update: Any) -> None:
            if batch_update is not None:
                self.rows.update(batch_update.removed, batch_update.added, batch_update.moved)

        def apply(self, logits: Tensor) -> Tensor:
            return self.rows.apply(logits)

    Processor.__module__ = __name__
    Processor.__name__ = Processor.__qualname__ = name
    return Processor


def __getattr__(name: str) -> Any:
    if name not in _FILTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    interface = import_module("vllm.v1.sample.logits_processor")
    globals()[name] = _processor(interface.LogitsProcessor, name)
    return globals()[name]
