"""Short digests of files, folders and weights: they detect that a file has changed since something was made from it."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_digest(source: str) -> str | None:
    """Sixteen hex digits of a file, or of all files below a folder.

    None if there is no such file or folder on this machine (such as a data set of the hub), or if it cannot be read.
    """
    path = Path(source)
    try:
        if source and path.is_file():
            return _cached(path, path.stat().st_size, path.stat().st_mtime_ns)
        if not source or not path.is_dir():
            return None
        total = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            total.update(f"{file.relative_to(path)}\n{source_digest(str(file))}\n".encode())
        return total.hexdigest()[:16]
    except OSError:
        return None


@lru_cache(maxsize=1024)
def _cached(path: Path, size: int, changed: int) -> str:
    """Models that share their data read it once, unless its size or time of change differs."""
    return file_digest(path)[:16]


def weights_digest(model: Any) -> str:
    """Sixteen hex digits of a torch module's parameters: names, shapes and 64 values of each.

    Training moves every weight, so a sample of values tells two checkpoints apart. It does not detect damage; checksums do.
    """
    total = hashlib.sha256()
    for name, parameter in model.named_parameters():
        flat = parameter.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // 64)][:64].cpu().double()
        total.update(f"{name}{tuple(parameter.shape)}".encode() + some.numpy().tobytes())
    return total.hexdigest()[:16]
