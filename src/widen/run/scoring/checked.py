"""Scores by a checker of the user's own: precision, pass@k and coverage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from widen.data.tasks.definition import spaced
from widen.disk.digest import file_digest
from widen.judge import Checked, Sandbox, run_checker
from widen.sample import Sample
from widen.sample.decoding import Settings

from ..record import Record
from ..score_settings import CheckerScore
from .answers import JudgedAnswer, score_answers
from .job import ScoreJob, limits_of
from .score_files import Detail, Values, score_samples

RIGHT = 0.5
"""An answer with at least this score is right."""
TRIED = 4
"""Answers of the data that a new checker is tried on."""


class Checker(NamedTuple):
    """A function `check(prompt, answer)` of a Python file, and the files that it may read."""

    file: Path
    function: str
    files: tuple[Path, ...] = ()

    @classmethod
    def parse(cls, spec: str, files: Sequence[Path] = ()) -> Checker:
        """Read ``FILE.py:FUNCTION``.

        >>> Checker.parse("gsm8k.py:check").function
        'check'
        """
        file, _, function = spec.rpartition(":")
        if not file or not function.isidentifier():
            raise ValueError(f"--checker {spec}: legal is FILE.py:FUNCTION, such as gsm8k_checker.py:check")
        return cls(Path(file), function, tuple(files))

    def check(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        sandbox: Sandbox,
        verdicts: Path,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[JudgedAnswer]:
        """Check pairs of a prompt and an answer; pairs with a result in the file ``verdicts`` are not checked again.

        If the checker has no function `key`, answers that differ in white space alone count as one.
        """
        found = run_checker(
            self.file,
            self.function,
            pairs,
            sandbox=sandbox,
            files=self.files,
            verdicts_path=verdicts,
            progress=progress,
        )
        return [judged_by(one, spaced({}, text)) for one, (_, text) in zip(found, pairs, strict=True)]

    def try_out(
        self, pairs: Sequence[tuple[str, str]], *, sandbox: Sandbox, verdicts: Path, right: bool = False
    ) -> None:
        """Check the first `TRIED` of these pairs; refuse a checker that fails on all, or, with ``right``, calls all of them wrong."""
        tried = pairs[:TRIED]
        found = self.check(tried, sandbox=sandbox, verdicts=verdicts)
        if not found or not all(one.failure or (right and not one.right) for one in found):
            return
        (prompt, answer), reason = tried[0], found[0].failure
        call = f"{self.function}({prompt[:60]!r}, {answer[:60]!r})"
        what, why = ("fails on", f": {reason}") if reason else ("calls wrong", "")
        raise ValueError(f"checker {self.file}: it {what} every answer of the data that was tried, such as {call}{why}")


def judged_by(one: Checked, key: str = "") -> JudgedAnswer:
    """What a checker said about an answer. An answer that cannot be checked is wrong; ``key`` is for checkers that give none."""
    key = key if one.key is None else one.key
    if one.score is None:
        return JudgedAnswer(False, key, one.status, f"{one.status}: {one.detail}")
    right = one.score >= RIGHT
    return JudgedAnswer(right, key, "right" if right else "wrong")


def score_checked(job: ScoreJob) -> list[Record]:
    """Records at every decoding of one experiment."""
    score, tools = job.experiment.score, job.tools
    assert isinstance(score, CheckerScore)
    checker, prompts = Checker.parse(score.checker), {one.id: one.example.prompt for one in job.questions}
    if file_digest(checker.file) != score.digest:
        raise ValueError(f"{checker.file} has changed since this score was defined: restore it, or take another --out")

    def measure(setting: Settings, drawn: list[Sample]) -> tuple[Values, Detail]:
        pairs = [(prompts[one.prompt], one.text) for one in drawn]
        sandbox = tools.sandbox(limits_of(score))
        judged = checker.check(pairs, sandbox=sandbox, verdicts=tools.verdicts(checker.file.stem))
        found = score_answers(job.folder.samples(setting.name), drawn, judged, score.ks)
        return found.measured, found.detail

    return score_samples(job, measure)
