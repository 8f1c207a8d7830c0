"""The state of a loss as tensors on a device: what a CUDA graph of a training step reads and writes."""

from __future__ import annotations

import torch
from torch import Tensor

from widen.losses import State
from widen.losses.compose import WarmupState

__all__ = ["advance_on_host", "on_device", "tensors_of"]


def on_device(state: State, device: torch.device) -> State:
    """The state with its tensors on a device; the step counter of a schedule stays on the host."""
    parts = [
        on_device(part, device) if isinstance(part, tuple) else part if part.dtype == torch.int64 and _counter(state) else part.to(device)
        for part in state
    ]  # fmt: skip
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def _counter(state: State) -> bool:
    return isinstance(state, WarmupState)


def advance_on_host(state: State) -> None:
    """A replayed graph runs no Python: count the step of a schedule here."""
    if isinstance(state, WarmupState):
        state.step.add_(1)


def tensors_of(state: State) -> list[Tensor]:
    """All tensors of a nested state."""
    return [leaf for part in state for leaf in (tensors_of(part) if isinstance(part, tuple) else [part])]
