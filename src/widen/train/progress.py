"""How far a training run is and how long it will take: a value handed to a callback, and a bar for a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["OnProgress", "Progress", "Timer", "bar"]


class Progress(NamedTuple):
    """The state of a run after `step` of `steps` steps."""

    step: int
    steps: int
    loss: float
    nll: float
    seconds_left: float


OnProgress = Callable[[Progress], None]
"""What is called with it."""


class Timer:
    """Estimates the time left from the steps of this process; those of an earlier, resumed one say nothing about its speed."""

    def __init__(self, step: int, steps: int) -> None:
        self.first, self.steps, self.start = step, steps, time.monotonic()

    def at(self, step: int, loss: float, nll: float) -> Progress:
        """The progress after `step` steps in all."""
        done = step - self.first
        passed = time.monotonic() - self.start
        left = passed / done * (self.steps - step) if done else float("inf")
        return Progress(step, self.steps, loss, nll, left)


@contextmanager
def bar(description: str) -> Iterator[OnProgress]:
    """A bar on the terminal, with the time left; give what it yields as `progress`."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, TextColumn("nll {task.fields[nll]:.4f}")) as shown:
        task = shown.add_task(description, total=None, nll=float("nan"))
        yield lambda now: shown.update(task, completed=now.step, total=now.steps, nll=now.nll)
