"""Which answers are right, and which of them count as one.

A task with listed answers is judged by membership. Programs and a checker of the user's own run in the judge's sandbox, and nowhere else;
their verdicts are kept by content, so that nothing is judged twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from os import sched_getaffinity
from pathlib import Path
from typing import NamedTuple

from widen.data.tasks import spellings
from widen.judge import Limits, Sandbox, judge_programs, run_checker
from widen.judge.ray_sandbox import RaySandbox

from ..folder import StageProgress, silent
from ..questions import Question
from ..scoring.checked import RIGHT, Checker
from ..scoring.programs import judge_of, judged, program_in
from ..scoring.same_program import tidy
from .config import Growth


class JudgedAnswer(NamedTuple):
    """One answer: whether it is right, and a key. Answers with one key count as one."""

    right: bool
    key: str


def spaced(text: str) -> str:
    """The text with every run of white space as one space.

    >>> spaced(" 3 *  4\\n= 12 ")
    '3 * 4 = 12'
    """
    return " ".join(text.split())


class Verifier:
    """Judges answers; a context manager. The sandbox opens when the first program or checker has to run.

    Args:
      config: names the checker, and how a program is cut out of an answer.
      questions: what will be judged; refused if nothing here can judge them.
      folder: verdicts go to ``folder/verdicts``.
      ray: address of a Ray cluster that runs the sandboxes; None runs them on this machine.
    """

    def __init__(self, config: Growth, questions: Sequence[Question], folder: Path, *, ray: str | None = None) -> None:
        self.config, self.folder, self.ray = config, folder, ray
        self.checker = (
            Checker.parse(config.checker, [Path(f) for f in config.checker_files]) if config.checker else None
        )
        self.listed = self.checker is None and all("answers" in one.example.facts for one in questions)
        self._key_of = {one.example.prompt: _keys(one) for one in questions} if self.listed else {}
        if self.checker is None and not self.listed:
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
        if self.listed:
            keys = {one.id: _keys(one) for one, _ in answers}
            return [
                JudgedAnswer(spaced(text) in keys[one.id], keys[one.id].get(spaced(text), spaced(text)))
                for one, text in answers
            ]
        at = partial(progress, what)
        if self.checker is not None:
            return self._check([(one.example.prompt, text) for one, text in answers], at)
        sources = [program_in(text, fenced=self.config.fenced) for _, text in answers]
        programs = [judged(one, source) for (one, _), source in zip(answers, sources, strict=True)]
        kept = self._kept(self.config.prompts.task)
        verdicts = judge_programs(self._judge, programs, sandbox=self._open(), verdicts_path=kept, progress=at)
        return [JudgedAnswer(v.passed, tidy(source)) for v, source in zip(verdicts, sources, strict=True)]

    def keys(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """The key of each (prompt, answer) of the data. Its verdict does not matter, so that only a checker has to run."""
        if self.checker is not None and pairs:
            return [one.key for one in self._check(pairs, lambda done, total: None)]
        if self.listed:
            return [self._key_of.get(prompt, {}).get(spaced(text), spaced(text)) for prompt, text in pairs]
        return [tidy(program_in(text, fenced=self.config.fenced)) for _, text in pairs]

    def _check(self, pairs: Sequence[tuple[str, str]], at: Callable[[int, int], None]) -> list[JudgedAnswer]:
        assert self.checker is not None
        file, function, files = self.checker
        kept = self._kept(file.stem)
        found = run_checker(file, function, pairs, sandbox=self._open(), files=files, verdicts_path=kept, progress=at)
        return [
            JudgedAnswer(one.score is not None and one.score >= RIGHT, spaced(text) if one.key is None else one.key)
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


def _keys(question: Question) -> dict[str, str]:
    """The key of every spelling of the listed right answers: the first spelling of the same answer."""
    listed = [[spaced(text) for text in spellings(one)] for one in question.example.facts["answers"]]
    return {text: texts[0] for texts in listed for text in texts}
