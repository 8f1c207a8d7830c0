"""Real models on tasks with many right answers: every method on one joint frontier of loss and decoding. Not in the paper.

One file per task; `methods.py` holds what they share. The top of each file shows its commands.
"""

from .code import code
from .countdown import countdown
from .grow import grow
from .mathqa import mathqa
from .methods import tiny

__all__ = ["code", "countdown", "grow", "mathqa", "tiny"]
