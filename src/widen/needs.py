"""Which versions of other packages each part of widen works with, and the sentence for a version that it does not."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

__all__ = ["NEEDS", "Need", "fault", "require"]


class Need(NamedTuple):
    """A package, its lowest version, the version it must stay below, and the extra of widen that installs it."""

    package: str
    lowest: str
    below: str = ""
    extra: str = "hf"

    @property
    def range(self) -> str:
        """As pip writes it.

        >>> Need("trl", "1.16", "2").range
        'trl>=1.16,<2'
        """
        return f"{self.package}>={self.lowest}" + (f",<{self.below}" if self.below else "")


_TUNING = (Need("accelerate", "1.12"),)
NEEDS: dict[str, tuple[Need, ...]] = {
    "widen.hosts.transformers": (Need("transformers", "4.57"), *_TUNING),
    "widen.hosts.trl": (Need("transformers", "5.17"), *_TUNING, Need("trl", "1.16", "2", "trl")),
    "widen train": (Need("transformers", "5.17"), *_TUNING),
    "LoRA": (Need("peft", "0.18"),),
    "lm-eval tasks": (Need("lm_eval", "0.4.13", "0.5", "lm-eval"),),
}
"""What each part needs. pyproject.toml states the same ranges."""


def fault(part: str) -> str | None:
    """A sentence if a package of this part is missing or has another version, else None."""
    for need in NEEDS[part]:
        try:
            found = version(need.package)
        except PackageNotFoundError:
            return f"{part} needs {need.range}, which is not installed: pip install 'widen[{need.extra}]'"
        if _numbers(found) < _numbers(need.lowest) or (need.below and _numbers(found) >= _numbers(need.below)):
            return f"{part} needs {need.range}; found {need.package} {found}: pip install '{need.range}'"
    return None


def require(part: str) -> None:
    """Raise ImportError with that sentence."""
    if sentence := fault(part):
        raise ImportError(sentence)


def _numbers(text: str) -> tuple[int, ...]:
    """The release numbers of a version.

    >>> _numbers("5.0.0.dev0") < _numbers("4.57")
    False
    """
    return tuple(int(part) for part in re.split(r"[^0-9.]", text)[0].strip(".").split("."))
