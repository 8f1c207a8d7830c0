"""Right or wrong, sample by sample, beside a samples file: ``samples/<name>.right.json``. The report shows it on the sample's card.

A mark belongs to a prompt and a text, so that samples drawn later or again never get the mark of another text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from widen.disk.inside import inside
from widen.disk.json_file import read_json, write_sealed
from widen.sample import Sample

SCHEMA = 1


def mark_key(prompt: str, text: str) -> str:
    """Sixteen hex digits of a prompt's id and a text."""
    return hashlib.sha256(f"{prompt}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _path(samples: Path) -> Path:
    return inside(samples.parent, samples.with_suffix(".right.json"))


def write_marks(samples: Path, found: Iterable[tuple[Sample, bool]]) -> None:
    """Keep whether each sample of a file is right, in place of what was kept before."""
    right = {mark_key(sample.prompt, sample.text): ok for sample, ok in found}
    write_sealed(_path(samples), {"schema": SCHEMA, "right": right})


def read_marks(samples: Path) -> dict[str, bool]:
    """The marks of a samples file by `mark_key`; empty if no score has written any."""
    path = _path(samples)
    if not path.is_file():
        return {}
    content = read_json(path)
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or not isinstance(content.get("right"), dict):
        raise ValueError(f"{path} does not hold right or wrong of samples: remove it and score again")
    return {str(key): bool(ok) for key, ok in content["right"].items()}
