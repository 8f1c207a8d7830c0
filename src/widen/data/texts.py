"""Texts from a file: one a line (.txt), one a JSON line (.jsonl), one a row (.csv); an error names the line.

Every text is returned as it stands, without trimming: what a model wrote is what is scored.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

__all__ = ["read_texts"]


def read_texts(path: str | Path, *, field: str = "text", limit: int | None = None) -> list[str]:
    """The texts of a file, in its order.

    ``.txt``: one text a line, so no text may be empty or hold a line break. ``.jsonl``: one JSON value a line, a string or an object
    with the field. ``.csv``: a header and one text a row, in the column of that name; line breaks inside quotes belong to the text.

    Args:
      path: a UTF-8 file with one of these endings.
      field: name of the field or column; not used for ``.txt``.
      limit: read no more than this many.

    Examples:
      >>> import tempfile
      >>> file = Path(tempfile.mkdtemp()) / "stories.jsonl"
      >>> _ = file.write_text('{"story": "Once."}\\n{"story": ""}\\n')
      >>> read_texts(file, field="story")
      ['Once.', '']
    """
    file = Path(path)
    readers = {".txt": from_lines, ".jsonl": from_json_lines, ".csv": from_csv}
    if file.suffix.lower() not in readers:
        raise ValueError(
            f"{file}: the name must end in {', '.join(readers)} to be read as texts, got {file.suffix or 'no ending'!r}"
        )
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file")
    texts: list[str] = []
    try:
        for text in readers[file.suffix.lower()](file, field):
            texts.append(text)
            if len(texts) == limit:
                break
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 near text {len(texts) + 1}: {error.reason}") from error
    if not texts:
        raise ValueError(f"{file}: holds no text")
    return texts


def from_lines(file: Path, field: str) -> Iterator[str]:
    """One text a line; only a line feed ends one."""
    with file.open(encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            text = line.removesuffix("\n").removesuffix("\r")
            if not text.strip():
                raise ValueError(
                    f"{file}, line {number}: empty; a .txt holds one text a line (use .jsonl for texts that may be empty)"
                )
            yield text


def from_json_lines(file: Path, field: str) -> Iterator[str]:
    """One JSON value a line; lines of blanks between them are nothing."""
    with file.open(encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line.rstrip())
            except json.JSONDecodeError as error:
                raise ValueError(f"{file}, line {number}: not JSON: {error.msg} at column {error.colno}") from error
            if isinstance(value, dict):
                if field not in value:
                    raise ValueError(
                        f"{file}, line {number}: no field {field!r}; it has {', '.join(map(repr, value)) or 'none'}"
                    )
                value = value[field]
            if not isinstance(value, str):
                raise ValueError(f"{file}, line {number}: the text must be a string, got {type(value).__name__}")
            yield value


def from_csv(file: Path, field: str) -> Iterator[str]:
    """One text a row under the header's column."""
    csv.field_size_limit(2**31 - 1)  # the default refuses a text of more than 128 KB
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.reader(lines, strict=True)
        header = next(rows, None)
        if header is None or field not in header:
            raise ValueError(
                f"{file}, line 1: no column {field!r}; the header has {', '.join(map(repr, header or [])) or 'none'}"
            )
        column = header.index(field)
        while True:
            start = rows.line_num + 1
            try:
                row = next(rows, None)
            except csv.Error as error:
                raise ValueError(f"{file}, line {start}: not CSV: {error}") from error
            if row is None:
                return
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(f"{file}, line {start}: {len(row)} columns where the header has {len(header)}")
            yield row[column]
