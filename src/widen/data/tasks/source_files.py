"""Records of a file or of a data set, each with its place. A record that cannot be read is returned with the reason."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet")
DATA = (*ENDINGS, ".arrow", ".zip")
"""Endings of files in the folder of a data set."""
MANY = 10_000
"""A folder with more files is not a data set."""

_SPACE = re.compile(r"[ \n\r\t]*")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


class SourceRecord(NamedTuple):
    """One record and its place; ``fault`` says why it could not be read."""

    where: str
    fields: Any
    fault: str = ""


def records(source: str, *, split: str, columns: tuple[str, ...]) -> Iterator[SourceRecord]:
    """The records of a file with one of `ENDINGS`, or of a folder or hub name that `datasets` loads."""
    path = Path(source)
    if path.suffix.lower() in ENDINGS:
        if not path.is_file():
            raise FileNotFoundError(f"{source}: there is no such file")
        return _READERS[path.suffix.lower()](path)
    if path.is_file():
        raise ValueError(f"{source}: the name must end in {', '.join(ENDINGS)} to be read as records")
    return _data_set(source, split, columns)


def line_records(path: Path, parse: Callable[[str], Any]) -> Iterator[SourceRecord]:
    """One record per line; blank lines are no records."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text.strip():
                    yield SourceRecord(where, parse(text))
            except UnicodeDecodeError as error:
                yield SourceRecord(where, None, f"not UTF-8 at byte {error.start + 1}")
            except json.JSONDecodeError as error:
                yield SourceRecord(where, None, f"not JSON: {error.msg} at column {error.colno}")
            except (ValueError, RecursionError) as error:
                yield SourceRecord(where, None, _unreadable(error))


def _unreadable(error: Exception) -> str:
    """What is wrong with correct JSON."""
    if isinstance(error, _TwiceError):
        return str(error)
    why = "is nested too deeply" if isinstance(error, RecursionError) else "holds a whole number of too many digits"
    return f"not JSON that can be read: it {why}"


class _TwiceError(ValueError):
    """A JSON object names a field twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Python would keep the last of two values of one name, and the other would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(f"the field {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _json_list(path: Path) -> Iterator[SourceRecord]:
    """Objects of one list, decoded one by one so that each has a number and a line."""
    text, decoder = decoded(path), json.JSONDecoder(object_pairs_hook=_object)

    def skip(at: int) -> int:
        return _SPACE.match(text, at).end()  # type: ignore[union-attr]

    at, line, counted, number = skip(0), 1, 0, 0
    if text[at : at + 1] != "[":
        raise ValueError(f"{path}: a .json file must hold a list of records (.jsonl holds one per line)")
    at = skip(at + 1)
    while text[at : at + 1] != "]":
        line, counted, number = line + text.count("\n", counted, at), at, number + 1
        try:
            fields, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {error.lineno}: not JSON: {error.msg} at column {error.colno}") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, record {number} (line {line}): {_unreadable(error)}") from None
        yield SourceRecord(f"{path}, record {number} (line {line})", fields)
        at = skip(at)
        if text[at : at + 1] not in (",", "]"):
            raise ValueError(f"{path}: the list is not closed after the record at line {line}")
        at = skip(at + 1) if text[at] == "," else at


def _parquet(path: Path) -> Iterator[SourceRecord]:
    try:
        from pyarrow import ArrowInvalid, parquet  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError(f"{path}: a .parquet file is read by pyarrow: pip install pyarrow") from None
    try:
        with parquet.ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches(batch_size=1024) for row in batch.to_pylist())
            for number, row in enumerate(rows, start=1):
                yield SourceRecord(f"{path}, row {number}", row)
    except ArrowInvalid as error:
        raise ValueError(f"{path}: not a parquet file: {error}") from None


def _csv(path: Path, delimiter: str) -> Iterator[SourceRecord]:
    csv.field_size_limit(2**31 - 1)  # the default refuses a text of more than 128 KB
    # surrogateescape: a byte that is not UTF-8 spoils only its own row.
    text = path.read_bytes().decode("utf-8-sig", errors="surrogateescape")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header = next(rows, None)
    if not header:
        raise ValueError(f"{path}, line 1: no header with the names of the columns")
    if twice := [name for name in header if header.count(name) > 1]:
        raise ValueError(f"{path}, line 1: the header names {twice[0]!r} twice")
    while True:
        where = f"{path}, line {rows.line_num + 1}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise ValueError(f"{where}: not {path.suffix[1:].upper()}: {error}") from None
        if row is None:
            return
        if any(map(_NOT_UTF8.search, row)):
            yield SourceRecord(where, None, "not UTF-8")
        elif len(row) == len(header):
            yield SourceRecord(where, dict(zip(header, row, strict=True)))
        elif row:
            columns = f"{len(row)} column{'s' * (len(row) > 1)}"
            yield SourceRecord(where, None, f"{columns} where the header has {len(header)}")


_READERS: dict[str, Callable[[Path], Iterator[SourceRecord]]] = {
    ".jsonl": partial(  # rstrip: errors name the right column
        line_records, parse=lambda text: json.loads(text.rstrip(), object_pairs_hook=_object)
    ),
    ".txt": partial(line_records, parse=lambda text: {"text": text}),
    ".json": _json_list,
    ".csv": partial(_csv, delimiter=","),
    ".tsv": partial(_csv, delimiter="\t"),
    ".parquet": _parquet,
}


def decoded(path: Path) -> str:
    """The text of a UTF-8 file; an error names the line."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 at byte {error.start + 1}") from None


def _data_set(source: str, split: str, columns: tuple[str, ...]) -> Iterator[SourceRecord]:
    if Path(source).is_dir():
        _refuse_other_folders(Path(source))
    rows = _load(source, split)
    known = [name for name in rows.column_names if name in columns]
    if not known:
        raise ValueError(f"{source}: none of the columns {', '.join(columns)}; it has {', '.join(rows.column_names)}")
    for number, row in enumerate(rows.select_columns(known), start=1):
        yield SourceRecord(f"{source}, {split} row {number}", row)


def _refuse_other_folders(folder: Path) -> None:
    """Refuse a folder that is not a data set. `datasets` would first list every file below it, several times."""
    files: list[str] = []
    for _, _, names in os.walk(folder):
        files += names
        if len(files) > MANY:
            raise ValueError(
                f"{folder} is not a data set: it holds more than {MANY:,} files; name the folder or the file of the data"
            )
    if not any(suffix in DATA for name in files for suffix in Path(name).suffixes):
        raise ValueError(f"{folder} is not a data set: no file in it ends in {', '.join(DATA)}")


def _load(source: str, split: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise ImportError(f"{source} is read by datasets: pip install 'widen[hf]'") from None
    folder = Path(source)
    try:
        if any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):
            found = datasets.load_from_disk(source)
            if not isinstance(found, datasets.DatasetDict):
                return found
            if split not in found:
                raise ValueError(f"it has no split {split!r}; its splits: {', '.join(found)}")
            return found[split]
        name, _, config = (source, "", "") if folder.is_dir() else source.partition(":")
        return datasets.load_dataset(name, config or None, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"cannot load {source!r}, split {split!r}, as a data set: {reason}") from None
