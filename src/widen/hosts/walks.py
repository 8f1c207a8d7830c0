"""The host's walks over all modules of a model, cut short while a trainer runs.

At every micro-batch the host calls ``model.train()``, which sets a flag on every module, and at every step ``model.parameters()`` twice,
to clip gradients and to drop them, which builds the name of every parameter on the way. For a model of 30 layers that is .9 and .8 ms
of a core, more than our whole loss takes, and the host is what a small model waits for. To see that every flag is set takes a seventh of
the one, to collect the parameters without names three fifths of the other (`python benchmarks/trainer_timeline.py`).
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from .fused_head import causal_lm

__all__ = ["short_walks"]

_ONLY_FLAGS = (nn.Module.train, PreTrainedModel.train)
"""What sets flags and does nothing else (but where ``use_kernels`` is on); a module with a ``train`` of its own is asked each time."""
_ONLY_NAMES = ("parameters", "named_parameters", "_named_members", "named_modules")
"""What `parameters` stands in for, unless a class has its own."""


@contextmanager
def short_walks(model: nn.Module) -> Iterator[None]:
    """Inside, ``model`` skips a ``train()`` that changes nothing, and finds its parameters without their names."""
    # train() on the model inside every wrapper, since a wrapper's own comes to it by its children; parameters() on what the host calls.
    given = [(causal_lm(model), train), (model, parameters)]
    # Not over the user's, nor over ours around this one.
    own = [(one, function) for one, function in given if function.__name__ not in vars(one)]
    for one, function in own:
        setattr(one, function.__name__, types.MethodType(function, one))
    try:
        yield
    finally:
        for one, function in own:
            vars(one).pop(function.__name__, None)


def train(self: Any, mode: bool = True) -> Any:  # by this name a model that is pickled meanwhile finds its class's own
    """`nn.Module.train`, unless it would change nothing."""
    if mode is True and not getattr(self, "use_kernels", False) and _in_training(self):
        return self
    return type(self).train(self, mode)


def parameters(self: Any, recurse: bool = True) -> Iterator[nn.Parameter]:
    """`nn.Module.parameters`: each once, in the same order."""
    found = _parameters_of(self) if recurse else None
    return type(self).parameters(self, recurse) if found is None else iter(found)


def _parameters_of(model: nn.Module) -> list[nn.Parameter] | None:
    """Those of all modules; None where one of them has a walk of its own."""
    waiting, found, plain = [model], dict[nn.Parameter, None](), set[type]()
    while waiting:
        one = waiting.pop()
        state = one.__dict__
        if type(one) not in plain:
            if not all(getattr(type(one), name) is getattr(nn.Module, name) for name in _ONLY_NAMES):
                return None
            plain.add(type(one))
        if (
            "named_modules" in state or "named_parameters" in state or "_named_members" in state
        ):  # given to this one module
            return None
        for parameter in state["_parameters"].values():
            if parameter is not None:
                found[parameter] = None
        waiting += [child for child in reversed(state["_modules"].values()) if child is not None]
    return list(found)


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
