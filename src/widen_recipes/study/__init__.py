"""Real models on tasks with many right answers: every method on one joint frontier of loss and decoding. Not in the paper.

One file per task; `methods.py` holds what they share. The page "Run the recipes" of the documentation has the commands.
"""

from .code import code, code_small
from .countdown import countdown, countdown_small, countdown_small_losses
from .coverageqa import coverageqa, coverageqa_qwen, coverageqa_qwen_zero_shot, coverageqa_zero_shot
from .e2e import e2e, e2e_small
from .grow import e2e_grow, grow
from .grow_small import countdown_small_grow, coverageqa_small_grow, coverageqa_small_losses
from .mathqa import mathqa, mathqa_small_grow, mathqa_small_losses
from .methods import tiny
from .wise import countdown_wise, coverageqa_wise

__all__ = [
    "code",
    "code_small",
    "countdown",
    "countdown_small",
    "countdown_small_grow",
    "countdown_small_losses",
    "countdown_wise",
    "coverageqa",
    "coverageqa_qwen",
    "coverageqa_qwen_zero_shot",
    "coverageqa_small_grow",
    "coverageqa_small_losses",
    "coverageqa_wise",
    "coverageqa_zero_shot",
    "e2e",
    "e2e_grow",
    "e2e_small",
    "grow",
    "mathqa",
    "mathqa_small_grow",
    "mathqa_small_losses",
    "tiny",
]
