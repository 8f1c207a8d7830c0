"""Top-n-sigma inside vLLM, as a logits processor: ``--logits-processors widen.sample.vllm_plugin:TopNSigma``.

A request asks for it with ``vllm_xargs={"top_n_sigma": 1.0}`` (in Python, ``SamplingParams(extra_args=...)``); others are left alone. vLLM
applies it after the temperature and min-p, before top-k and top-p. KL guidance is not here: it needs a second stream of the model.

The class is made when it is first asked for, because its parent lives in vLLM; `apply` and the bookkeeping of rows are plain torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .processors import top_n_sigma

if TYPE_CHECKING:
    TopNSigma: type[Any]

__all__ = ["Rows", "TopNSigma"]


class Rows:
    """Which rows of vLLM's batch asked for top-n-sigma, kept in step with how it moves them about."""

    def __init__(self) -> None:
        self.n: dict[int, float] = {}

    def update(self, removed: Any, added: Any, moved: Any) -> None:
        """Take over one change of the batch; vLLM asks for this order."""
        for row in removed:
            self.n.pop(row, None)
        for row, params, _, _ in added:
            self.n.pop(row, None)  # a new request may take the place of an old one
            n = (params.extra_args or {}).get("top_n_sigma")
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
            logits[rows] = top_n_sigma(logits[rows], n)
        return logits


def legal(extra_args: dict[str, Any] | None) -> None:
    """Refuse a top_n_sigma that is no number above 0; vLLM turns this into status 400."""
    n = (extra_args or {}).get("top_n_sigma")
    if n is not None and not (isinstance(n, (int, float)) and not isinstance(n, bool) and 0 < n < float("inf")):
        raise ValueError(f"top_n_sigma={n!r}: must be a number above 0")


def _processor(parent: type[Any]) -> type[Any]:
    class TopNSigma(parent):  # type: ignore[misc]
        """Keep logits within n standard deviations of the largest."""

        @classmethod
        def validate_params(cls, sampling_params: Any) -> None:
            legal(sampling_params.extra_args)

        def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
            self.rows = Rows()

        def is_argmax_invariant(self) -> bool:
            return True  # the largest logit is always kept

        def update_state(self, batch_update: Any) -> None:
            if batch_update is not None:
                self.rows.update(batch_update.removed, batch_update.added, batch_update.moved)

        def apply(self, logits: Tensor) -> Tensor:
            return self.rows.apply(logits)

    TopNSigma.__module__ = __name__
    TopNSigma.__qualname__ = "TopNSigma"
    return TopNSigma


def __getattr__(name: str) -> Any:
    if name != "TopNSigma":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    interface = import_module("vllm.v1.sample.logits_processor")
    globals()["TopNSigma"] = _processor(interface.LogitsProcessor)
    return globals()["TopNSigma"]
