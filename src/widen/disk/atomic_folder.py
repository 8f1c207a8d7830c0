"""Write a folder completely or not at all, with the checksums of its files."""

from __future__ import annotations

import glob
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .atomic import refuse_all_but, temporary_name
from .checksums import write_checksums


def write_folder(path: str | Path, fill: Callable[[Path], None]) -> Path:
    """Create a folder by ``fill(temporary folder)``, with ``checksums.json``, and move it to ``path``; an older one is replaced.

    If ``fill`` fails, nothing new is left, not even folders above ``path``. Temporary folders that killed writers of the same path left
    behind are removed, so only one process may write ``path`` at a time.

    Raises ValueError if ``path`` is a symbolic link or a file.
    """
    path = Path(path)
    new_parents = [one for one in path.parents if not one.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_all_but(stat.S_ISDIR, path, "folder")
    for leftover in path.parent.glob(f".{glob.escape(path.name[:50])}.*.part"):
        if not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
    temporary = temporary_name(path)
    temporary.mkdir()
    try:
        fill(temporary)
        write_checksums(temporary)
        flush(temporary)
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):  # others may have written there
            for one in new_parents:
                one.rmdir()
        raise
    _flush_one(path.parent)
    return path


def flush(folder: Path) -> None:
    """Wait until every file below a folder is on the disk, so that a power cut cannot leave a name without its content."""
    for path in [*(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()), folder]:
        _flush_one(path)


def _flush_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
