"""`widen score` for answers that are right or wrong: programs (--task), a checker of the user's own (--checker), and tasks of
lm-evaluation-harness (--lm-eval). Programs and checkers run in a sandbox.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from widen.disk.atomic import write_json

from .show import bars, names_of_files, table_of

if TYPE_CHECKING:
    from widen.run.folder import StageProgress
    from widen.run.scoring.checked import CheckedSamples, Checker
    from widen.run.scoring.harness import HarnessTask
    from widen.run.scoring.programs import Judged
    from widen.sample import Decoding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for programs and checkers."""
    add = parser.add_argument_group("programs").add_argument
    add("--task", metavar="NAME", help="mathqa_python, mbpp, humaneval, codecontests; first path: its problems")
    add("--ks", type=int, nargs="+", metavar="K", help="k of pass@k (default: 1 10 100, if there are enough samples)")
    add("--fenced", action="store_true", help="the program is the first block between ``` marks")
    add("--wall-seconds", type=float, metavar="S", help="time limit for one program with all its tests (default: 10)")
    add = parser.add_argument_group("a checker of your own").add_argument
    add(
        "--checker",
        metavar="FILE.py:FUNCTION",
        help="your function check(prompt, answer) -> bool, or a score from 0 to 1 (0.5 and above is right). If the file also has "
        "key(answer) -> str, answers with the same key count as one",
    )
    add(
        "--checker-file",
        type=Path,
        action="append",
        metavar="FILE",
        help="a text file that the checker may open by its name, such as reference solutions; may be repeated",
    )
    add(
        "--lm-eval",
        metavar="TASK[:FILTER]",
        help="check by a task of lm-evaluation-harness that generates text (name or YAML file); draw the samples with widen sample "
        "--lm-eval TASK",
    )


class Scored(NamedTuple):
    """One samples file: its scores, a note for the user, how to write them into the run, and what goes into a JSON file instead."""

    file: Path
    decoding: Decoding
    found: Judged | CheckedSamples
    note: str
    keep: Callable[[], Path | None]
    content: dict[str, Any]


def main(options: argparse.Namespace, console: Console) -> int:
    """Judge every answer, print one table, write the scores."""
    from widen.run.sample_files import files_of

    paths = options.paths if options.task is None else options.paths[1:]
    files = [file for path in paths for file in files_of(path)]
    if options.json is not None and len(files) > 1:
        raise ValueError(f"--json names one file, and {len(files)} samples files are scored: leave it out")
    with bars() as progress:
        found = list((_checked if options.task is None else _programs)(options, files, progress))
    measured = [one.found.measured() for one in found]
    metrics = [name for name in measured[0] if name.startswith("pass@") or name == "coverage"]
    rows = []
    for one, values, (name, asked) in zip(found, measured, names_of_files([one.file for one in found]), strict=True):
        passes, (low, high) = one.found.passes, one.found.passes.samples
        samples, how = f"{low}" if low == high else f"{low}–{high}", "\n".join(filter(None, (one.decoding.spec, asked)))
        shown = (f"{v.value:.3f}\n{v.low:.3f}–{v.high:.3f}" for v in (values[metric] for metric in metrics))
        statuses = "\n".join(f"{number:,} {status}" for status, number in one.found.statuses.items())
        rows.append([name, how, f"{passes.problems:,}", samples, f"{one.found.cut:,}", *shown, statuses])
    headers = ["model", "decoding", "problems", "samples", "cut", *metrics, "answers"]
    title = f"{options.task or options.checker or options.lm_eval}: {len(files)} samples file{'s' * (len(files) > 1)}"
    caption = "interval: 95% over problems; cut: answers that max-tokens ended"
    console.print(table_of(title, headers, rows, left=(0, 1, len(headers) - 1), caption=caption))
    for one in found:
        if one.note:
            console.print(one.note, soft_wrap=True, markup=False)
        kept = one.keep() if options.json is None else None
        if kept is None:
            kept = options.json or one.file.with_name(f"{one.file.name}.scores.json")
            write_json(kept, one.found.passes.to_json() | {"decoding": one.decoding.spec, **one.content})
        console.print(f"scores: {kept}", soft_wrap=True)
    return 0


def _programs(options: argparse.Namespace, files: list[Path], progress: StageProgress) -> Iterator[Scored]:
    from widen.run.questions import task_questions
    from widen.run.sample_files import judge_samples, keep_programs
    from widen.run.score_settings import ProgramScore
    from widen.run.scoring.programs import Judges

    wall = ProgramScore().wall_seconds if options.wall_seconds is None else options.wall_seconds
    if not wall > 0:
        raise ValueError(f"--wall-seconds {wall:g}: above 0")
    questions = task_questions(options.task, str(options.paths[0]))
    score = ProgramScore(ks=tuple(_ks(options.ks, files)), fenced=options.fenced, wall_seconds=wall)
    with Judges(options.paths[0].parent) as judges:
        for file in files:
            one, decoding = judge_samples(file, questions, score, judges=judges, task=options.task, progress=progress)
            some = f"note: {file.name} has samples of {one.passes.problems} of the {len(questions)} problems"
            note = some if one.passes.problems < len(questions) else ""
            keep = partial(keep_programs, file, one, options.task, score, decoding)
            yield Scored(file, decoding, one, note, keep, one.detail["precision"])


def _checked(options: argparse.Namespace, files: list[Path], progress: StageProgress) -> Iterator[Scored]:
    from widen.judge import Limits, Sandbox
    from widen.run.sample_files import keep_checked, run_of
    from widen.run.scoring.checked import Checker, check_samples
    from widen.run.scoring.harness import HarnessTask

    def scored(one: CheckedSamples, by: Checker | HarnessTask) -> Scored:
        why = f"{one.path.name}: {len(one.failures)} answers could not be checked and count as wrong; the first:"
        note = f"{why} {one.failures[0]}" if one.failures else ""
        content = {"coverage": one.coverage._asdict(), **one.detail()["precision"]}
        return Scored(one.path, one.decoding, one, note, partial(keep_checked, one, by), content)

    if options.fenced:
        raise ValueError("--fenced is for programs: a checker gets the whole answer")
    if options.lm_eval is not None:
        task = HarnessTask.load(options.lm_eval)
        ks = _ks(options.ks, files)
        yield from (scored(task.check_samples(file, ks), task) for file in files)
        return
    checker, ks = Checker.parse(options.checker, options.checker_file or ()), _ks(options.ks, files)
    limits = Limits() if options.wall_seconds is None else Limits(wall_seconds=options.wall_seconds)
    with Sandbox(limits=limits) as sandbox:
        for file in files:
            at, run = partial(progress, f"checking {file.name}"), run_of(file)
            yield scored(check_samples(file, checker, ks, sandbox=sandbox, run=run, progress=at), checker)


def _ks(asked: list[int] | None, files: list[Path]) -> list[int]:
    """1, 10 and 100 as far as every problem has samples, unless some were asked for."""
    from widen.sample import read_samples

    least = min(min(Counter(s.prompt for s in read_samples(f)).values(), default=1) for f in files)
    ks = sorted(asked or {1, *(k for k in (10, 100) if k <= least), *([least] if least < 10 else [])})
    if not 1 <= ks[0] <= ks[-1] <= least:
        raise ValueError(f"--ks {' '.join(map(str, ks))}: from 1 to {least}, the fewest samples of a problem")
    return ks
