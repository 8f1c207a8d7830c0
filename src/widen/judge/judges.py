"""Three ways to test a program: the value of a variable, assertions, or its output for an input.

A judge turns a program into a run (`job`) and interprets its outcome (`read`). No judge sends an expected answer to
the program's process.
"""

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from .compare import same_answer, same_output
from .limits import Limits
from .worker import Job, Outcome


@dataclass(frozen=True)
class Exchange:
    """One contest test: the program's input and its expected output."""

    stdin: str
    stdout: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to be judged. `setup`, `trusted` and `shadows` are for `Assertions` only.

    Args:
        problem: the problem that it answers; `counts` groups by it.
        source: its Python text.
        tests: for `MathQAPython` one number; for `Assertions` one string of code per test; for `StdinStdout` exchanges.
        setup: code that runs before the tests, in the same process, and may use what the program defines.
        trusted: code of the problem that the tests rely on, e.g. helpers of its prompt. It runs in the tests' process,
            and its names are never taken from the program.
        shadows: builtin names that the tests mean as the program's, e.g. for a problem that asks for a function `sum`.
    """

    problem: str
    source: str
    tests: tuple[float | str | Exchange, ...]
    setup: str = ""
    trusted: str = ""
    shadows: tuple[str, ...] = ()


class Fault(NamedTuple):
    """The first test that failed, and why."""

    test: int
    status: str
    detail: str


class Reading(NamedTuple):
    """What one run showed: the tests that passed, and the first that did not."""

    held: tuple[int, ...]
    fault: Fault | None


@runtime_checkable
class Judge(Protocol):
    """A way to test programs."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that a verdict depends on."""

    def check(self, program: Program) -> None:
        """Raise ValueError unless the program's tests are of this judge's kind."""

    def job(self, program: Program, which: Sequence[int]) -> Job:
        """Return the job that runs the tests `which` in one process."""

    def read(self, program: Program, which: Sequence[int], outcome: Outcome, limits: Limits) -> Reading:
        """Interpret the outcome of that job."""


@dataclass(frozen=True, kw_only=True)
class MathQAPython:
    """The program stores a number in a variable; it must be within `tolerance`, relative, of the reference."""

    variable: str = "answer"
    tolerance: float = 0.01

    def settings(self) -> dict[str, Any]:
        """Return the judge's name and settings."""
        return {"judge": "mathqa_python", **asdict(self)}

    def check(self, program: Program) -> None:
        """Raise ValueError unless there is one test, a number."""
        if len(program.tests) != 1 or not isinstance(program.tests[0], (int, float)):
            raise ValueError(f"tests={program.tests!r} of problem {program.problem!r}: MathQAPython takes one number")

    def job(self, program: Program, which: Sequence[int]) -> Job:
        """Return a job that asks for the variable."""
        return Job(program.source, {"value": self.variable})

    def read(self, program: Program, which: Sequence[int], outcome: Outcome, limits: Limits) -> Reading:
        """Compare the number in the report with the reference."""
        seen = _seen(outcome)
        if seen is None or seen["status"] != "passed":
            return Reading((), Fault(0, *_explain(seen, outcome, limits)))
        reference = float(program.tests[0])  # type: ignore[arg-type]  # checked by `check`
        number = seen["number"]
        if isinstance(number, float) and same_answer(reference, number, tolerance=self.tolerance):
            return Reading((0,), None)
        shown = seen["detail"] if number is None else repr(number)
        return Reading((), Fault(0, "failed", f"{self.variable} = {shown}, reference {reference!r}"))


