"""Scores of programs: find the program in an answer, run it against the problem's tests, report pass@k as precision and recall.

Verdicts are appended to one file per task as they are reached. The same program for the same problem runs once, and a killed judge
continues where it stopped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from os import sched_getaffinity
from pathlib import Path
from typing import Any, NamedTuple

from widen.judge import (
    Assertions,
    Judge,
    Limits,
    MathQAPython,
    Program,
    Sandbox,
    StdinStdout,
    Verdict,
    counts,
    judge_programs,
)
from widen.judge.records import contest, humaneval, mbpp
from widen.metrics.interval import mean_interval
from widen.metrics.passes import PassScores, pass_scores

from ..experiment import Experiment
from ..folder import RunFolder, StageProgress, silent
from ..questions import Question
from ..record import Record
from ..sampling import samples_of
from ..score_settings import CheckerScore, ProgramScore
from .marks import write_marks
from .same_program import program_form
from .score_files import Measured, Sampled

FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)


def program_in(text: str, *, fenced: bool) -> str:
    """The program of an answer: with ``fenced`` the first block between ``` marks if there is one, else the whole answer.

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
    if "check" in facts:
        record = {
            "task_id": one.id,
            "prompt": facts["head"],
            "test": facts["check"],
            "entry_point": facts["entry_point"],
        }
        return humaneval(record, source)
    if "inputs" in facts:
        return contest(one.id, source, list(zip(facts["inputs"], facts["outputs"], strict=True)))
    raise ValueError(
        f"problem {one.id} has no answer, tests or inputs to judge a program by: {one.example.prompt[:60]!r}"
    )


def judge_of(questions: Sequence[Question]) -> Judge:
    """The judge for the questions: compares ``answer`` within 1 %, runs assertions, or compares output with input."""
    kinds: dict[str, Judge] = {
        "answer": MathQAPython(),
        "tests": Assertions(),
        "check": Assertions(),
        "inputs": StdinStdout(),
    }
    found = {next((key for key in kinds if key in one.example.facts), "") for one in questions}
    if len(found) != 1 or "" in found:
        raise ValueError(f"problems must be of one kind with an answer, tests or inputs; found {sorted(found)}")
    return kinds[found.pop()]


class Judges:
    """One open sandbox per set of limits; a context manager. Verdicts go to ``root/verdicts/``."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._open: dict[Limits, Sandbox] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def sandbox(self, score: ProgramScore | CheckerScore) -> Sandbox:
        """The sandbox for the limits of a score, with one worker per core."""
        limits = Limits(
            wall_seconds=score.wall_seconds, cpu_seconds=score.cpu_seconds, memory_bytes=score.memory_mib << 20
        )
        if limits not in self._open:
            sandbox = Sandbox(limits=limits, workers=len(sched_getaffinity(0)))
            self._open[limits] = self._stack.enter_context(sandbox)
        return self._open[limits]

    def judge(
        self,
        answers: Sequence[tuple[Question, str]],
        score: ProgramScore,
        *,
        verdicts: Path,
        what: str,
        progress: StageProgress = silent,
    ) -> Judged:
        """Run the program of every answer; programs whose verdict is in the file ``verdicts`` are not run again."""
        programs = [judged(one, program_in(text, fenced=score.fenced)) for one, text in answers]
        verdicts.parent.mkdir(parents=True, exist_ok=True)
        reached = judge_programs(
            judge_of(list({one.id: one for one, _ in answers}.values())),
            programs,
            sandbox=self.sandbox(score),
            verdicts_path=verdicts,
            progress=lambda done, total: progress(what, done, total),
        )
        found = counts(programs, reached)
        return Judged(
            passes=pass_scores([c.n for c in found], [c.c for c in found], score.ks),
            counts={count.problem: (count.n, count.c) for count in found},
            statuses=dict(Counter(verdict.status for verdict in reached).most_common()),
            right=[verdict.passed for verdict in reached],
            distinct=_distinct(programs, reached) if score.distinct else {},
        )


def _distinct(programs: Sequence[Program], reached: Sequence[Verdict]) -> dict[str, int]:
    """The number of distinct right programs of each problem, in the order of their ids."""
    form = lru_cache(maxsize=None)(program_form)  # samples repeat
    forms: dict[str, set[str]] = {program.problem: set() for program in programs}
    for program, verdict in zip(programs, reached, strict=True):
        if verdict.passed:
            forms[program.problem].add(form(program.source))
    return {problem: len(forms[problem]) for problem in sorted(forms)}


class Judged(NamedTuple):
    """Judged programs: pass@k, (n, c) of each problem, how many programs ended in which way, which are right, how many distinct right ones
    each problem has (where asked for), and how many answers max-tokens cut."""

    passes: PassScores
    counts: dict[str, tuple[int, int]]
    statuses: dict[str, int]
    right: list[bool]
    distinct: dict[str, int] = {}  # noqa: RUF012  # never changed
    cut: int = 0

    @property
    def detail(self) -> dict[str, dict[str, Any]]:
        """What is stored with precision and coverage."""
        found: dict[str, dict[str, Any]] = {
            "precision": {"counts": self.counts, "statuses": self.statuses, "cut": self.cut}
        }
        return found | ({"coverage": {"by_problem": list(self.distinct.values())}} if self.distinct else {})

    def measured(self) -> dict[str, Measured]:
        """The scores, with intervals. Coverage is the mean number of distinct right programs of a problem."""
        found = measured(self.passes)
        if self.distinct:
            values = list(self.distinct.values())
            found["coverage"] = Measured(sum(values) / len(values), *mean_interval(values), len(values))
        return found


def measured(passes: PassScores) -> dict[str, Measured]:
    """pass@k, and the paper's precision and recall; pass@1 alone gives no recall."""
    named = {"precision": (passes.precision, passes.precision_interval)}
    if len(passes.ks) > 1:
        named["recall"] = (passes.recall, passes.recall_interval)
        named["recall_normalised"] = (passes.recall_normalised, passes.recall_normalised_interval)
    named |= {f"pass@{k}": (v, i) for k, v, i in zip(passes.ks, passes.values, passes.intervals, strict=True)}
    return {name: Measured(value, found.low, found.high, passes.problems) for name, (value, found) in named.items()}


def score_programs(
    folder: RunFolder,
    experiment: Experiment,
    questions: Sequence[Question],
    *,
    judges: Judges,
    progress: StageProgress = silent,
) -> list[Record]:
    """pass@k at every decoding of one experiment, with the counts of each problem for paired comparisons."""
    score = experiment.score
    assert isinstance(score, ProgramScore)
    by_id = {one.id: one for one in questions}
    verdicts = judges.root / "verdicts" / f"{experiment.task}.jsonl"
    records = []
    for setting in experiment.settings:
        drawn = samples_of(folder, setting, experiment, questions)
        answers = [(by_id[one.prompt], one.text) for one in drawn]
        what = f"judge {experiment.name}, seed {experiment.seed}, {setting.decoding.spec}"
        found = judges.judge(answers, score, verdicts=verdicts, what=what, progress=progress)
        found = found._replace(cut=sum(one.finish == "length" for one in drawn))
        write_marks(folder.samples(setting.name), zip(drawn, found.right, strict=True))
        records += Sampled(experiment).keep(folder, setting, found.measured(), found.detail)
    return records
