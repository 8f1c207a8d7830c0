"""Runs -> the report: verdict, frontiers, best setting, separation, curves, matched temperatures, training, scores, samples, settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from widen.run.advise.advice import Advice, read_advice

from . import load, static, warn
from .best_settings import best_settings, verdict
from .frontier_plot import frontiers
from .lines import ModelLine, group
from .matched import matched_temperatures
from .page import Page
from .parts import Cell, Fold, Part, Section, Table
from .pr_curve_plots import curve_section
from .run_data import RunData
from .sample_panel import samples
from .separation_histograms import separation_section
from .training_curves import training

MOST_RECORDS = 4000


def write_report(paths: Sequence[str | Path], out: str | Path, *, title: str = "", figures: bool = True) -> list[Path]:
    """Read the run folders among ``paths`` and write the page, and beside it the static figures.

    Args:
      paths: run folders, or folders that hold them.
      out: the HTML file; static figures go into ``figures/`` beside it.
      title: of the page; made from the runs when empty.

    Returns:
      What was written, the page first.
    """
    runs = load.load_all(paths)
    out = Path(out)
    found = [read_advice(folder) for folder in dict.fromkeys(run.parent for run in load.find_runs(paths))]
    written = [report(runs, title=title, advice=[one for one in found if one is not None]).write(out)]
    return written + (static.write(group(warn.without_duplicates(runs)[0]), out.parent / "figures") if figures else [])


def report(runs: Sequence[RunData], *, title: str = "", advice: Sequence[Advice] = ()) -> Page:
    """The page of some runs; runs of one name and setting are seeds of one line. ``advice`` comes first."""
    if not runs:
        raise ValueError("no runs to report on: give at least one run folder")
    unique, duplicates = warn.without_duplicates(runs)
    lines = group(unique)
    said = warn.warnings(lines, duplicates)
    count = sum(map(len, said.values()))
    warned = f" {_many(count, 'warning')}: see the section{'s' * (count > 1)} below." if count else ""
    names = [line.name for line in lines]
    shown = names if len(names) <= 3 else [*names[:2], f"{len(names) - 2} more"]
    return Page(
        title=title or f"Precision and recall: {', '.join(shown)}",
        lead=f"{_many(len(lines), 'model')} in {_many(len(unique), 'run')}: what each can reach, and how to decode for it.{warned}",
        sections=[
            *map(_advice, advice),
            *(replace(one, warnings=said.get(one.title, ())) for make in SECTIONS for one in make(lines)),
        ],
        made_by="Made by `widen report`; it loads nothing from outside.",
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _advice(advice: Advice) -> Section:
    """The recommendation of `widen advise` for its wish, with the commands that follow it."""
    parts = [Fold(summary="Train and use it", code="\n".join(advice.commands))]
    return Section(title="Advice", text=[f"The wish: {advice.wish}.", *advice.sentences], parts=parts)


def _scores(lines: Sequence[ModelLine]) -> list[Section]:
    parts: list[Part] = []
    rows: list[list[Cell]] = []
    for line in lines:
        for p in line.points:
            area = p.auc.value if p.auc else None
            scores = [p.precision.value, p.precision.bar, p.recall.value, p.recall.bar, area]
            rows.append([line.name, p.decoding.spec, p.temperature, *scores, p.precision.count, p.kind, line.loss])
    if rows:
        headers = ["model", "decoding", "t", "precision", "± ", "recall", "±", "area", "seeds", "score", "loss"]
        caption = "Precision and recall of every model at every decoding, means over seeds."
        parts.append(Table(headers=headers, rows=rows, general=("t",), caption=caption))
    every: list[list[Cell]] = [
        [line.name, r.seed, r.decoding.spec if r.decoding else "", r.metric, r.value, r.low, r.high, r.n, r.kind]
        for line in lines
        for run in line.runs
        for r in run.records
    ]
    if every:
        headers = ["model", "seed", "decoding", "metric", "value", "low", "high", "n", "score"]
        if all(row[5] is None for row in every):  # exact scores have no interval
            headers, every = headers[:5] + headers[7:], [row[:5] + row[7:] for row in every]
        caption = "Every record, run by run, with its own 95 % interval"
        caption += "." if len(every) <= MOST_RECORDS else f": the first {MOST_RECORDS:,} of {len(every):,}."
        parts.append(Table(headers=headers, rows=every[:MOST_RECORDS], caption=caption))
    text = ["Press a column's name to sort."] if parts else ["No run has a score."]
    return [Section(title="Scores", text=text, parts=parts)]


def _what_was_run(lines: Sequence[ModelLine]) -> list[Section]:
    parts: list[Part] = []
    for line in lines:
        seeds = ", ".join(str(run.seed) for run in line.runs)
        text = [f"Folders: {', '.join(run.name for run in line.runs)}"]
        text += [f"Not in the paper: {key}: {why}" for key, why in (line.experiment.get("not_in_paper") or {}).items()]
        summary = f"{line.name}: {line.loss}; {'seeds' if len(line.runs) > 1 else 'seed'} {seeds}"
        code = json.dumps(dict(line.experiment), indent=2, ensure_ascii=False, default=str)
        parts.append(Fold(summary=summary, text=text, code=code))
    machines = Counter(
        json.dumps(run.env, indent=2, sort_keys=True, default=str) for line in lines for run in line.runs
    )
    parts += [Fold(summary=f"Environment of {_many(count, 'run')}", code=env) for env, count in machines.items()]
    return [Section(title="What was run", text=["Settings, seeds and machines."], parts=parts)]


SECTIONS: tuple[Callable[[Sequence[ModelLine]], list[Section]], ...] = (
    *(verdict, frontiers, best_settings, separation_section, curve_section, matched_temperatures),
    *(training, _scores, samples, _what_was_run),
)
"""Each makes its sections of the page; a function returns none if the runs have nothing to show."""
