"""Llama-Alpaca: Llama3.1-8B instruction-tuned on Alpaca under each loss, then asked for stories and programs (``tab:pr-wp-mathqa``).

Both tasks are new to the model: "to get a basic instruction-tuned model, capable of generalization".
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from widen.data.tasks.text_tasks import WITHOUT_INPUT
from widen.run.experiment import Experiment
from widen.run.finetune import Source

from .paper_texts import LLAMA_8B, PROGRAMS, column, programs
from .paper_texts import stories as ask_for_stories
from .tiny_texts import first_seeds

TRAIN = Source(task="alpaca", split="train")
DECODING = "t=0.5"  # "a lower temperature t=0.5 was used to mitigate degenerate outputs"
STORY = WITHOUT_INPUT.replace("{instruction}", "Write a story for this writing prompt.\n{prompt}")
PROGRAM: dict[str, Any] = {
    "template": WITHOUT_INPUT.replace(
        "{instruction}",
        "Write a Python program that answers the question and leaves the result in a variable called answer.\n{prompt}",
    ),
    "score": replace(PROGRAMS, fenced=True),
}
"""How the model is asked for a program, and how its answer is scored."""
CHOICES = {
    "template": "Alpaca's own, with an instruction of ours before each prompt; the paper does not say how the model was asked",
    "training": "the settings of the other data sets, as the paper says: 3 epochs, batch 8, 1e-6",
}


def stories() -> list[Experiment]:
    """Column WritingPrompts, Llama-Alpaca."""
    rows = {
        "NLL": ("nll", 0.833, 0.044),
        "c-Div 1.4": ("cdiv:alpha=1.4,cap=1e4", 0.822, 0.126),
        "lambda-PR 0.5, 1e-7": ("lambda_pr:lam=0.5,gamma=1e-7", 0.571, 0.269),
    }
    return column(ask_for_stories, LLAMA_8B, TRAIN, rows, decoding=DECODING, template=STORY, choices=CHOICES)


def mathqa() -> list[Experiment]:
    """Column MathQA-Python, Llama-Alpaca."""
    rows = {
        "NLL": ("nll", 0.088, 0.390),
        "c-Div 1.4": ("cdiv:alpha=1.4,cap=1e4", 0.082, 0.434),
        "lambda-PR 0.1, 1e-5": ("lambda_pr:lam=0.1,gamma=1e-5", 0.083, 0.421),
    }
    return column(programs, LLAMA_8B, TRAIN, rows, decoding=DECODING, choices=CHOICES, **PROGRAM)


tiny = partial(first_seeds, names=("NLL", "c-Div 1.4"))
