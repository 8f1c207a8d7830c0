"""Runs -> the report: frontiers, best setting, separation, curves, matched temperatures, training, scores, samples, what was run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from widen.run.against_nll import Mean

from . import load, sample_panel, static, warn
from .frontier import frontiers
from .lines import ModelLine, group, kinds_of
from .matched import matched_temperatures
from .page import Page
from .parts import Cell, Fold, Part, Section, Table, Warnings
from .run_data import RunData
from .separation import separation
from .trade_off import best_setting, curves
from .training_curves import training


def write_report(paths: Sequence[str | Path], out: str | Path, *, title: str = "", figures: bool = True) -> list[Path]:
    """Read the run folders among ``paths`` and write the page, and beside it the static figures.

    Args:
      paths: run folders, or folders that hold them.
      out: the HTML file; static figures go into ``figures/`` beside it.
      title: of the page; made from the runs when empty.

    Returns:
      What was written, the page first.
    """
    runs = [load.load(path) for path in load.find_runs(paths)]
    out = Path(out)
    written = [report(runs, title=title).write(out)]
    return written + (static.write(group(warn.without_duplicates(runs)[0]), out.parent / "figures") if figures else [])


def report(runs: Sequence[RunData], *, title: str = "") -> Page:
    """The page of some runs; runs of one name and setting are seeds of one line."""
    if not runs:
        raise ValueError("no runs to report on: give at least one run folder")
    unique, duplicates = warn.without_duplicates(runs)
    lines = sorted(group(unique), key=lambda line: line.loss != "nll")  # the baseline comes first
    said = warn.warnings(lines, duplicates)
    styles = {line.name: index for index, line in enumerate(lines)}
    kinds = kinds_of(lines)
    sections = [
        frontiers(lines, kinds, styles, said.scores),
        *best_setting(lines, kinds),
        *separation(lines),
        *curves(lines, styles),
        *matched_temperatures(lines, kinds, styles),
        _training(lines, styles, said.training),
        _scores(lines),
        _samples(lines, said.samples),
        _what_was_run(lines, said.runs),
    ]
    warned = f" {_many(said.count, 'warning')}, each beside what it concerns." if said.count else ""
    lead = f"{_many(len(lines), 'model')} in {_many(len(unique), 'run')}: what each can reach, and how to decode for it.{warned}"
    return Page(
        title=title or _title(lines),
        lead=lead,
        sections=sections,
        made_by="Made by `widen report`; it loads nothing from outside.",
    )


def _title(lines: Sequence[ModelLine]) -> str:
    names = [line.name for line in lines]
    return "Precision and recall: " + (
        ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _warned(said: Sequence[str]) -> list[Part]:
    return [Warnings(lines=said)] if said else []


def _training(lines: Sequence[ModelLine], styles: Mapping[str, int], said: Sequence[str]) -> Section:
    choice = training(lines, styles=styles)
    text = ["What was logged while training."] if choice else ["No run has a training log."]
    return Section(title="Training", text=text, parts=[*_warned(said), *([choice] if choice else [])])


def _scores(lines: Sequence[ModelLine]) -> Section:
    rows: list[list[Cell]] = [
        [
            line.name,
            p.decoding.spec,
            p.temperature,
            *_pair(p.precision),
            *_pair(p.recall),
            _pair(p.auc)[0],
            p.precision.count,
            p.kind,
            line.loss,
        ]
        for line in lines
        for p in line.points
    ]
    headers = ["model", "decoding", "t", "precision", "± ", "recall", "±", "area", "seeds", "score", "loss"]
    caption = "Precision and recall of every model at every decoding, means over seeds."
    parts: list[Part] = []
    if rows:
        parts.append(Table(headers=headers, rows=rows, general=("t",), caption=caption))
    every: list[list[Cell]] = [
        [line.name, r.seed, r.decoding.spec if r.decoding else "", r.metric, r.value, r.low, r.high, r.n, r.kind]
        for line in lines
        for run in line.runs
        for r in run.records
    ]
    if every:
        headers = ["model", "seed", "decoding", "metric", "value", "low", "high", "n", "score"]
        caption = _shown("Every record, run by run, with its own 95 % interval", len(every), 4000)
        parts.append(Table(headers=headers, rows=every[:4000], caption=caption))
    text = ["Press a column's name to sort."] if parts else ["No run has a score."]
    return Section(title="Scores", text=text, parts=parts)


def _pair(one: Mean | None) -> tuple[Cell, Cell]:
    return (None, None) if one is None else (one.value, one.bar)


def _shown(caption: str, count: int, most: int) -> str:
    return f"{caption}." if count <= most else f"{caption}: the first {most:,} of {count:,}."


def _samples(lines: Sequence[ModelLine], said: Sequence[str]) -> Section:
    packed = sample_panel.pack(lines)
    if packed is None:
        text = ["No run has samples: `widen sample RUN` draws some."]
        return Section(title="Samples", text=text, parts=_warned(said))
    text = ["What the models write, side by side. Choose a prompt, models and decodings; or search.", packed.said]
    return Section(title="Samples", text=text, parts=[*_warned(said), packed.panel])


def _what_was_run(lines: Sequence[ModelLine], said: Sequence[str]) -> Section:
    parts = _warned(said)
    for line in lines:
        seeds = ", ".join(str(run.seed) for run in line.runs)
        chosen = line.experiment.get("not_in_paper") or {}
        text = [
            f"Folders: {', '.join(run.name for run in line.runs)}",
            *(f"Not in the paper: {key}: {why}" for key, why in chosen.items()),
        ]
        summary = f"{line.name}: {line.loss}; {'seeds' if len(line.runs) > 1 else 'seed'} {seeds}"
        parts.append(
            Fold(
                summary=summary,
                text=text,
                code=json.dumps(dict(line.experiment), indent=2, ensure_ascii=False, default=str),
            )
        )
    machines: dict[str, list[str]] = {}
    for run in (run for line in lines for run in line.runs):
        machines.setdefault(json.dumps(run.env, indent=2, sort_keys=True, default=str), []).append(run.name)
    for text_of, names in machines.items():
        parts.append(Fold(summary=f"Environment of {_many(len(names), 'run')}", code=text_of))
    return Section(title="What was run", text=["Settings, seeds and machines."], parts=parts)
