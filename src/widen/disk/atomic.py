"""Write a file or a folder completely or not at all.

The content goes to a new file with a random name in the same folder, reaches the disk, and then takes its final name in one move. A reader
never sees half a file, two writers never share a temporary file, and a symbolic link planted in the folder is never written through.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["flush", "write_bytes", "write_folder", "write_json", "write_text"]


def write_bytes(path: str | Path, data: bytes) -> Path:
    """Write ``data`` to ``path`` in one move. Missing parent folders are created.

    Raises ValueError if ``path`` is a symbolic link or anything else that is not a regular file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _refuse_all_but(stat.S_ISREG, path, "regular file")
    temporary = _temporary(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def write_text(path: str | Path, text: str) -> Path:
    """Write ``text`` as UTF-8 in one move."""
    return write_bytes(path, text.encode("utf-8"))


def write_json(path: str | Path, content: Any) -> Path:
    """Write ``content`` as indented JSON in one move."""
    return write_text(path, json.dumps(content, indent=1))


def write_folder(path: str | Path, fill: Callable[[Path], None]) -> Path:
    """Create a folder by ``fill(temporary folder)`` and move it to ``path``; an older folder of that name is replaced.

    Temporary folders that killed writers of the same path left behind are removed, so only one process may write ``path`` at a time.

    Raises ValueError if ``path`` is a symbolic link or a file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _refuse_all_but(stat.S_ISDIR, path, "folder")
    for leftover in path.parent.glob(f".{path.name}.*.part"):
        if not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        fill(temporary)
        flush(temporary)
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
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


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")


def _refuse_all_but(legal: Callable[[int], bool], path: Path, kind: str) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise ValueError(
            f"{path} is a symbolic link to {os.readlink(path)}; widen does not write through links: remove it first"
        )
    if not legal(mode):
        raise ValueError(f"{path} exists and is not a {kind}; widen cannot replace it")
