"""JSON files that notice damage: each carries the SHA-256 of its own content under the key ``sha256``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .atomic import write_json

_SEAL = "sha256"


def write_sealed(path: str | Path, content: Mapping[str, Any]) -> Path:
    """Write a JSON object and its checksum in one move."""
    plain = json.loads(json.dumps(content))  # as a reader will see it: tuples are lists, keys are strings
    return write_json(path, {**plain, _SEAL: _digest(plain)})


def read_json(path: str | Path) -> Any:
    """Read a JSON file. The checksum is checked if there is one, and left out of the result.

    Raises ValueError, naming the file, if it is not JSON or does not match its checksum.
    """
    try:
        content = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if isinstance(content, dict) and _SEAL in content:
        found = content.pop(_SEAL)
        if found != _digest(content):
            raise ValueError(
                f'{path} does not match its checksum: it is damaged, or was edited; restore it, or remove its key "{_SEAL}" '
                "if the change was meant"
            )
    return content


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
