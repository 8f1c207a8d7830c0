"""A run folder as values: config, environment, log, records, samples.

    config.json env.json log.jsonl samples/<decoding>.jsonl scores/<name>.json

Errors name the file. A missing log, missing scores or missing samples mean that a stage has not run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from widen.disk.inside import inside
from widen.disk.json_file import read_json
from widen.run.folder import RunFolder
from widen.run.record import all_records
from widen.sample.decoding import Decoding
from widen.sample.samples_file import damaged

from .run_data import RunData, SampleCell, SampleText

HELD = 20_000
"""At most so many samples of one file are held while the page is made; the rest are counted."""


def find_runs(paths: Sequence[str | Path]) -> list[Path]:
    """The run folders among ``paths``, and inside those that are not run folders themselves; each once, in order."""
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise FileNotFoundError(f"{path} is not a folder; give run folders, or folders that hold them")
        runs = list(_below(path))
        if not runs:
            raise FileNotFoundError(f"{path} holds no run: there is no config.json and no samples/ in it or below it")
        found |= {one.resolve(): one for one in runs if one.resolve() not in found}
    return list(found.values())


def holds_runs(path: Path) -> bool:
    """Whether ``path`` is a run folder or has one below it."""
    return path.is_dir() and next(_below(path), None) is not None


def _below(path: Path) -> Iterator[Path]:
    """Run folders at or below ``path``; a checkpoint inside a run has a config.json too, so a run is not searched further.

    Samples of a model that widen did not train lie in a folder without a config.
    """
    if (path / "config.json").is_file() or any((path / "samples").glob("*.jsonl")):
        yield path
        return
    for below in sorted(path.iterdir()):
        if below.is_dir() and not below.is_symlink():
            yield from _below(below)


def load(path: str | Path) -> RunData:
    """Read one run folder."""
    path = Path(path)
    notes: list[str] = []
    config, env = inside(path, path / "config.json"), inside(path, path / "env.json")
    plain = {"name": path.name, "model": {"loss": "as it came"}}
    return RunData(
        name=path.name,
        experiment=_json(config).get("experiment", {}) if config.is_file() else plain,
        env=_json(env) if env.is_file() else {},
        log=list(_lines(inside(path, path / "log.jsonl"), notes)),
        records=all_records(RunFolder(path)),
        samples=[_cell(inside(path, file), notes) for file in sorted((path / "samples").glob("*.jsonl"))],
        notes=notes,
    )


def _json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__}, not an object")
    return content


def _lines(path: Path, notes: list[str]) -> Iterator[dict[str, Any]]:
    """The objects of a file with one JSON object per line. Broken lines are left out and noted."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for count, line in enumerate(file, start=1):
            try:
                # "surrogatepass": a model may write half of a surrogate pair, and the samples file keeps it as it is
                row = json.loads(line.decode("utf-8", errors="surrogatepass"))
            except ValueError:
                notes.append(f"{path.parent.name}/{path.name}: line {count} is not JSON and is left out")
                continue
            if damaged(line):
                notes.append(
                    f"{path.parent.name}/{path.name}: line {count} is damaged (its check fails) and is left out"
                )
                continue
            if isinstance(row, dict):
                yield row


def number(value: Any) -> float | None:
    """A JSON number, or the strings that stand for what JSON lacks; None for anything else.

    >>> number("inf"), number(2), number("x"), number(True)
    (inf, 2.0, None, None)
    """
    if isinstance(value, str) and value in ("inf", "-inf", "nan"):
        return float(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _cell(path: Path, notes: list[str]) -> SampleCell:
    """One samples file: a header with the decoding, each prompt before its first sample, one sample per line."""
    label, drawn, distinct = path.stem, 0, set[int]()
    prompts: dict[str, str] = {}
    held: list[SampleText] = []
    for row in _lines(path, notes):
        kind = row.get("kind", "sample")
        if kind == "header":
            label = str((row.get("settings") or {}).get("decoding", label))
            notes.extend(f"{path.name}: {note}" for note in row.get("notes", ()))
        elif kind == "prompt":
            prompts[str(row.get("id"))] = str(row.get("text", ""))
        elif kind == "sample":
            asked = str(row.get("prompt", ""))
            sample = SampleText(prompts.get(asked, asked), str(row.get("text", "")))
            drawn += 1
            distinct.add(hash(sample))
            if drawn <= HELD:
                held.append(sample)
    try:
        temperature: float | None = Decoding.parse(label).temperature
    except ValueError:
        temperature = None  # a file without a header is named by its stem
    return SampleCell(label=label, temperature=temperature, drawn=drawn, distinct=len(distinct), samples=held)
