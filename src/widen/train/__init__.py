"""Where data, models, head and losses meet. Read ``step.py`` first: one optimizer step on one page.

``objective.py`` is the part of a step that every trainer shares, the Hugging Face hosts included. ``loop.py`` repeats the step with a
schedule, a log and an exact resume; ``small.py`` trains many small models, on a GPU stacked by ``stacked.py``; ``distributed.py`` asks
the other ranks. ``settings.py`` has the values that say how.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .figures import Figures
    from .guard import NonFiniteLossError
    from .loop import Loop
    from .objective import Objective
    from .progress import Progress, bar
    from .settings import AdamW, Configuration, Schedule, Train
    from .small import train_models, train_one
    from .step import StepFigures, train_step

_HOME = {
    "AdamW": "settings",
    "Configuration": "settings",
    "Figures": "figures",
    "Loop": "loop",
    "NonFiniteLossError": "guard",
    "Objective": "objective",
    "Progress": "progress",
    "Schedule": "settings",
    "StepFigures": "step",
    "Train": "settings",
    "bar": "progress",
    "train_models": "small",
    "train_one": "small",
    "train_step": "step",
}

__all__ = [
    "AdamW",
    "Configuration",
    "Figures",
    "Loop",
    "NonFiniteLossError",
    "Objective",
    "Progress",
    "Schedule",
    "StepFigures",
    "Train",
    "bar",
    "train_models",
    "train_one",
    "train_step",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
