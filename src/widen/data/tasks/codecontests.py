"""Programming contests: a statement, then a Python 3 program that reads the input and prints the answer.

CodeContests (Li et al., 2022) and APPS (Hendrycks et al., 2021). Accepted fields:

- the hub's ``deepmind/code_contests``: ``description``, ``solutions`` with languages (the first in Python 3 is taken) and ``public_tests``,
  ``private_tests``, ``generated_tests``;
- APPS, the hub's ``codeparrot/apps``: ``question``, ``solutions`` and ``input_output``, which are JSON inside text;
- files with ``description`` and ``test_list`` of ``{"input", "output"}``;
- files with a ``prompt`` that holds the statement in a docstring, without tests.

APPS problems that ask for a function become programs: one argument per line in, the result out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .definition import Example, Task, text_of

PYTHON3 = (3, "PYTHON3")
"""What the hub's ``solutions.language`` says for Python 3."""


def example(record: Mapping[str, Any]) -> Example:
    """The statement as a docstring, a comment that asks for a program, and the program.

    >>> made = example({"description": "Print the sum.", "test_list": [{"input": "1 2", "output": ["3"]}]})
    >>> print(made.prompt, made.facts)
    \"\"\"
    Print the sum.
    \"\"\"
    # A Python 3 program that reads the input and prints the answer:
     {'inputs': ['1 2'], 'outputs': ['3']}
    """
    statement = _statement(text_of(record, "description", "question", "prompt"))
    prompt = f'"""\n{statement}\n"""\n# A Python 3 program that reads the input and prints the answer:\n'
    tests = list(_tests(record))
    facts = {"inputs": [i for i, _ in tests], "outputs": [o for _, o in tests]} if tests else {}
    return Example(prompt, _program(record).replace("\r\n", "\n").strip(), facts)


def _statement(text: str) -> str:
    """The text, or the content of the docstring that opens it."""
    for quotes in ("'''", '"""'):
        if text.lstrip().startswith(quotes):
            text = text.lstrip()[3:].partition(quotes)[0]
    if not text.strip():
        raise ValueError("the statement is empty")
    return text.strip()


def _program(record: Mapping[str, Any]) -> str:
    """The first program in Python 3, or ""."""
    found = _json(record.get("solutions"), "solutions")
    if found is None:
        return text_of(record, "solution", "canonical_solution", "code", empty=True, default="")
    if isinstance(found, Mapping):
        languages, programs = found.get("language"), found.get("solution")
        if not isinstance(languages, list) or not isinstance(programs, list) or len(languages) != len(programs):
            raise ValueError("'solutions' must hold two lists of one length, 'language' and 'solution'")
        found = [program for language, program in zip(languages, programs, strict=True) if language in PYTHON3]
    if not isinstance(found, list):
        raise ValueError(f"'solutions' must be a list of programs, got {type(found).__name__}")
    return text_of({"solutions": found[0]}, "solutions", empty=True) if found else ""


def _tests(record: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Input and output of every test."""
    for name in ("public_tests", "private_tests", "generated_tests", "input_output"):
        tests = _json(record.get(name), name)
        if tests is None:
            continue
        if not isinstance(tests, Mapping):
            raise ValueError(f"{name!r} must hold two lists, 'input' and 'output', got {type(tests).__name__}")
        inputs, outputs = (tests.get(key, tests.get(key + "s")) for key in ("input", "output"))
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            raise ValueError(f"{name!r} must hold two lists of one length, 'input' and 'output'")
        yield from ((_said(i), _said(o)) for i, o in zip(inputs, outputs, strict=True))
    listed = _json(record.get("test_list"), "test_list")
    if listed is not None and not isinstance(listed, list):
        raise ValueError(f"'test_list' must be a list of tests, got {type(listed).__name__}")
    for number, test in enumerate(listed or [], start=1):
        if not isinstance(test, Mapping) or "input" not in test or "output" not in test:
            raise ValueError(f"'test_list', entry {number}: must hold 'input' and 'output'")
        yield _said(test["input"]), _said(test["output"])


def _said(value: Any) -> str:
    """A value as a program reads or prints it: a list has one item per line.

    >>> _said([100]), _said(["1", "2"]), _said("x"), _said([[1, 2]])
    ('100', '1\\n2', 'x', '[1, 2]')
    """
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _json(value: Any, name: str) -> Any:
    """The value itself, or the JSON inside a text; None for a blank text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except ValueError as error:
        raise ValueError(f"{name!r} is not JSON: {error}"[:200]) from None


TASK = Task(
    name="codecontests",
    hub="deepmind/code_contests",
    columns=(
        *("description", "question", "prompt", "solutions", "solution", "canonical_solution", "code"),
        *("public_tests", "private_tests", "generated_tests", "input_output", "test_list"),
    ),
    completion=("solutions", "solution", "canonical_solution", "code"),
    make=example,
)
