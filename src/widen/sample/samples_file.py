"""The samples file: append-only JSON lines that survive a kill at any byte.

    {"kind": "header", "schema": 1, "settings": ..., "model": ..., ..., "crc": "..."}
    {"kind": "prompt", "id": ..., "text": ..., ..., "crc": "..."}            once, before its first sample
    {"kind": "sample", "prompt": id, "index": 0, "text": ..., ..., "crc": "..."}

Every line ends with the CRC-32 of the rest of it. A killed writer leaves at most one torn line at the end; the next one cuts it off and
goes on. A line that is wrong anywhere else is damage that no crash explains, and is refused with its number.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from .decoding import Settings
from .engine import Identity, Sample
from .prompts import Prompt, digest

__all__ = ["SCHEMA", "Line", "Samples", "encode", "read_samples", "scan"]

SCHEMA = 1
"""Raised when the meaning of a field changes."""

_MARK = b',"crc":"'
_TAIL = len(_MARK) + 8 + len('"}')
_START = b'{"kind":"header"'


class Line(NamedTuple):
    """One good line, and the byte after it."""

    record: dict[str, Any]
    end: int


def encode(record: dict[str, Any]) -> bytes:
    """A record as a line with its check."""
    body = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(
        "utf-8", "surrogatepass"
    )
    return b'%s%s%08x"}\n' % (body[:-1], _MARK, zlib.crc32(body))


def decode(line: bytes) -> dict[str, Any] | None:
    """The record of a line (without its newline), or None where the check fails."""
    if len(line) <= _TAIL or line[-_TAIL : -_TAIL + len(_MARK)] != _MARK:
        return None
    body = line[:-_TAIL] + b"}"
    if line[-10:-2] != b"%08x" % zlib.crc32(body):
        return None
    try:
        record = json.loads(body)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def damaged(line: bytes) -> bool:
    """Whether a line carries a check and fails it."""
    line = line.rstrip(b"\n")
    return line[-_TAIL : -_TAIL + len(_MARK)] == _MARK and decode(line) is None


def scan(path: Path) -> tuple[list[Line], int]:
    """All good lines, and how many bytes at the end belong to none (a torn tail).

    Raises ValueError for a file that is not ours, of another schema, or damaged before its end.
    """
    data = path.read_bytes()
    lines: list[Line] = []
    good_end, bad_at = 0, 0
    start, number = 0, 0
    while (newline := data.find(b"\n", start)) >= 0:
        number += 1
        record = decode(data[start:newline])
        if record is None:
            bad_at = bad_at or number
        elif bad_at:
            raise ValueError(
                f"{path}, line {bad_at}: damaged (its check fails) with good lines after it: no crash does that; restore the file"
            )
        else:
            good_end = newline + 1
            lines.append(Line(record, good_end))
        start = newline + 1
    if not lines and data and not data.startswith(_START[: len(data)]):
        raise ValueError(f"{path} is not a samples file: it does not begin with a header")
    if lines and lines[0].record.get("kind") != "header":
        raise ValueError(f"{path} is not a samples file: its first line is no header")
    if lines and lines[0].record.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} has schema {lines[0].record.get('schema')!r}; this version of widen reads schema {SCHEMA}"
        )
    return lines, len(data) - good_end


def header_record(settings: Settings, identity: Identity) -> dict[str, Any]:
    """The first line."""
    return {
        "kind": "header",
        "schema": SCHEMA,
        "settings": settings.to_json(),
        "engine": identity.engine,
        "name": identity.name,
        "model": identity.model,
        "details": identity.details,
        "notes": list(identity.notes),
    }


def prompt_record(prompt: Prompt) -> dict[str, Any]:
    """A prompt's line."""
    record: dict[str, Any] = {"kind": "prompt", "id": prompt.id, "digest": digest(prompt), "text": prompt.text}
    if prompt.without is not None:
        record["without"] = prompt.without
    if prompt.ids is not None:
        record["ids"] = list(prompt.ids)
    return record


def sample_record(sample: Sample, settings: Settings) -> dict[str, Any]:
    """A sample's line; unknown values are left out."""
    record: dict[str, Any] = {"kind": "sample", "settings": settings.hash, "seed": settings.seed}
    record |= {name: value for name in _FIELDS if (value := getattr(sample, name)) is not None}
    return record


_FIELDS = tuple(f.name for f in fields(Sample))


def as_sample(record: dict[str, Any]) -> Sample:
    """A sample out of its record."""
    values = {key: value for key, value in record.items() if key in _FIELDS}
    if "ids" in values:
        values["ids"] = tuple(values["ids"])
    return Sample(**values)


@dataclass(frozen=True)
class Samples:
    """A samples file, read."""

    header: dict[str, Any]
    prompts: dict[str, Prompt]
    samples: list[Sample]
    torn: int  # bytes at the end that belong to no line: a writer was killed, and has not been started again

    @property
    def settings(self) -> Settings:
        """How they were drawn."""
        return Settings.from_json(self.header["settings"])

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


def read_samples(path: str | Path) -> Samples:
    """Everything in a samples file; the file is not changed."""
    lines, torn = scan(Path(path))
    if not lines:
        raise ValueError(f"{path} holds no complete header: its writer was killed before the first sample")
    prompts, samples = {}, []
    for record, _ in lines[1:]:
        if record["kind"] == "sample":
            samples.append(as_sample(record))
        elif record["kind"] == "prompt":
            ids = tuple(record["ids"]) if "ids" in record else None
            prompts[record["id"]] = Prompt(text=record["text"], id=record["id"], without=record.get("without"), ids=ids)
    return Samples(lines[0].record, prompts, samples, torn)
