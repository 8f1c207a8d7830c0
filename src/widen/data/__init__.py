"""Where tokens come from, and which of them are targets. Modules are loaded when asked for.

`tasks` holds the paper's data sets and your own, as prompt and completion.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import tasks
    from .batch import Batch, pad
    from .countdown import Countdown
    from .listed import ListedTask, Problem
    from .mulmod import MulMod
    from .texts import read_texts

__all__ = ["Batch", "Countdown", "ListedTask", "MulMod", "Problem", "pad", "read_texts", "tasks"]

_HOME = {
    "Batch": "batch",
    "Countdown": "countdown",
    "ListedTask": "listed",
    "MulMod": "mulmod",
    "Problem": "listed",
    "pad": "batch",
    "read_texts": "texts",
}


def __getattr__(name: str) -> Any:
    if name == "tasks":
        return importlib.import_module(".tasks", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
