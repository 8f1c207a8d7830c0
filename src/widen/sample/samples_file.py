"""The samples file: append-only JSON lines that survive a kill at any byte.

    {"kind": "header", "schema": 1, "settings": ..., "model": ..., ..., "crc": "..."}
    {"kind": "prompt", "id": ..., "text": ..., ..., "crc": "..."}            once, before its first sample
    {"kind": "sample", "prompt": id, "index": 0, "text": ..., ..., "crc": "..."}

Every line ends with the CRC-32 of the rest of it. A killed writer leaves at most one incomplete line at the end, which the next writer cuts
off. A wrong line anywhere else is damage, and is refused with its number.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .decoding import Settings
from .engine import Identity, Sample
from .prompts import Prompt, digest

__all__ = ["SCHEMA", "Samples", "encode", "read_samples", "scan"]

SCHEMA = 1  # raised when the meaning of a field changes

_MARK = b',"crc":"'
_TAIL = len(_MARK) + 8 + len('"}')
_START = b'{"kind":"header"'
_FIELDS = tuple(f.name for f in fields(Sample))


def encode(record: dict[str, Any]) -> bytes:
    """A record as a line with its check."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    body = text.encode("utf-8", "surrogatepass")
    return b'%s%s%08x"}\n' % (body[:-1], _MARK, zlib.crc32(body))


def decode(line: bytes) -> dict[str, Any] | None:
    """The record of a line (without its newline), or None if the check fails."""
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


def scan(path: Path) -> tuple[list[tuple[dict[str, Any], int]], int]:
    """All good records, each with the position of the byte after it, and the number of bytes after them (an incomplete line).

    Raises ValueError if the file is not a samples file, has another schema, or is damaged before its end.
    """
    data = path.read_bytes()
    lines: list[tuple[dict[str, Any], int]] = []
    start, number, bad = 0, 0, 0
    while (newline := data.find(b"\n", start)) >= 0:
        number += 1
        record = decode(data[start:newline])
        if record is None:
            bad = bad or number
        elif bad:
            raise ValueError(
                f"{path}, line {bad}: damaged (its check fails) with good lines after it: no crash does that; restore the file"
            )
        else:
            lines.append((record, newline + 1))
        start = newline + 1
    if not lines:
        if not data.startswith(_START[: len(data)]):
            raise ValueError(f"{path} is not a samples file: it does not begin with a header")
        return [], len(data)
    header = lines[0][0]
    if header.get("kind") != "header":
        raise ValueError(f"{path} is not a samples file: its first line is no header")
    if header.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {header.get('schema')!r}; this version of widen reads schema {SCHEMA}")
    return lines, len(data) - lines[-1][1]


def header_record(settings: Settings, identity: Identity) -> dict[str, Any]:
    """The first line."""
    return {"kind": "header", "schema": SCHEMA, "settings": settings.to_json()} | asdict(identity)


def prompt_record(prompt: Prompt) -> dict[str, Any]:
    """A prompt's line."""
    optional = {"without": prompt.without, "ids": prompt.ids, "messages": prompt.messages or None}
    record = {"kind": "prompt", "id": prompt.id, "digest": digest(prompt), "text": prompt.text}
    return record | {name: value for name, value in optional.items() if value is not None}


def sample_record(sample: Sample, settings: Settings) -> dict[str, Any]:
    """A sample's line; unknown values are left out."""
    record: dict[str, Any] = {"kind": "sample", "settings": settings.hash, "seed": settings.seed}
    return record | {name: value for name in _FIELDS if (value := getattr(sample, name)) is not None}


@dataclass(frozen=True)
class Samples:
    """The content of a samples file."""

    header: dict[str, Any]
    prompts: dict[str, Prompt]
    samples: list[Sample]
    torn: int  # bytes of an incomplete line at the end: a writer was killed

    @property
    def settings(self) -> Settings:
        """How they were drawn."""
        return Settings.from_json(self.header["settings"])

    @property
    def cut(self) -> int:
        """How many samples were ended by `max_tokens`, not by the model."""
        return sum(sample.finish == "length" for sample in self.samples)

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
        ids = tuple(record["ids"]) if "ids" in record else None
        if record["kind"] == "sample":
            known = {name: value for name, value in record.items() if name in _FIELDS}
            samples.append(Sample(**(known | {"ids": ids})))
        elif record["kind"] == "prompt":
            messages = tuple(record.get("messages", ()))
            without = record.get("without")
            prompts[record["id"]] = Prompt(
                text=record["text"], id=record["id"], without=without, ids=ids, messages=messages
            )
    return Samples(lines[0][0], prompts, samples, torn)
