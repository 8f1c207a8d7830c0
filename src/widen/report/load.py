"""Reads a run folder: config.json, env.json, log.jsonl, samples/<decoding>.jsonl, scores/<name>.json.

Errors name the file. A missing file means that its stage has not run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from widen.disk.inside import inside
from widen.disk.json_file import read_json
from widen.run.asking import asked_key, by_asking
from widen.run.folder import RunFolder
from widen.run.record import all_records
from widen.run.scoring.marks import mark_key, read_marks
from widen.sample.decoding import Decoding
from widen.sample.samples_file import damaged

from .run_data import RunData, SampleCell, SampleText

HELD = 20_000
"""Samples of one file that are held in memory; the rest are counted."""

ASKED = ("max_tokens", "seed", "stop", "chat", "system")
"""Settings of a samples file that are `Settings.asked`."""


def find_runs(paths: Sequence[str | Path]) -> list[Path]:
    """The run folders among ``paths`` and below them; each once, in order."""
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
    # A run is not searched further: its checkpoint has a config.json too. Samples of a foreign model have no config.
    if (path / "config.json").is_file() or any((path / "samples").glob("*.jsonl")):
        yield path
        return
    for below in sorted(path.iterdir()):
        if below.is_dir() and not below.is_symlink():
            yield from _below(below)


def names_of(paths: Sequence[Path]) -> list[str]:
    """A name for each folder: its own, with as many of its parents as tell folders of one name apart.

    >>> names_of([Path("s/chat/m"), Path("s/plain/m"), Path("s/x")])
    ['chat/m', 'plain/m', 'x']
    """
    parts = [path.resolve().parts for path in paths]
    names = []
    for mine in parts:
        rivals = [other for other in parts if other != mine]
        length = next(n for n in range(1, len(mine) + 1) if n == len(mine) or all(o[-n:] != mine[-n:] for o in rivals))
        names.append("/".join(mine[-length:]))
    return names


def load_all(paths: Sequence[str | Path]) -> list[RunData]:
    """Read the run folders among ``paths`` and below them. A run whose samples were asked for in several ways is several."""
    found = find_runs(paths)
    return [one for path, name in zip(found, names_of(found), strict=True) for one in _ways(load(path, name=name))]


def _ways(run: RunData) -> list[RunData]:
    """One run per way of asking (chat template, stop strings, max-tokens, seed), named by the settings that differ.

    Otherwise two samples files of one run at the same decoding would be two values of one point.
    """
    ways = by_asking(run.records)
    if len(ways) < 2:
        return [run]
    keys = [asked_key(records[0].detail.get("asked")) for _, records in ways]
    cells: dict[str, list[SampleCell]] = {key: [] for key in keys}
    for cell in run.samples:
        key = asked_key(cell.asked)
        cells[key if key in cells else keys[0]].append(cell)  # samples without a score go with the first way
    name = str(run.experiment.get("name") or run.name)
    return [
        replace(
            run,
            experiment={**run.experiment, "name": f"{name} ({said})" if said else name},
            records=records,
            samples=cells[key],
        )
        for key, (said, records) in zip(keys, ways, strict=True)
    ]


def load(path: str | Path, *, name: str = "") -> RunData:
    """Read one run folder; ``name`` is its own by default."""
    path = Path(path)
    name = name or path.name
    notes: list[str] = []
    config, env = inside(path, path / "config.json"), inside(path, path / "env.json")
    plain = {"name": name, "model": {"loss": "as it came"}}
    return RunData(
        name=name,
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
    """The objects of a JSON-lines file. Broken lines are skipped and noted."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for count, line in enumerate(file, start=1):
            where = f"{path.parent.name}/{path.name}: line {count}"
            try:
                # A model may write half of a surrogate pair; the samples file keeps it.
                row = json.loads(line.decode("utf-8", errors="surrogatepass"))
            except ValueError:
                notes.append(f"{where} is not JSON and is left out")
                continue
            if damaged(line):
                notes.append(f"{where} is damaged (its check fails) and is left out")
            elif isinstance(row, dict):
                yield row


def number(value: Any) -> float | None:
    """A JSON number, or a string that stands for one; None for anything else.

    >>> number("inf"), number(2), number("x"), number(True)
    (inf, 2.0, None, None)
    """
    if isinstance(value, str) and value in ("inf", "-inf", "nan"):
        return float(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _cell(path: Path, notes: list[str]) -> SampleCell:
    label, drawn, cut, distinct = path.stem, 0, 0, set[int]()
    way: dict[str, Any] = {}
    prompts: dict[str, str] = {}
    held: list[SampleText] = []
    marks = read_marks(path)
    for row in _lines(path, notes):
        kind = row.get("kind", "sample")
        if kind == "header":
            settings = row.get("settings") or {}
            label = str(settings.get("decoding", label))
            way = {name: settings[name] for name in ASKED if name in settings}
            notes.extend(f"{path.name}: {note}" for note in row.get("notes", ()))
        elif kind == "prompt":
            prompts[str(row.get("id"))] = str(row.get("text", ""))
        elif kind == "sample":
            asked, text = str(row.get("prompt", "")), str(row.get("text", ""))
            drawn += 1
            cut += row.get("finish") == "length"
            distinct.add(hash((asked, text)))
            if drawn <= HELD:
                note = _note(marks.get(mark_key(asked, text)) if marks else None, row.get("finish"))
                held.append(SampleText(prompts.get(asked, asked), text, note))
    try:
        temperature: float | None = Decoding.parse(label).temperature
    except ValueError:
        temperature = None  # a file without a header is named by its stem
    counted: dict[str, Any] = {"drawn": drawn, "distinct": len(distinct), "cut": cut}
    return SampleCell(label=label, temperature=temperature, samples=held, asked=way, **counted)


def _note(right: bool | None, finish: Any) -> str:
    """Right or wrong, by the sample's mark, and whether max-tokens cut the text."""
    said = [] if right is None else ["right" if right else "wrong"]
    return ", ".join([*said, "cut at max-tokens"] if finish == "length" else said)
