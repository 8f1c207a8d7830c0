"""Programs as samples: which judge fits an example, where the program stands in an answer, and pass@k as precision and recall.

Verdicts are kept in one file for all models, as they are reached: two models that write the same program for a problem have it run once,
and a judge that was killed goes on where it stopped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import sched_getaffinity
from pathlib import Path

from widen.judge import (
    Assertions,
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

from .folder import RunFolder
from .scores import Progress
from .text_experiment import ProgramScore, TextExperiment
from .text_points import Measured, TextPoint, keep_point
from .text_prompts import Asked
from .text_sampling import texts_of

FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)


def program_in(text: str, *, fenced: bool) -> str:
    """The program of an answer: the first block between ``` marks where that is asked for and there is one, else all of it.

    >>> program_in("Sure:\\n```python\\nprint(1)\\n```\\nDone.", fenced=True)
    'print(1)\\n'
    >>> program_in("print(1)", fenced=True)
    'print(1)'
    """
    found = FENCE.search(text) if fenced else None
    return found.group(1) if found else text


def judged(one: Asked, source: str) -> Program:
    """A program with the tests of its problem, which are what its facts are."""
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


def judge_of(asked: Sequence[Asked]) -> Judge:
    """The judge of a task: the value of ``answer`` within 1 %, assertions, or what is printed for an input."""
    kinds: dict[str, Judge] = {"answer": MathQAPython(), "tests": Assertions(), "inputs": StdinStdout()}
    found = {next((key for key in kinds if key in one.example.facts), "") for one in asked}
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
        self, experiment: TextExperiment, asked: Sequence[Asked], programs: list[Program], progress: Progress | None
    ) -> list[Verdict]:
        """Verdicts, those reached before included."""
        assert isinstance(experiment.score, ProgramScore)
        path = self.root / "verdicts" / f"{experiment.prompts.task}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)

        def at(done: int, total: int) -> None:
            if progress is not None:
                progress(f"judge {experiment.name}, seed {experiment.seed}", done, total)

        sandbox = self.sandbox(experiment.score)
        return judge_programs(judge_of(asked), programs, sandbox=sandbox, verdicts_path=path, progress=at)


def values_of(passes: PassScores) -> dict[str, Measured]:
    """pass@k, and what the paper makes of it, by the names that the page knows; pass@1 alone says nothing of recall."""
    recall = {
        "recall": (passes.recall, passes.recall_interval),
        "recall_normalised": (passes.recall_normalised, passes.recall_normalised_interval),
    }
    named = {
        "precision": (passes.precision, passes.precision_interval),
        **(recall if len(passes.ks) > 1 else {}),
        **{f"pass@{k}": (v, i) for k, v, i in zip(passes.ks, passes.values, passes.intervals, strict=True)},
    }
    return {name: Measured(value=value, low=found.low, high=found.high) for name, (value, found) in named.items()}


def score_programs(
    folder: RunFolder,
    experiment: TextExperiment,
    asked: Sequence[Asked],
    *,
    judges: Judges,
    progress: Progress | None = None,
) -> list[TextPoint]:
    """pass@k at every decoding of one experiment; counts by problem are kept with it, for comparisons in pairs."""
    score = experiment.score
    assert isinstance(score, ProgramScore)
    by_id = {one.id: one for one in asked}
    programs = [
        [
            judged(by_id[name], program_in(text, fenced=score.fenced))
            for name, text in texts_of(folder, setting, experiment, asked)
        ]
        for setting in experiment.settings
    ]
    verdicts = judges.judge(experiment, asked, [program for some in programs for program in some], progress)
    points = []
    for number, (setting, some) in enumerate(zip(experiment.settings, programs, strict=True)):
        mine = verdicts[number * len(some) : (number + 1) * len(some)]
        found = counts(some, mine)
        passes = pass_scores([c.n for c in found], [c.c for c in found], score.ks)
        each: dict[str, tuple[int, ...]] = {c.problem: (c.n, c.c) for c in found}
        point = TextPoint(decoding=setting.decoding.spec, values=values_of(passes), counts=each)
        keep_point(folder, experiment, setting, point, statuses=dict(Counter(verdict.status for verdict in mine)))
        points.append(point)
    return points
