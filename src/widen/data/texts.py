"""Texts from a file, exactly as written: one per line (.txt), per JSON line (.jsonl) or per row (.csv). Errors name the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .tasks.definition import missing
from .tasks.source_files import decoded, records

ENDINGS = (".txt", ".jsonl", ".csv")


def read_texts(path: str | Path, *, field: str = "text") -> list[str]:
    """The texts of a file, in its order.

    A ``.txt`` has one text per line, so no text may be empty or hold a line break. A ``.jsonl`` has one JSON value per line: a string, or
    an object with the field. A ``.csv`` has a header and one text per row, in the column of that name; quoted texts may hold line breaks.

    Args:
      path: a UTF-8 file with one of these endings.
      field: name of the field or column; not used for ``.txt``.

    Examples:
      >>> import tempfile
      >>> file = Path(tempfile.mkdtemp()) / "stories.jsonl"
      >>> _ = file.write_text('{"story": "Once."}\\n{"story": ""}\\n')
      >>> read_texts(file, field="story")
      ['Once.', '']
    """
    file = Path(path)
    if file.suffix.lower() not in ENDINGS:
        raise ValueError(
            f"{file}: the name must end in {', '.join(ENDINGS)} to be read as texts, got {file.suffix or 'no ending'!r}"
        )
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file")
    texts = list(_lines(file) if file.suffix.lower() == ".txt" else _values(file, field))
    if not texts:
        raise ValueError(f"{file}: holds no text")
    return texts


def _lines(file: Path) -> Iterator[str]:
    text = decoded(file)
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], 1):
        if not line.strip():
            raise ValueError(
                f"{file}, line {number}: empty; a .txt holds one text per line (use .jsonl for texts that may be empty)"
            )
        yield line.removesuffix("\r")


def _values(file: Path, field: str) -> Iterator[str]:
    for where, value, fault in records(str(file), split="", columns=()):
        if fault:
            raise ValueError(f"{where}: {fault}")
        if isinstance(value, dict) and field not in value:
            raise ValueError(f"{where}: {missing(value, (field,))}")
        text = value[field] if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise ValueError(f"{where}: the text must be a string, got {type(text).__name__}")
        yield text
