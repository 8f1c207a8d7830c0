"""Which answers are right, which of them count as one, and how often each was drawn.

Some tasks check an answer with a function of ours (`Task.check`): `answers` by membership in a list, `e2e` by its slots. Programs and a
checker of the user's own run in the judge's sandbox, and nowhere else; their verdicts are kept by content, so that nothing is judged twice.

One line of a file of right answers is one problem:
{"id", "prompt", "drawn", "right", "cut", "answers": [{"key", "completion", "found", "q", "logq"}]}, in chat also "messages"
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from widen.data.tasks import task
from widen.disk.atomic import write_text
from widen.disk.digest import source_digest
from widen.judge import Limits
from widen.metrics.interval import share_interval
from widen.metrics.passes import pass_scores
from widen.sample import Sample, read_samples

from ..questions import Question
from ..scoring.answers import JudgedAnswer, coverage_of, pass_measures
from ..scoring.checked import Checker
from ..scoring.job import ScoreTools
from ..scoring.programs import judge_of, program_in, run_programs
from ..scoring.same_program import tidy
from ..scoring.score_files import Measured
from ..value import NEWER, from_json, to_json
from .config import Growth


class Verifier:
    """Judges answers. The sandbox opens when the first program or checker has to run.

    Args:
      config: names the task or the checker, and how a program is cut out of an answer.
      questions: what will be judged; refused if nothing here can judge them.
      tools: their folder keeps the verdicts.
    """

    def __init__(self, config: Growth, questions: Sequence[Question], tools: ScoreTools) -> None:
        self.config, self.tools, self.task = config, tools, task(config.prompts.task)
        files = [Path(file) for file in config.checker_files]
        self.checker = Checker.parse(config.checker, files) if config.checker else None
        self._digests = self._digests_now()
        self._limits = Limits.up_to(config.wall_seconds)
        self._facts = {one.example.prompt: one.example.facts for one in questions}
        if self.checker is None and self.task.check is None:
            try:
                judge_of(questions)
            except ValueError as error:
                raise ValueError(
                    f"task={self.config.prompts.task!r}: nothing says which answers are right ({error}); --checker FILE.py:FUNCTION judges "
                    "any answer"
                ) from None

    def judge(self, answers: Sequence[tuple[Question, str]], *, what: str) -> list[JudgedAnswer]:
        """Judge every answer, in order."""
        at = partial(self.tools.progress, what)
        if self.checker is not None:
            return self._check([(one.example.prompt, text) for one, text in answers], at)
        if (check := self.task.check) is not None:
            pairs = [(one.example.facts, text) for one, text in answers]
            return [JudgedAnswer(check(facts, text), self.task.key(facts, text)) for facts, text in pairs]
        fenced, sandbox = self.config.fenced, self.tools.sandbox(self._limits)
        verdicts = self.tools.verdicts(self.config.prompts.task)
        found = run_programs(answers, fenced=fenced, sandbox=sandbox, verdicts=verdicts, progress=at)
        keys = [tidy(program_in(text, fenced=fenced)) for _, text in answers]
        return [JudgedAnswer(verdict.passed, key) for (_, verdict), key in zip(found, keys, strict=True)]

    def keys(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """The key of each (prompt, answer) of the data. Its verdict does not matter, so that only a checker has to run."""
        if self.checker is not None and pairs:
            sandbox, verdicts = self.tools.sandbox(self._limits), self.tools.verdicts(self.checker.file.stem)
            self.checker.try_out(pairs, sandbox=sandbox, verdicts=verdicts)
            return [one.key for one in self._check(pairs, lambda done, total: None)]
        if self.task.check is not None:
            return [self.task.key(self._facts.get(prompt, {}), text) for prompt, text in pairs]
        return [tidy(program_in(text, fenced=self.config.fenced)) for _, text in pairs]

    def _digests_now(self) -> dict[str, str | None]:
        """Digests of the checker and its files."""
        files = (self.checker.file, *self.checker.files) if self.checker else ()
        return {str(file): source_digest(str(file)) for file in files}

    def _check(self, pairs: Sequence[tuple[str, str]], at: Callable[[int, int], None]) -> list[JudgedAnswer]:
        assert self.checker is not None
        now = self._digests_now()
        if changed := [path for path, digest in self._digests.items() if now[path] != digest]:
            raise ValueError(
                f"{', '.join(changed)} has changed since the growth began: restore it and run the command again"
            )
        sandbox, verdicts = self.tools.sandbox(self._limits), self.tools.verdicts(self.checker.file.stem)
        return self.checker.check(pairs, sandbox=sandbox, verdicts=verdicts, progress=at)


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
    """One problem: samples drawn, how many are right, how many max_tokens cut off, and the distinct right answers.

    ``messages`` are those that it was asked with in chat.
    """

    id: str
    prompt: str
    drawn: int
    right: int
    cut: int
    answers: tuple[RightAnswer, ...]
    messages: tuple[dict[str, Any], ...] = field(default=(), metadata=NEWER)


def judge_samples_once(
    samples: Path,
    questions: Sequence[Question],
    path: Path,
    *,
    num: int,
    verifier: Verifier,
    what: str,
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
    verdicts = verifier.judge([(one, sample.text) for one, sample in ended], what=what)
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
                messages=tuple(map(dict, one.example.asked)),
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
    passes = pass_measures(pass_scores([one.drawn for one in found], [one.right for one in found], ks))
    values = {name: one for name, one in passes.items() if not name.startswith("recall")}
    _, values["coverage"] = coverage_of({one.id: len(one.answers) for one in found})
    return values


def share_measured(bits: Sequence[bool]) -> Measured:
    """A share of problems with its interval."""
    low, high = share_interval([float(bit) for bit in bits])
    return Measured(sum(bits) / len(bits), low, high, len(bits))
