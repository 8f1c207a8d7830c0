"""From programs to verdicts: all tests of a program run in one process first, and separately if one fails there.

Globals leak between the tests of one program. A test that fails after others is therefore run again in its own
process, and only that run counts. The first test needs no second run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from .judges import Judge, Program
from .limits import Limits
from .sandbox import Sandbox
from .verdict import Count, Verdict, VerdictFile
from .worker import Job, Outcome

_DETAIL = 600  # longest detail of a verdict


def judge_programs(
    judge: Judge,
    programs: Sequence[Program],
    *,
    sandbox: Sandbox,
    verdicts_path: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Verdict]:
    """Judge programs in a sandbox.

    Special cases:
        Programs with the same text and tests are run once. With `verdicts_path`, a program that already has a verdict
        in the file is not run again. If the judge cannot handle what a program did, that program's verdict is `error`;
        the others are still judged.

    Args:
        judge: how to test programs.
        programs: what to test.
        sandbox: an open sandbox.
        verdicts_path: a JSON-lines file; every verdict is appended to it at once.
        progress: called with (programs judged, all programs) after each verdict.

    Returns:
        One verdict per program, in order.
    """
    for program in programs:
        judge.check(program)
    settings = {**judge.settings(), **sandbox.settings()}
    keys = [program_key(program, settings) for program in programs]
    with ExitStack() as stack:
        file = stack.enter_context(VerdictFile(verdicts_path)) if verdicts_path is not None else None
        known = dict(file.known) if file is not None else {}
        trials = {key: _Trial(judge, program) for key, program in zip(keys, programs, strict=True) if key not in known}
        repeats = Counter(keys)
        done = len(keys) - sum(repeats[key] for key in trials)
        jobs = deque(replace(trial.first(), tag=key) for key, trial in trials.items())
        for job, outcome in sandbox.stream(jobs):
            verdict = trials[job.tag].take(outcome, sandbox.limits)
            if not isinstance(verdict, Verdict):
                jobs.appendleft(replace(verdict, tag=job.tag))
                continue
            known[job.tag] = verdict
            if file is not None:
                file.add(job.tag, verdict)
            done += repeats[job.tag]
            if progress is not None:
                progress(done, len(keys))
    return [known[key] for key in keys]


def program_key(program: Program, settings: dict[str, Any]) -> str:
    """Return a hash of everything that a verdict depends on."""
    tests = [test if isinstance(test, (str, int, float)) else asdict(test) for test in program.tests]
    parts = [settings, program.source, program.trusted, program.setup, program.shadows, tests]
    body = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


def counts(programs: Sequence[Program], verdicts: Sequence[Verdict]) -> list[Count]:
    """Count the programs judged and passed per problem, in order of first appearance, as pass_at_k takes them.

    Examples:
        >>> two = [Program(problem="a", source="x", tests=(1.0,)), Program(problem="a", source="y", tests=(1.0,))]
        >>> counts(two, [Verdict(status=s, tests_passed=0, tests=1, seconds=0.0) for s in ("passed", "error")])
        [Count(problem='a', n=2, c=1)]
    """
    if len(programs) != len(verdicts):
        raise ValueError(f"{len(programs)} programs and {len(verdicts)} verdicts: one each is needed")
    found: dict[str, tuple[int, int]] = {}
    for program, verdict in zip(programs, verdicts, strict=True):
        n, c = found.get(program.problem, (0, 0))
        found[program.problem] = (n + 1, c + verdict.passed)
    return [Count(problem, n, c) for problem, (n, c) in found.items()]


class _Trial:
    """Collects the runs of one program until there is a verdict."""

    def __init__(self, judge: Judge, program: Program) -> None:
        self.judge, self.program = judge, program
        self.which: tuple[int, ...] = tuple(range(len(program.tests)))
        self.held: set[int] = set()
        self.open: list[int] = []
        self.seconds = 0.0
        self.apart = False

    def first(self) -> Job:
        """Return the run of all tests in one process."""
        return self.judge.job(self.program, self.which)

    def take(self, outcome: Outcome, limits: Limits) -> Verdict | Job:
        """Return a verdict, or the next run."""
        try:
            return self._take(outcome, limits)
        except Exception as error:  # an outcome that cannot be read must not end the run
            return self._verdict("error", f"the outcome cannot be read: {type(error).__name__}: {error}")

    def _take(self, outcome: Outcome, limits: Limits) -> Verdict | Job:
        self.seconds += float(outcome.ending.get("seconds", 0.0))
        reading = self.judge.read(self.program, self.which, outcome, limits)
        self.held.update(reading.held)
        if reading.fault is not None and reading.fault.test == self.which[0]:
            where = f"test {reading.fault.test + 1}: " if len(self.program.tests) > 1 else ""
            return self._verdict(reading.fault.status, where + reading.fault.detail)
        if reading.fault is not None:  # only the run of all tests gets here: run those that did not pass one by one
            self.apart = True
            self.open = [i for i in self.which if i not in self.held]
        if not self.open:
            return self._verdict("passed", "")
        self.which = (self.open.pop(0),)
        return self.judge.job(self.program, self.which)

    def _verdict(self, status: str, detail: str) -> Verdict:
        tests = len(self.program.tests)
        return Verdict(
            status=status,
            detail=detail[:_DETAIL],
            tests_passed=len(self.held),
            tests=tests,
            seconds=round(self.seconds, 6),
            apart=self.apart,
        )
