"""`widen score` for answers that are right or wrong: programs (--task), a checker of the user's own (--checker), and tasks of
lm-evaluation-harness (--lm-eval). Programs and checkers run in a sandbox.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from widen.disk.atomic import write_json

from .show import bars, names_of_files, table_of

if TYPE_CHECKING:
    from widen.judge import Limits
    from widen.run.sample_files import ProgramTask
    from widen.run.scoring.checked import Checker
    from widen.run.scoring.harness import HarnessTask


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


def main(options: argparse.Namespace, console: Console) -> int:
    """Judge every answer, print one table, write the scores."""
    from widen.judge import Limits
    from widen.run.sample_files import ProgramTask, files_of, judge_file, keep_answers
    from widen.run.scoring.job import ScoreTools
    from widen.sample import read_samples

    paths = options.paths if options.task is None else options.paths[1:]
    files = [file for path in paths for file in files_of(path)]
    if options.json is not None and len(files) > 1:
        raise ValueError(f"--json names one file, and {len(files)} samples files are scored: leave it out")
    if options.wall_seconds is not None and not options.wall_seconds > 0:
        raise ValueError(f"--wall-seconds {options.wall_seconds:g}: above 0")
    limits = Limits() if options.wall_seconds is None else Limits.up_to(options.wall_seconds)
    by, ks = _judge(options, files, limits)
    with bars() as progress, ScoreTools(".", progress=progress) as tools:
        found = [judge_file(file, by, ks, limits, tools) for file in files]
    metrics = [name for name in found[0].measured if name.startswith("pass@") or name == "coverage"]
    rows, decodings = [], [read_samples(file).settings.decoding for file in files]
    for one, decoding, (name, asked) in zip(found, decodings, names_of_files(files), strict=True):
        low, high = one.passes.samples
        samples, how = f"{low}" if low == high else f"{low}–{high}", "\n".join(filter(None, (decoding.in_words, asked)))
        values = (f"{v.value:.3f}\n{v.low:.3f}–{v.high:.3f}" for v in (one.measured[metric] for metric in metrics))
        statuses = "\n".join(f"{number:,} {status}" for status, number in one.statuses.items())
        rows.append([name, how, f"{one.passes.problems:,}", samples, f"{one.cut:,}", *values, statuses])
    headers = ["model", "decoding", "problems", "samples", "cut", *metrics, "answers"]
    title = f"{options.task or options.checker or options.lm_eval}: {len(files)} samples file{'s' * (len(files) > 1)}"
    caption = "interval: 95% over problems; cut: answers that max-tokens ended"
    console.print(table_of(title, headers, rows, left=(0, 1, len(headers) - 1), caption=caption))
    for file, one, decoding in zip(files, found, decodings, strict=True):
        if one.failures:
            why = f"{file.name}: {len(one.failures)} answers could not be checked and count as wrong; the first:"
            console.print(f"{why} {one.failures[0]}", soft_wrap=True, markup=False)
        if isinstance(by, ProgramTask) and one.passes.problems < len(by.questions):
            some = f"note: {file.name} has samples of {one.passes.problems} of the {len(by.questions)} problems"
            console.print(some, soft_wrap=True, markup=False)
        kept = keep_answers(file, one, by) if options.json is None else None
        if kept is None:
            kept = options.json or file.with_name(f"{file.name}.scores.json")
            coverage = {"coverage": one.coverage._asdict()} if one.coverage else {}
            write_json(kept, one.passes.to_json() | {"decoding": decoding.spec, **coverage, **one.detail["precision"]})
        console.print(f"scores: {kept}", soft_wrap=True)
    return 0


def _judge(
    options: argparse.Namespace, files: list[Path], limits: Limits
) -> tuple[ProgramTask | Checker | HarnessTask, list[int]]:
    """What judges the answers, and the k of pass@k."""
    from widen.run.questions import task_questions
    from widen.run.sample_files import ProgramTask
    from widen.run.score_settings import ProgramScore
    from widen.run.scoring.checked import Checker
    from widen.run.scoring.harness import HarnessTask

    if options.task is not None:
        questions, ks = task_questions(options.task, str(options.paths[0])), _ks(options.ks, files)
        score = ProgramScore(
            ks=tuple(ks),
            fenced=options.fenced,
            wall_seconds=limits.wall_seconds,
            cpu_seconds=limits.cpu_seconds,
        )
        return ProgramTask(options.task, questions, score), ks
    if options.fenced:
        raise ValueError("--fenced is for programs: a checker gets the whole answer")
    if options.lm_eval is not None:
        return HarnessTask.load(options.lm_eval), _ks(options.ks, files)
    return Checker.parse(options.checker, options.checker_file or ()), _ks(options.ks, files)


def _ks(asked: list[int] | None, files: list[Path]) -> list[int]:
    """1, 10 and 100 as far as every problem has samples, unless some were asked for."""
    from widen.sample import read_samples

    least = min(min(Counter(s.prompt for s in read_samples(f)).values(), default=1) for f in files)
    ks = sorted(asked or {1, *(k for k in (10, 100) if k <= least), *([least] if least < 10 else [])})
    if not 1 <= ks[0] <= ks[-1] <= least:
        raise ValueError(f"--ks {' '.join(map(str, ks))}: from 1 to {least}, the fewest samples of a problem")
    return ks
