"""``model.train()`` that looks before it writes, while a trainer runs.

The host calls it at every micro-batch, and it sets a flag on every module: .9 ms of a core for a model of 30 layers, as long as our whole
loss takes, and the host is what a small model waits for. To see that every flag is set already takes a
seventh of that (`python benchmarks/trainer_timeline.py`).
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from .fused_head import causal_lm

__all__ = ["looking_before_train"]

_ONLY_FLAGS = (nn.Module.train, PreTrainedModel.train)
"""What sets flags and does nothing else (but where ``use_kernels`` is on); a module with a ``train`` of its own is asked each time."""


@contextmanager
def looking_before_train(model: nn.Module) -> Iterator[None]:
    """Inside, ``model``, however it is wrapped, skips a ``train()`` that changes nothing."""
    net = causal_lm(model)
    if "train" in vars(net):  # the user's own, or ours around this one
        yield
        return
    net.train = types.MethodType(train, net)  # on the instance: a wrapper's own train() comes to it by its children
    try:
        yield
    finally:
        vars(net).pop("train", None)


def train(self: Any, mode: bool = True) -> Any:  # by this name a model that is pickled meanwhile finds its class's own
    """`nn.Module.train`, unless it would change nothing."""
    if mode is True and not getattr(self, "use_kernels", False) and _in_training(self):
        return self
    return type(self).train(self, mode)


def _in_training(module: nn.Module) -> bool:
    """Whether ``train()`` would leave every module as it is."""
    waiting, plain = [module], set[type]()
    while waiting:
        one = waiting.pop()
        if type(one) not in plain:
            if type(one).train not in _ONLY_FLAGS:
                return False
            plain.add(type(one))
        state = one.__dict__  # past nn.Module's own attributes: this loop is what is saved
        if not state.get("training") or ("train" in state and one is not module):
            return False
        waiting += [child for child in state["_modules"].values() if child is not None]
    return True
