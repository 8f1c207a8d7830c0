"""widen: get more different right answers out of language models.

    data -> model -> log-probabilities -> weights -> loss -> train -> sample -> score -> report

Rooms are loaded when they are first used: ``import widen`` costs nothing, ``widen.theory`` loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import data, disk, head, hosts, judge, losses, metrics, models, report, run, sample, theory, train

try:
    __version__ = version("widen")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+source"

__all__ = [
    "__version__",
    "data",
    "disk",
    "head",
    "hosts",
    "judge",
    "losses",
    "metrics",
    "models",
    "report",
    "run",
    "sample",
    "theory",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'widen' has no attribute {name!r}; rooms: {', '.join(sorted(__all__[1:]))}")


def __dir__() -> list[str]:
    return sorted(__all__)
