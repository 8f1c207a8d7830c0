"""Synthetic tasks whose right answers can be listed, so that a model is scored exactly, without samples.

A task is a frozen dataclass with the four members of `ListedTask`. To add one, write its file and name it in `LISTED`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from .batch import Batch

LISTED = {"mulmod": "MulMod", "countdown": "Countdown"}
"""Each task's name in a config, which is also its module in this folder, and its class."""


class Problem(NamedTuple):
    """A prompt and every right answer to it, all equally likely under the reference P.

    ``answers`` has one row per answer: the prompt, then the answer, whose tokens are the targets.
    """

    prompt: str
    answers: Batch


@runtime_checkable
class ListedTask(Protocol):
    """A task whose right answers can be listed, as a function of its fields."""

    @property
    def task(self) -> str:
        """Its name in `LISTED`."""

    @property
    def vocab(self) -> int:
        """Number of tokens."""

    def train_batch(self) -> Batch:
        """Every training sequence; the targets are the answers."""

    def problems(self) -> list[Problem]:
        """The problems that a model is scored on; none is trained on, unless there is only one."""


def listed_task(name: str) -> type[Any]:
    """The class of a task.

    >>> listed_task("mulmod").__name__
    'MulMod'
    """
    if name not in LISTED:
        raise ValueError(f"no task with listed answers is called {name!r}; tasks: {', '.join(LISTED)}")
    return getattr(importlib.import_module(f".{name}", __package__), LISTED[name])  # type: ignore[no-any-return]
