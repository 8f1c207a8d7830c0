"""Write a file completely or not at all.

The content goes to a new file with a random name in the same folder, reaches the disk, and then takes its final name in one move. A reader
never sees half a file, two writers never share a temporary file, and a symbolic link planted in the folder is never written through.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_bytes(path: str | Path, data: bytes) -> Path:
    """Write ``data`` to ``path`` in one move. Missing parent folders are created.

    Raises ValueError if ``path`` is a symbolic link or anything else that is not a regular file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_all_but(stat.S_ISREG, path, "regular file")
    temporary = temporary_name(path)
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


def temporary_name(path: Path) -> Path:
    """A new name beside ``path``."""
    return path.with_name(
        f".{path.name[:50]}.{secrets.token_hex(8)}.part"
    )  # a long name stays within the system's limit


def refuse_all_but(legal: Callable[[int], bool], path: Path, kind: str) -> None:
    """Raise ValueError if ``path`` exists and is a link, or its mode is not ``legal``."""
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
