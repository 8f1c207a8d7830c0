"""Scores of programs: find the program in an answer, run it against the problem's tests, report pass@k as precision and recall.

Verdicts are appended to one file per task as they are reached. The same program for the same problem runs once, and a killed judge
continues where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from widen.judge import Assertions, Judge, MathQAPython, Program, Sandbox, StdinStdout, Verdict, judge_programs
from widen.judge.records import contest, humaneval, mbpp
from widen.sample import Sample
from widen.sample.decoding import Settings

from ..questions import Question
from ..record import Record
from ..score_settings import ProgramScore
from .answers import AnswerScores, JudgedAnswer, score_answers
from .job import ScoreJob, limits_of
from .same_program import program_form
from .score_files import Detail, Values, score_samples

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
        raise ValueError(
            f"problems must be of one kind with an answer, tests or inputs; found {', '.join(sorted(one or 'none' for one in found))}"
        )
    return kinds[found.pop()]


def run_programs(
    answers: Sequence[tuple[Question, str]],
    *,
    fenced: bool,
    sandbox: Sandbox,
    verdicts: Path,
    progress: Callable[[int, int], None],
) -> list[tuple[Program, Verdict]]:
    """Run the program of every answer; programs whose verdict is in the file ``verdicts`` are not run again."""
    if not answers:
        return []
    judge = judge_of(list({one.id: one for one, _ in answers}.values()))
    programs = [judged(one, program_in(text, fenced=fenced)) for one, text in answers]
    found = judge_programs(judge, programs, sandbox=sandbox, verdicts_path=verdicts, progress=progress)
    return list(zip(programs, found, strict=True))


def program_scores(
    path: Path, samples: Sequence[Sample], found: Sequence[tuple[Program, Verdict]], score: ProgramScore
) -> AnswerScores:
    """The scores of a samples file whose programs have run."""
    form = lru_cache(maxsize=None)(program_form)  # samples repeat
    judged = [
        JudgedAnswer(verdict.passed, form(one.source) if verdict.passed and score.distinct else "", verdict.status)
        for one, verdict in found
    ]

    problems = [one.problem for one, _ in found]
    return score_answers(path, samples, judged, score.ks, coverage=score.distinct, problems=problems)


def score_programs(job: ScoreJob) -> list[Record]:
    """pass@k at every decoding of one experiment, with the counts of each problem for paired comparisons."""
    folder, experiment, questions, tools = job
    score, by_id = experiment.score, {one.id: one for one in questions}
    assert isinstance(score, ProgramScore)

    def measure(setting: Settings, drawn: list[Sample]) -> tuple[Values, Detail]:
        found = run_programs(
            [(by_id[one.prompt], one.text) for one in drawn],
            fenced=score.fenced,
            sandbox=tools.sandbox(limits_of(score)),
            verdicts=tools.verdicts(experiment.task),
            progress=partial(
                tools.progress, f"judge {experiment.name}, seed {experiment.seed}, {setting.decoding.spec}"
            ),
        )
        scores = program_scores(folder.samples(setting.name), drawn, found, score)
        return scores.measured, scores.detail

    return score_samples(job, measure, quiet=True)
