"""A digest of a source of examples: detects that a data file has changed."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

__all__ = ["source_digest"]


def source_digest(source: str) -> str | None:
    """The digest of a file, or of all files below a folder; None if there is neither: another machine, or a data set of the hub."""
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
        return None  # it cannot be read


def _of_file(path: Path) -> str:
    about = path.stat()
    return _read(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=1024)
def _read(path: Path, size: int, changed: int) -> str:
    """The models of a recipe share their data, so it is read once unless it changes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
