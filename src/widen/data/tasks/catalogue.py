"""The tasks by name: a dict one can read. A task of one's own is a `Task` value; the plain one, ``jsonl``, needs no code at all."""

from __future__ import annotations

from difflib import get_close_matches

from . import alpaca, answers, codecontests, jsonl, mathqa_python, mbpp, writing_prompts
from .definition import Task

__all__ = ["TASKS", "task"]

TASKS: dict[str, Task] = {
    "writing_prompts": writing_prompts.TASK,
    "mathqa_python": mathqa_python.TASK,
    "codecontests": codecontests.TASK,
    "alpaca": alpaca.TASK,
    "mbpp": mbpp.TASK,
    "jsonl": jsonl.TASK,
    "answers": answers.TASK,
}


def task(name: str) -> Task:
    """The task of that name.

    >>> task("mathqa").name
    Traceback (most recent call last):
    ...
    ValueError: no task is called 'mathqa'; did you mean 'mathqa_python'? Tasks: writing_prompts, mathqa_python, ...
    """
    if name not in TASKS:
        close = get_close_matches(name, TASKS, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"no task is called {name!r}{hint} Tasks: {', '.join(TASKS)}")
    return TASKS[name]