@dataclass(frozen=True, kw_only=True)
class Assertions:
    """Tests are Python code that calls what the program defines, as in MBPP and HumanEval.

    The tests run in the examiner, never in the program's process.
    """

    def settings(self) -> dict[str, Any]:
        """Return the judge's name and settings."""
        return {"judge": "assertions"}

    def check(self, program: Program) -> None:
        """Raise ValueError unless every test is a string of Python code."""
        if not program.tests or not all(isinstance(test, str) for test in program.tests):
            raise ValueError(f"tests of problem {program.problem!r}: Assertions takes code strings, at least one")
        for code in (program.trusted, program.setup, *program.tests):
            try:
                with warnings.catch_warnings(action="ignore"):
                    compile(str(code), "<test>", "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as error:
                raise ValueError(f"a test of problem {program.problem!r} is not Python: {error}") from None

    def job(self, program: Program, which: Sequence[int]) -> Job:
        """Return a job that runs the setup and then the chosen tests in order."""
        code = {"trusted": program.trusted, "setup": program.setup, "tests": [program.tests[i] for i in which]}
        return Job(program.source, {**code, "shadows": program.shadows, "value": None})

    def read(self, program: Program, which: Sequence[int], outcome: Outcome, limits: Limits) -> Reading:
        """Take the number of passed tests from the examiner's report."""
        seen = _seen(outcome)
        passed = 0 if seen is None else int(seen["passed"])
        if seen is not None and seen["status"] == "passed" and passed == len(which):
            return Reading(tuple(which), None)
        return Reading(
            tuple(which[:passed]), Fault(which[min(passed, len(which) - 1)], *_explain(seen, outcome, limits))
        )


@dataclass(frozen=True, kw_only=True)
class StdinStdout:
    """Contest problems: run the program once per input and compare its output token by token."""

    tolerance: float = 1e-6
    ignore_case: bool = False

    def settings(self) -> dict[str, Any]:
        """Return the judge's name and settings."""
        return {"judge": "stdin_stdout", **asdict(self)}

    def check(self, program: Program) -> None:
        """Raise ValueError unless every test is an Exchange."""
        if not program.tests or not all(isinstance(test, Exchange) for test in program.tests):
            raise ValueError(
                f"tests of problem {program.problem!r}: StdinStdout takes Exchange(stdin, stdout), at least one"
            )

    def job(self, program: Program, which: Sequence[int]) -> Job:
        """Return a job with the inputs; the expected outputs stay here."""
        inputs = tuple(test.stdin for test in (program.tests[i] for i in which) if isinstance(test, Exchange))
        return Job(program.source, {"rounds": len(inputs)}, inputs=inputs)

    def read(self, program: Program, which: Sequence[int], outcome: Outcome, limits: Limits) -> Reading:
        """Compare every output that arrived."""
        held: list[int] = []
        fault: Fault | None = None
        for position, index in enumerate(which):
            problem = self._one(program.tests[index], position, outcome, limits)
            if problem is None:
                held.append(index)
            elif fault is None:
                fault = Fault(index, *problem)
        return Reading(tuple(held), fault)

    def _one(self, test: object, position: int, outcome: Outcome, limits: Limits) -> tuple[str, str] | None:
        assert isinstance(test, Exchange)
        if position >= len(outcome.findings):
            return _ended(outcome, limits)
        head, _, body = outcome.findings[position].partition(b"\n")
        seen = json.loads(head)
        if seen["over"]:
            return "output", f"more than {limits.output_bytes} bytes"
        if seen["failure"] is not None:
            return _raised(*seen["failure"])
        # A program may end by os._exit(0). After other tests, that test is run again in its own process.
        clean = position == 0 and outcome.ending.get("exit") == 0 and not outcome.ending.get("timed_out")
        if not seen["done"] and not clean:
            return _ended(outcome, limits)
        printed = body.decode("utf-8", "replace")
        if same_output(test.stdout, printed, tolerance=self.tolerance, ignore_case=self.ignore_case):
            return None
        return "failed", f"printed {printed[:100]!r}, expected {test.stdout[:100]!r}"


def _seen(outcome: Outcome) -> dict[str, Any] | None:
    """Return the examiner's report, if there is exactly one."""
    if len(outcome.findings) != 1:
        return None
    report: dict[str, Any] = json.loads(outcome.findings[0])
    return report


def _explain(seen: dict[str, Any] | None, outcome: Outcome, limits: Limits) -> tuple[str, str]:
    """Return status and detail of a program that did not pass."""
    if seen is None or seen["status"] == "gone":
        return _ended(outcome, limits)
    if seen["status"] == "failed":
        return "failed", seen["detail"] or "an assertion failed"
    if seen["status"] == "broken":
        return "error", f"the program sent a malformed message: {seen['detail']}"
    return _raised(seen["kind"], seen["detail"])


def _raised(kind: str, detail: str) -> tuple[str, str]:
    text = detail if detail.startswith(kind) else f"{kind}: {detail}"
    if kind.endswith("MemoryError"):
        return "memory", text
    return ("forbidden" if kind == "PermissionError" else "error"), text


def _ended(outcome: Outcome, limits: Limits) -> tuple[str, str]:
    """Return status and detail of a program that ended before its tests were done."""
    ending = outcome.ending
    if outcome.refused:
        return "error", outcome.refused
    if outcome.out_of_memory:
        return "memory", "the whole sandbox ran out of memory"
    if outcome.lost or not ending:
        return "error", f"the sandbox died twice: {outcome.lost}"
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
    return "error", f"the program exited before its tests were done (exit status {code})"
