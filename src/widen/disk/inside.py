"""Nothing outside a folder is read because of a link inside it: run folders may come from strangers."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def inside(folder: str | Path, path: str | Path) -> Path:
    """Return ``path`` if it lies in ``folder`` once all links are followed; ``folder`` itself may be a link. It need not exist.

    Raises ValueError if a link leads out of the folder, or if ``path`` is a pipe, a socket or a device.
    """
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(folder)):
        raise ValueError(
            f"{path} leads out of {folder}, to {real}; widen does not follow links out of a run folder: copy the file instead"
        )
    if real.exists() and not (stat.S_ISREG(mode := real.stat().st_mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{path} is neither a regular file nor a folder")
    return Path(path)


def tree_inside(folder: str | Path, path: str | Path) -> Path:
    """The same for ``path`` and, if it is a folder, for everything below it."""
    found = inside(folder, path)
    for below in found.rglob("*"):
        inside(folder, below)
    return found
