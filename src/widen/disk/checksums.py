"""``checksums.json`` beside weights: the SHA-256 of every file of a folder, checked before the folder is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .digest import file_digest
from .json_file import read_json, write_sealed

_NAME = "checksums.json"


def write_checksums(folder: str | Path, contents: Mapping[str, bytes] | None = None) -> Path:
    """Write the checksums of ``contents`` (name -> bytes), or else of every file below ``folder`` but the card, which people edit."""
    folder = Path(folder)
    if contents is not None:
        found = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    else:
        files = (path for path in folder.rglob("*") if path.is_file() and path.name not in (_NAME, "README.md"))
        found = {path.relative_to(folder).as_posix(): file_digest(path) for path in sorted(files)}
    return write_sealed(folder / _NAME, {"files": found})


@contextmanager
def changing(folder: Path, name: str) -> Iterator[None]:
    """Change one file of a folder: its checksum is taken out before and written again after, so that a kill leaves no wrong one."""
    listed: dict[str, str] = {}
    if (folder / _NAME).exists():
        listed = dict(read_json(folder / _NAME)["files"])
        listed.pop(name, None)
        write_sealed(folder / _NAME, {"files": listed})
    yield
    if listed:
        write_sealed(folder / _NAME, {"files": listed | {name: file_digest(folder / name)}})


def check_files(folder: str | Path) -> None:
    """Compare the files of a folder with its ``checksums.json``; a folder without one was not written by widen and passes.

    Raises ValueError that names the first file that is missing or differs.
    """
    folder = Path(folder)
    if not (folder / _NAME).exists():
        return
    content = read_json(folder / _NAME)
    listed = content.get("files") if isinstance(content, dict) else None
    if not isinstance(listed, dict):
        raise ValueError(f"{folder / _NAME} holds no list of files: it is damaged")
    for name, expected in listed.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is missing, and {_NAME} lists it: restore it")
        if file_digest(path) != expected:
            raise ValueError(
                f"{path} does not match {_NAME}: it is damaged, or was changed; restore it, or remove {_NAME} if the change was meant"
            )
