"""`widen score --checker FILE.py:FUNCTION SAMPLES...`: answers checked by a function of the user's own, in a sandbox.

`widen score --lm-eval TASK SAMPLES...`: answers checked by a task of lm-evaluation-harness.
"""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from widen.disk.atomic import write_json

from .show import bars

if TYPE_CHECKING:
    from widen.run.scoring.checked import CheckedSamples, Checker
    from widen.run.scoring.harness import HarnessTask


def add_arguments(group: Any) -> None:
    """Flags for a checker."""
    group.add_argument(
        "--checker",
        metavar="FILE.py:FUNCTION",
        help="your function check(prompt, answer) -> bool, or a score from 0 to 1 (0.5 and above is right). If the file also has "
        "key(answer) -> str, answers with the same key count as one",
    )
    group.add_argument(
        "--checker-file",
        type=Path,
        action="append",
        metavar="FILE",
        help="a text file that the checker may open by its name, such as reference solutions; may be repeated",
    )
    group.add_argument(
        "--lm-eval",
        metavar="TASK[:FILTER]",
        help="check by a task of lm-evaluation-harness that generates text: its name or YAML file. Draw the samples with "
        "widen sample --lm-eval TASK",
    )


def main(options: argparse.Namespace) -> int:
    """Check every answer, print, write."""
    from widen.run.sample_files import files_of, keep_checked, run_of
    from widen.run.scoring.checked import Checker
    from widen.run.scoring.harness import HarnessTask

    if options.fenced:
        raise ValueError("--fenced is for programs: a checker gets the whole answer")
    by: Checker | HarnessTask
    if options.lm_eval is None:
        by = Checker.parse(options.checker, options.checker_file or ())
    else:
        by = HarnessTask.load(options.lm_eval)
    files = [file for path in options.paths for file in files_of(path)]
    if options.json is not None and len(files) > 1:
        raise ValueError(f"--json names one file, and {len(files)} samples files are scored: leave it out")
    ks = _ks(options.ks, files)
    found = _check(by, files, ks, options)
    console = Console()
    console.print(
        _table(found, f"{options.checker or options.lm_eval}: {len(files)} samples file{'s' * (len(files) > 1)}")
    )
    for one in found:
        if one.failures:
            console.print(
                f"{one.path.name}: {len(one.failures)} answers could not be checked and count as wrong; "
                f"the first: {one.failures[0]}",
                soft_wrap=True,
                markup=False,
            )
        run = run_of(one.path)
        if options.json is None and run is not None:
            path = keep_checked(run, one, by)
        else:
            path = options.json or one.path.with_name(one.path.name + ".scores.json")
            write_json(path, _content(one))
        console.print(f"scores: {path}", soft_wrap=True)
    return 0


def _check(
    by: Checker | HarnessTask, files: list[Path], ks: list[int], options: argparse.Namespace
) -> list[CheckedSamples]:
    from widen.judge import Limits, Sandbox, SandboxUnavailable
    from widen.run.sample_files import run_of
    from widen.run.scoring.checked import check_samples
    from widen.run.scoring.harness import HarnessTask

    if isinstance(by, HarnessTask):
        return [by.check_samples(file, ks) for file in files]
    limits = Limits() if options.wall_seconds is None else Limits(wall_seconds=options.wall_seconds)
    try:
        with Sandbox(limits=limits) as sandbox, bars() as progress:
            return [
                check_samples(
                    file,
                    by,
                    ks,
                    sandbox=sandbox,
                    run=run_of(file),
                    progress=partial(progress, f"checking {file.name}"),
                )
                for file in files
            ]
    except SandboxUnavailable as error:
        raise ValueError(f"a checker runs in a sandbox only: {error}") from None


def _ks(asked: list[int] | None, files: list[Path]) -> list[int]:
    """pass@k for k = 1, 10, 100 as far as every prompt has samples, unless some were asked for."""
    from widen.sample import read_samples

    least = min(min(Counter(s.prompt for s in read_samples(f)).values(), default=1) for f in files)
    ks = (
        sorted(asked) if asked else sorted({1, *(k for k in (10, 100) if k <= least), *([least] if least < 10 else [])})
    )
    if not 1 <= ks[0] <= ks[-1] <= least:
        raise ValueError(f"--ks {' '.join(map(str, ks))}: from 1 to {least}, the fewest samples of a prompt")
    return ks


def _table(found: list[CheckedSamples], title: str) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        caption="interval: 95% over prompts; cut: answers that max-tokens ended",
        caption_justify="left",
    )
    ks = found[0].passes.ks
    for header in ("samples", "prompts", "answers", "cut", *(f"pass@{k}" for k in ks), "coverage", "checks"):
        table.add_column(header, justify="left" if header in ("samples", "checks") else "right")
    for one in found:
        measured = one.measured()
        cells = [measured[name] for name in (*(f"pass@{k}" for k in ks), "coverage")]
        low, high = one.passes.samples
        table.add_row(
            f"{one.path.parent.parent.name if one.path.parent.name == 'samples' else one.path.name}\n{one.decoding.spec}",
            f"{one.passes.problems:,}",
            f"{low}" if low == high else f"{low}–{high}",
            f"{one.cut:,}",
            *(f"{cell.value:.3f}\n{cell.low:.3f}–{cell.high:.3f}" for cell in cells),
            "\n".join(f"{number:,} {status}" for status, number in one.statuses.items()),
        )
    return table


def _content(one: CheckedSamples) -> dict[str, Any]:
    return one.passes.to_json() | {
        "decoding": one.decoding.spec,
        "coverage": one.coverage._asdict(),
        **one.detail()["precision"],
    }
