"""`widen score --task TASK DATA SAMPLES...`: pass@k of programs that are really run, in a sandbox."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from widen.disk.atomic import write_json

from .show import bars

if TYPE_CHECKING:
    from widen.run.sample_files import Judged
    from widen.run.score_settings import ProgramScore


def add_arguments(group: Any) -> None:
    """Flags for programs."""
    group.add_argument(
        "--task", metavar="NAME", help="mathqa_python, mbpp or codecontests: DATA holds its problems, SAMPLES programs"
    )
    group.add_argument(
        "--ks", type=int, nargs="+", metavar="K", help="of pass@k (default: 1 10 100 as far as there are samples)"
    )
    group.add_argument(
        "--fenced", action="store_true", help="the program is the first ``` block of an answer, as chat models write it"
    )
    group.add_argument(
        "--wall-seconds", type=float, metavar="S", help="of one program, all its tests together (default: 10)"
    )


def main(options: argparse.Namespace) -> int:
    """Read the problems, run the programs, print, write."""
    from widen.judge import SandboxUnavailable
    from widen.run.questions import task_questions
    from widen.run.sample_files import files_of, judge_samples, keep_programs
    from widen.run.scoring.programs import sandbox_for

    if len(options.paths) < 2:
        raise ValueError("give DATA, the file of the problems, and then samples files or runs with samples")
    files = [file for path in options.paths[1:] for file in files_of(path)]
    if options.json is not None and len(files) > 1:
        raise ValueError(f"--json names one file, and {len(files)} samples files are scored: leave it out")
    questions = task_questions(options.task, str(options.paths[0]))
    score = _score(options, files)
    console = Console()
    try:
        with sandbox_for(score) as sandbox, bars() as progress:
            found = []
            for file in files:
                at = partial(progress, f"judging {file.name}")
                found.append(judge_samples(file, questions, score, sandbox=sandbox, task=options.task, progress=at))
    except SandboxUnavailable as error:
        raise ValueError(f"programs are run in a sandbox only: {error}") from None
    console.print(_table(found, f"{options.task}: {len(files)} samples file{'s' * (len(files) > 1)}"))
    for one in found:
        if one.passes.problems < len(questions):
            console.print(
                f"note: {one.path.name} has samples of {one.passes.problems} of the {len(questions)} problems"
            )
        if options.json is None and one.run is not None:
            path = keep_programs(one.run, one, options.task, score)
        else:
            path = options.json or one.path.with_name(one.path.name + ".scores.json")
            write_json(path, _content(one))
        console.print(f"scores: {path}", soft_wrap=True)
    return 0


def _score(options: argparse.Namespace, files: list[Path]) -> ProgramScore:
    """The paper's ks as far as every problem has samples, unless some were asked for."""
    from collections import Counter

    from widen.run.score_settings import ProgramScore
    from widen.sample import read_samples

    least = min(min(Counter(s.prompt for s in read_samples(f)).values(), default=1) for f in files)
    ks = options.ks
    if ks is None:
        ks = [k for k in ProgramScore().ks if k <= least] if least >= 10 else sorted({1, least})
    if not 1 <= min(ks) <= max(ks) <= least:  # before a program is run
        raise ValueError(f"--ks {' '.join(map(str, ks))}: from 1 to {least}, the fewest samples of a problem")
    wall = ProgramScore().wall_seconds if options.wall_seconds is None else options.wall_seconds
    if not wall > 0:
        raise ValueError(f"--wall-seconds {wall:g}: above 0")
    return ProgramScore(ks=tuple(sorted(ks)), fenced=options.fenced, wall_seconds=wall)


def _table(found: list[Judged], title: str) -> Table:
    table = Table(title=title, title_justify="left", caption="interval: 95% over problems", caption_justify="left")
    ks = found[0].passes.ks
    for header in ("decoding", "problems", "samples", *(f"pass@{k}" for k in ks), "programs"):
        table.add_column(header, justify="left" if header in ("decoding", "programs") else "right")
    for one in found:
        low, high = one.passes.samples
        passes = (
            f"{value:.3f}\n{interval.low:.3f}–{interval.high:.3f}"
            for value, interval in zip(one.passes.values, one.passes.intervals, strict=True)
        )
        statuses = "\n".join(f"{number:,} {status}" for status, number in one.statuses.items())
        number = f"{low}" if low == high else f"{low}–{high}"
        table.add_row(one.decoding.spec, f"{one.passes.problems:,}", number, *passes, statuses)
    return table


def _content(one: Judged) -> dict[str, Any]:
    return one.passes.to_json() | {
        "decoding": one.decoding.spec,
        "counts": {count.problem: [count.n, count.c] for count in one.counts},
        "statuses": one.statuses,
    }
