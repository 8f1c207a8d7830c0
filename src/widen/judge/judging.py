"""From programs to verdicts: all tests of a program run in one process first, and separately if one fails there.

Globals leak between the tests of one program. A test that fails after others is therefore run again in its own
process, and only that run counts. The first test needs no second run.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
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
    """Judge programs in an open sandbox; return one verdict per program, in order.

    Programs with the same text and tests are run once. If the judge cannot handle what a program did, that program's
    verdict is `error`, and the others are still judged. Every verdict is appended to `verdicts_path`, a JSON-lines file,
    at once, and a program in it is not run again. `progress` is called with (programs judged, all programs).
    """
    for program in programs:
        judge.check(program)
    settings = judge_settings(judge, sandbox)
    keys = [program_key(program, settings) for program in programs]
    with VerdictFile(verdicts_path, Verdict, keys=keys, progress=progress) as file:
        todo = {key: program for key, program in zip(keys, programs, strict=True) if key not in file.known}
        trials = {key: trial(judge, program, sandbox.limits) for key, program in todo.items()}
        jobs = deque(replace(next(runs), tag=key) for key, runs in trials.items())
        for job, outcome in sandbox.stream(jobs):
            try:
                jobs.appendleft(replace(trials[job.tag].send(outcome), tag=job.tag))
            except StopIteration as end:
                file.add(job.tag, end.value)
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


def trial(judge: Judge, program: Program, limits: Limits) -> Generator[Job, Outcome, Verdict]:
    """Yield the runs of one program, take the outcome of each, and return the verdict."""
    which = list(range(len(program.tests)))  # the tests of this run
    left: list[int] = []  # tests to be run one by one after it
    passed: set[int] = set()
    seconds, apart, status, detail = 0.0, False, "passed", ""
    while which:
        outcome = yield judge.job(program, which)
        where = f"test {which[0] + 1}: " if len(program.tests) > 1 else ""
        try:
            seconds += float(outcome.ending.get("seconds", 0.0))
            count, status, detail = read(outcome, len(which), limits)
        except Exception as error:  # an outcome that cannot be read must not end the judge
            count, status, where = 0, "error", ""
            detail = f"the outcome cannot be read: {type(error).__name__}: {error}"
        passed.update(which[:count])
        if count == 0:
            detail = where + detail
            break
        if count < len(which):  # only the run of all tests gets here
            apart, left = True, which[count:]
        which, left = left[:1], left[1:]
    return Verdict(
        status=status,
        detail=detail[:_DETAIL],
        tests_passed=len(passed),
        tests=len(program.tests),
        seconds=round(seconds, 6),
        apart=apart,
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
