"""Three ways to test a program: the value of a variable, assertions, or its output for an input.

A judge checks that a program's tests are of its kind and turns them into an exam. The exam goes to the examiner and
never to the program's process; see `inside/examiner.py` for its shapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from .worker import Job


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


@dataclass(frozen=True, kw_only=True)
class MathQAPython:
    """The program stores a number in a variable; it must be within `tolerance`, relative, of the reference."""

    name: ClassVar[str] = "mathqa_python"
    variable: str = "answer"
    tolerance: float = 0.01

    def check(self, program: Program) -> None:
        """Raise ValueError unless there is one test, a number."""
        if len(program.tests) != 1 or not isinstance(program.tests[0], (int, float)):
            raise ValueError(f"tests={program.tests!r} of problem {program.problem!r}: MathQAPython takes one number")

    def job(self, program: Program, which: Sequence[int]) -> Job:
        """Return a job that asks for the variable."""
        reference = float(program.tests[0])  # type: ignore[arg-type]  # checked by `check`
        return Job(program.source, {"value": self.variable, "reference": reference, "tolerance": self.tolerance})


@dataclass(frozen=True, kw_only=True)
class Assertions:
    """Tests are Python code that calls what the program defines, as in MBPP and HumanEval."""

    name: ClassVar[str] = "assertions"

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
        tests = [program.tests[i] for i in which]
        code = {"trusted": program.trusted, "setup": program.setup, "tests": tests}
        return Job(program.source, {**code, "shadows": program.shadows})


@dataclass(frozen=True, kw_only=True)
class StdinStdout:
    """Contest problems: run the program once per input and compare its output token by token."""

    name: ClassVar[str] = "stdin_stdout"
    tolerance: float = 1e-6
    ignore_case: bool = False

    def check(self, program: Program) -> None:
        """Raise ValueError unless every test is an Exchange."""
        if not program.tests or not all(isinstance(test, Exchange) for test in program.tests):
            raise ValueError(
                f"tests of problem {program.problem!r}: StdinStdout takes Exchange(stdin, stdout), at least one"
            )

    def job(self, program: Program, which: Sequence[int]) -> Job:
        """Return a job with the chosen inputs for the program and the outputs for the examiner."""
        chosen = [test for test in (program.tests[i] for i in which) if isinstance(test, Exchange)]
        exam = {"outputs": [test.stdout for test in chosen], **asdict(self)}
        return Job(program.source, exam, inputs=tuple(test.stdin for test in chosen))


Judge = MathQAPython | Assertions | StdinStdout
"""Any of the three judges."""
