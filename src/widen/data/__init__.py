"""Where tokens come from, and what "target token" means. Imports nothing of ours; a module is loaded when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import Batch, pad
    from .mulmod import MulMod
    from .texts import read_texts

__all__ = ["Batch", "MulMod", "pad", "read_texts"]

_HOME = {"Batch": "batch", "pad": "batch", "MulMod": "mulmod", "read_texts": "texts"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
