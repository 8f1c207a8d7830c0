"""Where data, models, kernels and losses meet. Read ``step.py`` first: one optimizer step on one page.

``loop.py`` does it often, with a schedule, a log and an exact resume; ``side_by_side.py`` for many small models at once; ``distributed.py``
on several machines. ``settings.py`` has the values that say how.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .alone import train_alone
    from .engine import Engine
    from .loop import Loop
    from .many import train_many
    from .progress import Progress, bar
    from .settings import AdamW, Configuration, Schedule, Train
    from .side_by_side import SideBySide, StepLog
    from .step import StepFigures, train_step

_HOME = {
    "AdamW": "settings",
    "Configuration": "settings",
    "Engine": "engine",
    "Loop": "loop",
    "Progress": "progress",
    "Schedule": "settings",
    "SideBySide": "side_by_side",
    "StepFigures": "step",
    "StepLog": "side_by_side",
    "Train": "settings",
    "bar": "progress",
    "train_alone": "alone",
    "train_many": "many",
    "train_step": "step",
}

__all__ = [
    "AdamW",
    "Configuration",
    "Engine",
    "Loop",
    "Progress",
    "Schedule",
    "SideBySide",
    "StepFigures",
    "StepLog",
    "Train",
    "bar",
    "train_alone",
    "train_many",
    "train_step",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
