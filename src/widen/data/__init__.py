"""Where tokens come from, and which of them are targets. `tasks` holds the paper's data sets and your own, as prompt and completion."""

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


def __getattr__(name: str) -> Any:
    """Load modules when a name of theirs is asked for; the one that imports torch comes last."""
    if name == "tasks":
        return importlib.import_module(".tasks", __name__)
    for home in ("listed", "mulmod", "countdown", "texts", "batch") if name in __all__ else ():
        if name in vars(module := importlib.import_module(f".{home}", __name__)):
            return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
