"""Which answers are right, which of them count as one, and how often each was drawn.

Some tasks check an answer with a function of ours (`Task.check`): `answers` by membership in a list, `e2e` by its slots. Programs and a
checker of the user's own run in the judge's sandbox, and nowhere else; their verdicts are kept by content, so that nothing is judged twice.

One line of a file of right answers is one problem:
{"id", "prompt", "drawn", "right", "cut", "answers": [{"key", "completion", "found", "q", "logq"}]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from os import sched_getaffinity
from pathlib import Path
from typing import NamedTuple

from widen.data.tasks import task
from widen.data.tasks.definition import spaced
from widen.disk.atomic import write_text
from widen.judge import Limits, Sandbox, judge_programs, run_checker
from widen.judge.ray_sandbox import RaySandbox
from widen.metrics.interval import count_interval, share_interval
from widen.metrics.passes import pass_scores
from widen.sample import Sample, read_samples

from ..folder import StageProgress, silent
from ..questions import Question
from ..scoring.checked import RIGHT, Checker
from ..scoring.programs import judge_of, judged, program_in
from ..scoring.same_program import tidy
from ..scoring.score_files import Measured
from ..value import from_json, to_json
from .config import Growth


class JudgedAnswer(NamedTuple):
    """One answer: whether it is right, and a key. Answers with one key count as one."""

    right: bool
    key: str


class Verifier:
    """Judges answers; a context manager. The sandbox opens when the first program or checker has to run.

    Args:
      config: names the task or the checker, and how a program is cut out of an answer.
      questions: what will be judged; refused if nothing here can judge them.
      folder: verdicts go to ``folder/verdicts``.
      ray: address of a Ray cluster that runs the sandboxes; None runs them on this machine.
    """

    def __init__(self, config: Growth, questions: Sequence[Question], folder: Path, *, ray: str | None = None) -> None:
        self.config, self.folder, self.ray = config, folder, ray
        self.checker = (
            Checker.parse(config.checker, [Path(f) for f in config.checker_files]) if config.checker else None
        )
        self.task = task(config.prompts.task)
        self._facts = {one.example.prompt: one.example.facts for one in questions}
        if self.checker is None and self.task.check is None:
            try:
                self._judge = judge_of(questions)
            except ValueError as error:
                raise ValueError(f"{error}; --checker FILE.py:FUNCTION judges any answer") from None
        self._sandbox: Sandbox | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def judge(
        self, answers: Sequence[tuple[Question, str]], *, what: str, progress: StageProgress = silent
    ) -> list[JudgedAnswer]:
        """Judge every answer, in order."""
        at = partial(progress, what)
        if self.checker is not None:
            return self._check([(one.example.prompt, text) for one, text in answers], at)
        if (check := self.task.check) is not None:
            pairs = [(one.example.facts, text) for one, text in answers]
            return [JudgedAnswer(check(facts, text), self.task.key(facts, text)) for facts, text in pairs]
        sources = [program_in(text, fenced=self.config.fenced) for _, text in answers]
        programs = [judged(one, source) for (one, _), source in zip(answers, sources, strict=True)]
        kept = self._kept(self.config.prompts.task)
        verdicts = judge_programs(self._judge, programs, sandbox=self._open(), verdicts_path=kept, progress=at)
        return [JudgedAnswer(v.passed, tidy(source)) for v, source in zip(verdicts, sources, strict=True)]

    def keys(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """The key of each (prompt, answer) of the data. Its verdict does not matter, so that only a checker has to run."""
        if self.checker is not None and pairs:
            return [one.key for one in self._check(pairs, lambda done, total: None)]
        if self.task.check is not None:
            return [self.task.key(self._facts.get(prompt, {}), text) for prompt, text in pairs]
        return [tidy(program_in(text, fenced=self.config.fenced)) for _, text in pairs]

    def _check(self, pairs: Sequence[tuple[str, str]], at: Callable[[int, int], None]) -> list[JudgedAnswer]:
        assert self.checker is not None
        file, function, files = self.checker
        kept = self._kept(file.stem)
        found = run_checker(file, function, pairs, sandbox=self._open(), files=files, verdicts_path=kept, progress=at)
        return [
            JudgedAnswer(one.score is not None and one.score >= RIGHT, spaced({}, text) if one.key is None else one.key)
            for (_, text), one in zip(pairs, found, strict=True)
        ]

    def _kept(self, name: str) -> Path:
        path = self.folder / "verdicts" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _open(self) -> Sandbox:
        if self._sandbox is None:
            limits = Limits(wall_seconds=self.config.wall_seconds)
            if self.ray is None:
                sandbox = Sandbox(limits=limits, workers=len(sched_getaffinity(0)))
            else:
                sandbox = RaySandbox(self.ray, limits=limits)
            self._sandbox = self._stack.enter_context(sandbox)
        return self._sandbox


@dataclass(frozen=True, kw_only=True)
class RightAnswer:
    """A right answer of one problem.

    Args:
      completion: its likeliest spelling among the samples.
      found: how often it was drawn.
      q: its probability under the decoding, summed over the drawn spellings; found / drawn if an engine reports none.
      logq: log-probability of ``completion`` under the model at temperature 1, where the engine reports it.
    """

    key: str
    completion: str
    found: int
    q: float
    logq: float | None = None


@dataclass(frozen=True, kw_only=True)
class FoundAnswers:
    """One problem: samples drawn, how many are right, how many max_tokens cut off, and the distinct right answers."""

    id: str
    prompt: str
    drawn: int
    right: int
    cut: int
    answers: tuple[RightAnswer, ...]


def judge_samples_once(
    samples: Path,
    questions: Sequence[Question],
    path: Path,
    *,
    num: int,
    verifier: Verifier,
    what: str,
    progress: StageProgress = silent,
) -> list[FoundAnswers]:
    """Judge the first ``num`` samples of every question and write ``path``; if it exists, it is only read.

    An answer that max_tokens cut off is wrong and is not judged.
    """
    if path.exists():
        return read_found(path)
    own: dict[str, list[Sample]] = {one.id: [] for one in questions}
    for sample in sorted(read_samples(samples), key=lambda sample: sample.index):
        if sample.prompt in own and sample.index < num:
            own[sample.prompt].append(sample)
    ended = [(one, sample) for one in questions for sample in own[one.id] if sample.finish == "stop"]
    verdicts = verifier.judge([(one, sample.text) for one, sample in ended], what=what, progress=progress)
    right: dict[str, dict[str, list[Sample]]] = {}
    for (one, sample), verdict in zip(ended, verdicts, strict=True):
        if verdict.right:
            right.setdefault(one.id, {}).setdefault(verdict.key, []).append(sample)
    found = []
    for one in questions:
        drawn, answers = own[one.id], right.get(one.id, {})
        found.append(
            FoundAnswers(
                id=one.id,
                prompt=one.example.prompt,
                drawn=len(drawn),
                right=sum(map(len, answers.values())),
                cut=sum(sample.finish != "stop" for sample in drawn),
                answers=tuple(_answer(key, same, len(drawn)) for key, same in answers.items()),
            )
        )
    write_text(path, "".join(json.dumps(to_json(one)) + "\n" for one in found))
    return found


def read_found(path: Path) -> list[FoundAnswers]:
    """The problems of a file of right answers."""
    return [from_json(FoundAnswers, json.loads(line)) for line in path.read_bytes().splitlines()]


def _answer(key: str, same: Sequence[Sample], drawn: int) -> RightAnswer:
    """Samples with one key as one answer."""
    distinct = {sample.ids if sample.ids is not None else sample.text: sample for sample in same}.values()
    known = [sample.sampler for sample in distinct if sample.sampler is not None]
    q = min(1.0, math.fsum(map(math.exp, known))) if len(known) == len(distinct) else len(same) / drawn
    best = max(distinct, key=lambda one: -math.inf if one.sampler is None else one.sampler)
    return RightAnswer(key=key, completion=best.text, found=len(same), q=q, logq=best.logq)


def scores(found: Sequence[FoundAnswers]) -> dict[str, Measured]:
    """Precision, pass@k, and coverage: the number of distinct right answers per problem; intervals are over problems."""
    least = min(one.drawn for one in found)
    ks = sorted({1, *(k for k in (10, 100) if k < least), least})
    passes = pass_scores([one.drawn for one in found], [one.right for one in found], ks)
    shares = {f"pass@{k}": (v, i) for k, v, i in zip(passes.ks, passes.values, passes.intervals, strict=True)}
    named = {"precision": (passes.precision, passes.precision_interval), **shares}
    distinct = [len(one.answers) for one in found]
    named["coverage"] = (sum(distinct) / len(distinct), count_interval(distinct, max(one.drawn for one in found)))
    return {name: Measured(value, low, high, len(found)) for name, (value, (low, high)) in named.items()}


def share_measured(bits: Sequence[bool]) -> Measured:
    """A share of problems with its interval."""
    low, high = share_interval([float(bit) for bit in bits])
    return Measured(sum(bits) / len(bits), low, high, len(bits))
