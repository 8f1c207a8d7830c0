"""Scores of programs: which judge fits a question, where the program is in an answer, and pass@k as precision and recall.

Verdicts are kept in one file for all models as they are reached: a program that two models write for a problem runs once, and a judge
that was killed continues where it stopped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import sched_getaffinity
from pathlib import Path
from typing import Any

from widen.judge import (
    Assertions,
    Count,
    Judge,
    Limits,
    MathQAPython,
    Program,
    Sandbox,
    StdinStdout,
    counts,
    judge_programs,
)
from widen.judge.records import contest, mbpp
from widen.judge.verdict import Verdict
from widen.metrics.passes import PassScores, pass_scores

from ..experiment import Experiment
from ..folder import RunFolder, StageProgress
from ..questions import Question
from ..record import Record
from ..sampling import texts_of
from ..score_settings import ProgramScore
from .score_files import Measured, Sampled

FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)


def program_in(text: str, *, fenced: bool) -> str:
    """The program of an answer: the first block between ``` marks if ``fenced`` and there is one, else all of it.

    >>> program_in("Sure:\\n```python\\nprint(1)\\n```\\nDone.", fenced=True)
    'print(1)\\n'
    >>> program_in("print(1)", fenced=True)
    'print(1)'
    """
    found = FENCE.search(text) if fenced else None
    return found.group(1) if found else text


def judged(one: Question, source: str) -> Program:
    """A program with the tests of its problem."""
    facts = one.example.facts
    if "answer" in facts:
        return Program(problem=one.id, source=source, tests=(float(facts["answer"]),))
    if "tests" in facts:
        record = {"task_id": one.id, "code": one.example.completion, "test_list": facts["tests"]}
        return replace(mbpp({**record, "test_setup_code": facts.get("setup", "")}, source), problem=one.id)
    if "inputs" in facts:
        return contest(one.id, source, list(zip(facts["inputs"], facts["outputs"], strict=True)))
    raise ValueError(
        f"problem {one.id} has no answer, tests or inputs to judge a program by: {one.example.prompt[:60]!r}"
    )


def judge_of(questions: Sequence[Question]) -> Judge:
    """The judge that the questions need: the value of ``answer`` within 1 %, assertions, or the output for an input."""
    kinds: dict[str, Judge] = {"answer": MathQAPython(), "tests": Assertions(), "inputs": StdinStdout()}
    found = {next((key for key in kinds if key in one.example.facts), "") for one in questions}
    if len(found) != 1 or "" in found:
        raise ValueError(f"problems must be of one kind with an answer, tests or inputs; found {sorted(found)}")
    return kinds[found.pop()]


def limits_of(score: ProgramScore) -> Limits:
    """What one program may take."""
    return Limits(wall_seconds=score.wall_seconds, cpu_seconds=score.cpu_seconds, memory_bytes=score.memory_mib << 20)


def sandbox_for(score: ProgramScore) -> Sandbox:
    """A sandbox with the limits of the score and a worker for each core; a context manager."""
    return Sandbox(limits=limits_of(score), workers=len(sched_getaffinity(0)))


class Judges:
    """One open sandbox for each set of limits, and the file of verdicts; a context manager."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._open: dict[Limits, Sandbox] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def sandbox(self, score: ProgramScore) -> Sandbox:
        """The sandbox for these limits."""
        limits = limits_of(score)
        if limits not in self._open:
            self._open[limits] = self._stack.enter_context(sandbox_for(score))
        return self._open[limits]

    def judge(
        self,
        experiment: Experiment,
        questions: Sequence[Question],
        programs: list[Program],
        progress: StageProgress | None,
    ) -> list[Verdict]:
        """Verdicts, those reached before included."""
        assert isinstance(experiment.score, ProgramScore)
        path = self.root / "verdicts" / f"{experiment.task}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)

        def at(done: int, total: int) -> None:
            if progress is not None:
                progress(f"judge {experiment.name}, seed {experiment.seed}", done, total)

        sandbox = self.sandbox(experiment.score)
        return judge_programs(judge_of(questions), programs, sandbox=sandbox, verdicts_path=path, progress=at)


def measured(passes: PassScores) -> dict[str, Measured]:
    """pass@k, and precision and recall as the paper defines them from it; pass@1 alone says nothing about recall."""
    recall = {
        "recall": (passes.recall, passes.recall_interval),
        "recall_normalised": (passes.recall_normalised, passes.recall_normalised_interval),
    }
    named = {
        "precision": (passes.precision, passes.precision_interval),
        **(recall if len(passes.ks) > 1 else {}),
        **{f"pass@{k}": (v, i) for k, v, i in zip(passes.ks, passes.values, passes.intervals, strict=True)},
    }
    return {name: Measured(value, found.low, found.high, passes.problems) for name, (value, found) in named.items()}


def judged_detail(found: Sequence[Count], verdicts: Sequence[Verdict]) -> dict[str, dict[str, Any]]:
    """What is kept beside precision: programs judged and passed of each problem, and how many ended in which way."""
    statuses = dict(Counter(verdict.status for verdict in verdicts).most_common())
    return {"precision": {"counts": {c.problem: [c.n, c.c] for c in found}, "statuses": statuses}}


def score_programs(
    folder: RunFolder,
    experiment: Experiment,
    questions: Sequence[Question],
    *,
    judges: Judges,
    progress: StageProgress | None = None,
) -> list[Record]:
    """pass@k at every decoding of one experiment; counts by problem are kept with it, for comparisons in pairs."""
    score = experiment.score
    assert isinstance(score, ProgramScore)
    by_id = {one.id: one for one in questions}
    programs = [
        [
            judged(by_id[name], program_in(text, fenced=score.fenced))
            for name, text in texts_of(folder, setting, experiment, questions)
        ]
        for setting in experiment.settings
    ]
    verdicts = judges.judge(experiment, questions, [program for some in programs for program in some], progress)
    sampled, records = Sampled(experiment), []
    for number, (setting, some) in enumerate(zip(experiment.settings, programs, strict=True)):
        mine = verdicts[number * len(some) : (number + 1) * len(some)]
        found = counts(some, mine)
        passes = pass_scores([c.n for c in found], [c.c for c in found], score.ks)
        records += sampled.keep(folder, setting, measured(passes), judged_detail(found, mine))
    return records
