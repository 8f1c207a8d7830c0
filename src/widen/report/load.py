"""A run folder as values: config, environment, log, scores, samples. Reads JSON, knows nothing of how it was made.

    config.json env.json log.jsonl samples/<settings>.jsonl scores/<settings>.json

What cannot be read is refused by name, except that a missing log, scores or samples is simply a stage that has not run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from widen.disk.inside import inside
from widen.disk.json_file import read_json
from widen.sample.samples_file import damaged

from .run_data import RunData, Sample, SampleCell, Score, ScorePoint

HELD = 20_000
"""Samples of one file that are held at most while the page is made; the rest are counted."""


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
    points: list[ScorePoint] = []
    scores: list[Score] = []
    config, env = inside(path, path / "config.json"), inside(path, path / "env.json")
    contents = {file.stem: _json(inside(path, file)) for file in sorted((path / "scores").glob("*.json"))}
    kinds = _kinds([content for content in contents.values() if "points" in content])
    for stem, content in contents.items():
        if "points" in content:
            points.extend(_exact(content, kind=kinds[_key(content)]))
        else:
            scores.extend(_scores(content, stem))
    points.extend(_pairs(scores))
    return RunData(
        name=path.name,
        experiment=_json(config).get("experiment", {})
        if config.is_file()
        else {"name": path.name, "model": {"loss": "as it came"}},
        env=_json(env) if env.is_file() else {},
        log=list(_lines(inside(path, path / "log.jsonl"), notes)),
        points=list({(point.kind, point.temperature): point for point in points}.values()),
        scores=scores,
        samples=[_cell(inside(path, file), notes) for file in sorted((path / "samples").glob("*.jsonl"))],
        notes=notes,
    )


def _json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__}, not an object")
    return content


def _lines(path: Path, notes: list[str]) -> Iterator[dict[str, Any]]:
    """The objects of a file with one JSON object a line. What a kill cut short, or a disk damaged, is left out, and said."""
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


def _key(content: dict[str, Any]) -> str:
    """What sets one score of a kind apart from another, the grids of temperatures and lambdas aside."""
    settings = {k: v for k, v in (content.get("settings") or {}).items() if k not in ("temperatures", "lams")}
    return json.dumps([content.get("kind", "exact"), settings], sort_keys=True)


def _kinds(contents: Sequence[dict[str, Any]]) -> dict[str, str]:
    """A name for each kind of score with points: the plain one where a run has one of it, with its settings where it has several."""
    keys = dict.fromkeys(map(_key, contents))
    plain = [json.loads(key)[0] for key in keys]
    return {
        key: kind
        if plain.count(kind) == 1
        else f"{kind} ({', '.join(f'{k}={v}' for k, v in json.loads(key)[1].items())})"
        for key, kind in zip(keys, plain, strict=True)
    }


def _exact(content: dict[str, Any], *, kind: str) -> Iterator[ScorePoint]:
    for point in content["points"]:
        values = {
            key: number(point.get(key))
            for key in ("temperature", "precision", "recall", "recall_ceiling", "auc", "num_samples")
        }
        if values["temperature"] is None or values["precision"] is None or values["recall"] is None:
            continue
        yield ScorePoint(
            kind=kind,
            temperature=float(f"{values['temperature']:.9g}"),  # 1.4 * 3 and 4.2 are one temperature
            precision=values["precision"],
            recall=values["recall"],
            recall_ceiling=values["recall_ceiling"],
            auc=values["auc"],
            num_samples=None if values["num_samples"] is None else int(values["num_samples"]),
            curve_precision=tuple(number(x) or 0.0 for x in point.get("curve_precision", ())),
            curve_recall=tuple(number(x) or 0.0 for x in point.get("curve_recall", ())),
        )


def _scores(content: dict[str, Any], stem: str) -> Iterator[Score]:
    settings = content.get("settings", {})
    shown = (
        ", ".join(f"{key}={_short(value)}" for key, value in settings.items())
        if isinstance(settings, dict)
        else str(settings)
    )
    for name, entry in (content.get("scores") or {}).items():
        entry = entry if isinstance(entry, dict) else {"value": entry}
        value = number(entry.get("value"))
        if value is not None:
            yield Score(
                kind=str(content.get("kind", stem)),
                settings=shown or stem,
                name=str(name),
                value=value,
                low=number(entry.get("low")),
                high=number(entry.get("high")),
            )


def _pairs(scores: Sequence[Score]) -> Iterator[ScorePoint]:
    """Scores that hold both a precision and a recall, at a temperature that their settings name, are points of a frontier too."""
    for key in dict.fromkeys((score.kind, score.settings) for score in scores):
        mine = {score.name: score for score in scores if (score.kind, score.settings) == key}
        temperature = temperature_of(key[1])
        if temperature is None or not {"precision", "recall"} <= mine.keys():
            continue
        precision, recall = mine["precision"], mine["recall"]
        yield ScorePoint(
            kind=key[0],
            temperature=temperature,
            precision=precision.value,
            recall=recall.value,
            precision_half_width=_half(precision),
            recall_half_width=_half(recall),
        )


def _half(score: Score) -> float | None:
    return None if score.low is None or score.high is None else (score.high - score.low) / 2


def temperature_of(settings: str) -> float | None:
    """The temperature in ``t=0.7,top_p=0.9`` or ``temperature=0.7, k=4``.

    >>> temperature_of("t=0.7,top_p=0.9"), temperature_of("k=4, temperature=2"), temperature_of("top_p=0.9")
    (0.7, 2.0, None)
    """
    for piece in settings.replace("|", ",").split(","):
        key, equals, value = piece.partition("=")
        if equals and key.strip().rpartition(".")[2] in ("t", "temperature"):
            try:
                return float(value)
            except ValueError:
                return None
    return None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _cell(path: Path, notes: list[str]) -> SampleCell:
    """One samples file: a header with the decoding, each prompt before its first sample, a sample a line."""
    label, drawn, distinct = path.stem, 0, set[int]()
    prompts: dict[str, str] = {}
    held: list[Sample] = []
    for row in _lines(path, notes):
        kind = row.get("kind", "sample")
        if kind == "header":
            label = str((row.get("settings") or {}).get("decoding", label))
            notes.extend(f"{path.name}: {note}" for note in row.get("notes", ()))
        elif kind == "prompt":
            prompts[str(row.get("id"))] = str(row.get("text", ""))
        elif kind == "sample":
            asked = str(row.get("prompt", ""))
            sample = Sample(prompts.get(asked, asked), str(row.get("text", "")))
            drawn += 1
            distinct.add(hash(sample))
            if drawn <= HELD:
                held.append(sample)
    return SampleCell(label=label, temperature=temperature_of(label), drawn=drawn, distinct=len(distinct), samples=held)
