"""The samples file: append-only JSON lines that survive a kill at any byte.

    {"kind": "header", "schema": 1, "settings": ..., "model": ..., ..., "crc": "..."}
    {"kind": "prompt", "id": ..., "text": ..., ..., "crc": "..."}            once, before its first sample
    {"kind": "sample", "prompt": id, "index": 0, "text": ..., ..., "crc": "..."}

Every line ends with the CRC-32 of the rest of it. A killed writer leaves at most one incomplete line at the end, which the next writer cuts
off. A wrong line anywhere else is damage, and is refused with its number.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .decoding import Settings
from .engine import Sample
from .prompts import Prompt

SCHEMA = 1  # raised when the meaning of a field changes

_START = b'{"kind":"header"'
_CHECK = re.compile(rb',"crc":"(.{8})"}\Z', re.DOTALL)
_FIELDS = {"sample": {f.name for f in fields(Sample)}, "prompt": {f.name for f in fields(Prompt)}}


def encode(record: dict[str, Any]) -> bytes:
    """A record as a line with its check."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    body = text.encode("utf-8", "surrogatepass")
    return b'%s,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body))


def decode(line: bytes) -> dict[str, Any] | None:
    """The record of a line (without its newline), or None if the check fails."""
    check = _CHECK.search(line, max(0, len(line) - 18))
    if check is None:
        return None
    body = line[: check.start()] + b"}"
    try:
        record = json.loads(body) if check[1] == b"%08x" % zlib.crc32(body) else None
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def damaged(line: bytes) -> bool:
    """Whether a line carries a check and fails it."""
    line = line.rstrip(b"\n")
    return _CHECK.search(line, max(0, len(line) - 18)) is not None and decode(line) is None


def scan(path: Path) -> tuple[list[dict[str, Any]], int, int]:
    """All good records, the number of their bytes, and the number of bytes after them (an incomplete line).

    Raises ValueError if the file is not a samples file, has another schema, or is damaged before its end.
    """
    data = path.read_bytes()
    lines = data.split(b"\n")[:-1]
    decoded = [decode(line) for line in lines]
    good = [record for record in decoded if record is not None]
    if decoded[: len(good)] != good:
        at = f"{path}, line {decoded.index(None) + 1}"
        raise ValueError(
            f"{at}: damaged (its check fails) with good lines after it: no crash does that; restore the file"
        )
    if not good and not data.startswith(_START[: len(data)]):
        raise ValueError(f"{path} is not a samples file: it does not begin with a header")
    if good and good[0].get("kind") != "header":
        raise ValueError(f"{path} is not a samples file: its first line is no header")
    if good and good[0].get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {good[0].get('schema')!r}; this version of widen reads schema {SCHEMA}")
    end = sum(len(line) + 1 for line in lines[: len(good)])
    return good, end, len(data) - end


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
    records, _, torn = scan(Path(path))
    if not records:
        raise ValueError(f"{path} holds no complete header: its writer was killed before the first sample")
    prompts, samples = {}, []
    for record in records[1:]:
        names = _FIELDS.get(record["kind"], ())
        known: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in record.items() if n in names}
        if record["kind"] == "sample":
            samples.append(Sample(**known))
        elif record["kind"] == "prompt":
            prompts[record["id"]] = Prompt(**known)
    return Samples(records[0], prompts, samples, torn)
