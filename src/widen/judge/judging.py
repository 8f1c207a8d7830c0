"""From programs to verdicts: all tests of a program run in one process first, and separately if one fails there.

Globals leak between the tests of one program. A test that fails after others is therefore run again in its own
process, and only that run counts. The first test needs no second run.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from .judges import Judge, Program
from .limits import Limits
from .sandbox import Sandbox
from .verdict import Count, Verdict, VerdictFile, content_key
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

    Programs with the same text and tests are run once. If the judge cannot handle what a program did, that program's
    verdict is `error`, and the others are still judged.

    Args:
        judge: how to test programs.
        programs: what to test.
        sandbox: an open sandbox.
        verdicts_path: a JSON-lines file; every verdict is appended at once, and a program in it is not run again.
        progress: called with (programs judged, all programs) after each verdict.

    Returns:
        One verdict per program, in order.
    """
    for program in programs:
        judge.check(program)
    settings = judge_settings(judge, sandbox)
    keys = [program_key(program, settings) for program in programs]
    with VerdictFile(verdicts_path, Verdict, keys=keys, progress=progress) as file:
        todo = {key: program for key, program in zip(keys, programs, strict=True) if key not in file.known}
        trials = {key: _Trial(judge, program) for key, program in todo.items()}
        jobs = deque(replace(trial.job(), tag=key) for key, trial in trials.items())
        for job, outcome in sandbox.stream(jobs):
            verdict = trials[job.tag].take(outcome, sandbox.limits)
            if verdict is None:
                jobs.appendleft(replace(trials[job.tag].job(), tag=job.tag))
            else:
                file.add(job.tag, verdict)
    return file.verdicts()


def judge_settings(judge: Judge, sandbox: Sandbox) -> dict[str, Any]:
    """Return the settings that a verdict depends on."""
    return {"judge": judge.name, **asdict(judge), **sandbox.settings()}


def program_key(program: Program, settings: dict[str, Any]) -> str:
    """Return a hash of everything that a verdict depends on."""
    tests = [test if isinstance(test, (str, int, float)) else asdict(test) for test in program.tests]
    return content_key([settings, program.source, program.trusted, program.setup, program.shadows, tests])


def counts(programs: Sequence[Program], verdicts: Sequence[Verdict]) -> list[Count]:
    """Count the programs judged and passed per problem, in order of first appearance, as pass_at_k takes them.

    Examples:
        >>> two = [Program(problem="a", source="x", tests=(1.0,)), Program(problem="a", source="y", tests=(1.0,))]
        >>> counts(two, [Verdict(status=s, tests_passed=0, tests=1, seconds=0.0) for s in ("passed", "error")])
        [Count(problem='a', n=2, c=1)]
    """
    if len(programs) != len(verdicts):
        raise ValueError(f"{len(programs)} programs and {len(verdicts)} verdicts: one each is needed")
    judged = Counter(program.problem for program in programs)
    passed = Counter(p.problem for p, verdict in zip(programs, verdicts, strict=True) if verdict.passed)
    return [Count(problem, n, passed[problem]) for problem, n in judged.items()]


class _Trial:
    """Collects the runs of one program until there is a verdict."""

    def __init__(self, judge: Judge, program: Program) -> None:
        self.judge, self.program = judge, program
        self.which: tuple[int, ...] = tuple(range(len(program.tests)))
        self.held: set[int] = set()
        self.open: list[int] = []
        self.seconds = 0.0
        self.apart = False

    def job(self) -> Job:
        """Return the next run."""
        return self.judge.job(self.program, self.which)

    def take(self, outcome: Outcome, limits: Limits) -> Verdict | None:
        """Return a verdict, or None if another run is needed."""
        try:
            self.seconds += float(outcome.ending.get("seconds", 0.0))
            passed, status, detail = read(outcome, len(self.which), limits)
        except Exception as error:  # an outcome that cannot be read must not end the run
            return self._verdict("error", f"the outcome cannot be read: {type(error).__name__}: {error}")
        self.held.update(self.which[:passed])
        if passed == 0:
            where = f"test {self.which[0] + 1}: " if len(self.program.tests) > 1 else ""
            return self._verdict(status, where + detail)
        if passed < len(self.which):  # only the run of all tests gets here: run the others one by one
            self.apart = True
            self.open = [i for i in self.which if i not in self.held]
        if not self.open:
            return self._verdict("passed", "")
        self.which = (self.open.pop(0),)
        return None

    def _verdict(self, status: str, detail: str) -> Verdict:
        return Verdict(
            status=status,
            detail=detail[:_DETAIL],
            tests_passed=len(self.held),
            tests=len(self.program.tests),
            seconds=round(self.seconds, 6),
            apart=self.apart,
        )


def read(outcome: Outcome, tests: int, limits: Limits) -> tuple[int, str, str]:
    """Return how many of the job's tests passed, and the status and detail of the first that did not."""
    report = outcome.report
    if report is None:
        return 0, *ended(outcome, limits)
    passed, status, detail = report["passed"], report["status"], report["detail"]
    if type(passed) is not int or not 0 <= passed <= tests or (passed == tests) != (status == "passed"):
        raise ValueError(f"status {status!r} with {passed!r} of {tests} tests passed")
    if status == "passed":
        return tests, "passed", ""
    if status == "gone":
        clean = outcome.ending["exit"] == 0 and not outcome.ending["timed_out"]
        # A contest program may end by os._exit(0), but only its first run is known to have exited that way.
        return (1, "passed", "") if clean and passed == 0 and detail == "right" else (passed, *ended(outcome, limits))
    if status == "broken":
        return passed, "error", f"the program sent a malformed message: {detail}"
    if status == "raised":
        return passed, *raised(report["kind"], detail)
    if status not in ("failed", "output"):
        raise ValueError(f"status {status!r}")
    return passed, status, detail


def raised(kind: str, detail: str) -> tuple[str, str]:
    """Return status and detail of a program that raised an exception."""
    text = detail if detail.startswith(kind) else f"{kind}: {detail}"
    if kind.endswith("MemoryError"):
        return "memory", text
    return ("forbidden" if kind == "PermissionError" else "error"), text


def ended(outcome: Outcome, limits: Limits) -> tuple[str, str]:
    """Return status and detail of a program that ended before its tests were done."""
    ending = outcome.ending
    if outcome.out_of_memory:
        return "memory", "the whole sandbox ran out of memory"
    if outcome.fault:
        return "error", outcome.fault
    if ending["timed_out"]:
        return "timeout", f"over {limits.wall_seconds:g} s of wall-clock time"
    code = ending["exit"]
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and ending["cpu"] >= limits.cpu_seconds):
        return "timeout", f"over {limits.cpu_seconds} s of processor time"
    if code == -signal.SIGSYS:
        return "forbidden", "a system call of another architecture"
    if code < 0:
        names = {int(known): known.name for known in signal.Signals}  # real-time signals have no name
        return "error", f"killed by {names.get(-code, f'signal {-code}')}"
    return "error", f"the process exited early (exit status {code})"
