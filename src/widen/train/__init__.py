"""Where data, models, head and losses meet. Read ``step.py`` first: one optimizer step on one page.

``objective.py`` is the part of a step that every trainer shares, the Hugging Face hosts included. ``loop.py`` repeats the step with a
schedule, a log and an exact resume; ``small_models.py`` trains many small models, on a GPU stacked by ``stacked.py``; ``distributed.py``
asks the other ranks. ``settings.py`` has the values that say how.
"""

from .figures import Figures
from .guard import NonFiniteLossError
from .loop import Loop, Progress
from .objective import Objective
from .settings import AdamW, Configuration, Schedule, Train
from .small_models import train_models, train_one
from .step import StepFigures, train_step

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
    "train_models",
    "train_one",
    "train_step",
]
