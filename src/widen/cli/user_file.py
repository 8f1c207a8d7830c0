"""A JSON file of the user's own, beside what was scored: whole, or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_json(path: Path, content: dict[str, Any]) -> None:
    """In one move."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    part.replace(path)
