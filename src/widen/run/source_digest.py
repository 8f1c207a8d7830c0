"""The content of a source of examples in sixteen hex digits: what was made from a file is not passed off as made from its successor."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

__all__ = ["source_digest"]


def source_digest(source: str) -> str | None:
    """Of a file, or of all files below a folder; None where there is neither here: another machine, or a data set of the hub."""
    path = Path(source)
    try:
        if not source:
            return None
        if path.is_file():
            return _of_file(path)
        if not path.is_dir():
            return None
        total = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            total.update(f"{file.relative_to(path)}\n{_of_file(file)}\n".encode())
        return total.hexdigest()[:16]
    except OSError:
        return None  # there, but not to be read by us


def _of_file(path: Path) -> str:
    about = path.stat()
    return _read(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=1024)
def _read(path: Path, size: int, changed: int) -> str:
    """The models of a recipe share their data: it is read once for all of them, unless it changes meanwhile."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
