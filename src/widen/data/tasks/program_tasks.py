"""Records whose completion is a Python program. Windows line ends are converted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .definition import Example, field_of, number_of, text_of, texts_of

PYTHON3 = (3, "PYTHON3")
"""What the hub's ``solutions.language`` says for Python 3."""
_NUMBERS = re.compile(r"(\s+n\d+ = \S+)+\s*$")


def mathqa_python(record: Mapping[str, Any]) -> Example:
    """MathQA-Python (Austin et al., 2021): ``# question``, then a program that leaves its result in ``answer``.

    Fields: ``question, program, answer``; ``prompt, code, answer`` (the official test set); ``text, code, answer`` (the hub). The last
    two carry a comment sign and, after the question, the program's numbers (``... ? n0 = 5.0 n1 = 31.1``). Both are removed.

    >>> mathqa_python({"prompt": "# what is half of 5 ? n0 = 5.0", "code": "n0 = 5.0\\nanswer = n0 / 2.0", "answer": 2.5})[:3]
    ('# what is half of 5 ?\\n', 'n0 = 5.0\\nanswer = n0 / 2.0', {'answer': 2.5})
    """
    asked = text_of(record, "question", "prompt", "text")
    question = " ".join(_NUMBERS.sub("", asked).removeprefix("#").split())
    if not question:
        raise ValueError("the question is empty")
    program, answer = _code(record, "program", "code"), record.get("answer")
    # A .csv has an empty cell where JSON has no answer.
    unknown = answer is None or (isinstance(answer, str) and not answer.strip())
    return Example(f"# {question}\n", program, {} if unknown else {"answer": number_of(answer, "answer")})


def mbpp(record: Mapping[str, Any]) -> Example:
    """MBPP (Austin et al., 2021): a sentence and the tests as a docstring, then the function.

    Fields: ``text, code, test_list, test_setup_code``, or as in the config ``sanitized``: ``prompt, code, test_list, test_imports``. The
    tests alone say what the function is called.

    >>> print(mbpp({"text": "Write a function to add.", "test_list": ["assert f(1, 2) == 3"]}).prompt, end="")
    \"\"\"
    Write a function to add.
    assert f(1, 2) == 3
    \"\"\"
    """
    text, tests = text_of(record, "text", "prompt").strip(), texts_of(record, "test_list")
    if not tests:
        raise ValueError("'test_list' is empty: nothing says what the function is called")
    imports = texts_of(record, "test_imports") if record.get("test_imports") is not None else []
    setup = "\n".join([*imports, text_of(record, "test_setup_code", empty=True, default="")])
    shown = "\n".join(test.strip() for test in tests)
    facts = {"tests": tests, "setup": setup.replace("\r\n", "\n").strip()}
    return Example(f'"""\n{text}\n{shown}\n"""\n', _code(record, "code"), facts)


def humaneval(record: Mapping[str, Any]) -> Example:
    """HumanEval (Chen et al., 2021): the head of a function with its docstring, then the body.

    Fields: ``prompt, entry_point, test, canonical_solution``. A judge appends the program to the head, so that an answer may be the body
    alone or the whole function once more.

    >>> made = humaneval({"prompt": "def f(x):\\n", "entry_point": "f", "test": "def check(candidate):\\n    assert candidate(1) == 2"})
    >>> made.facts["entry_point"], made.facts["head"] == made.prompt
    ('f', True)
    """
    head = text_of(record, "prompt").replace("\r\n", "\n")
    body = text_of(record, "canonical_solution", empty=True, default="").replace("\r\n", "\n").rstrip()
    facts = {"head": head, "entry_point": text_of(record, "entry_point"), "check": text_of(record, "test")}
    return Example(head, body, facts)


def codecontests(record: Mapping[str, Any]) -> Example:
    """Programming contests: the statement as a docstring, a comment that asks for a program, and a Python 3 program.

    CodeContests (Li et al., 2022) and APPS (Hendrycks et al., 2021). Accepted fields:

    - the hub's ``deepmind/code_contests``: ``description``, ``solutions`` with languages (the first in Python 3 is taken) and
      ``public_tests``, ``private_tests``, ``generated_tests``;
    - APPS, the hub's ``codeparrot/apps``: ``question``, ``solutions`` and ``input_output``, which are JSON inside text;
    - files with ``description`` and ``test_list`` of ``{"input", "output"}``;
    - files with a ``prompt`` that holds the statement in a docstring, without tests.

    APPS problems that ask for a function become programs: one argument per line in, the result out.

    >>> made = codecontests({"description": "Print the sum.", "test_list": [{"input": "1 2", "output": ["3"]}]})
    >>> print(made.prompt, made.facts)
    \"\"\"
    Print the sum.
    \"\"\"
    # A Python 3 program that reads the input and prints the answer:
     {'inputs': ['1 2'], 'outputs': ['3']}
    """
    statement = text_of(record, "description", "question", "prompt")
    for quotes in ("'''", '"""'):
        if statement.lstrip().startswith(quotes):  # the content of the docstring that opens it
            statement = statement.lstrip()[3:].partition(quotes)[0]
    if not statement.strip():
        raise ValueError("the statement is empty")
    prompt = f'"""\n{statement.strip()}\n"""\n# A Python 3 program that reads the input and prints the answer:\n'
    tests = [(_said(given), _said(wanted)) for given, wanted in _tests(record)]
    facts = {"inputs": [i for i, _ in tests], "outputs": [o for _, o in tests]} if tests else {}
    return Example(prompt, _solution(record), facts)


def _code(record: Mapping[str, Any], *names: str) -> str:
    """The program under the first of these names, or ""."""
    return text_of(record, *names, empty=True, default="").replace("\r\n", "\n").strip()


def _solution(record: Mapping[str, Any]) -> str:
    """The first program in Python 3, or ""."""
    found = _json(record, "solutions")
    if found is None:
        return _code(record, "solution", "canonical_solution", "code")
    if isinstance(found, Mapping):
        found = [
            program for language, program in _pairs(found, "solutions", "language", "solution") if language in PYTHON3
        ]
    if not isinstance(found, list):
        raise ValueError(f"'solutions' must be a list of programs, got {type(found).__name__}")
    if not found:
        return ""
    first = {"solutions": found[0]}
    return _code(first, field_of(first, "solutions"))


def _tests(record: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
    """Input and output of every test."""
    for name in ("public_tests", "private_tests", "generated_tests", "input_output"):
        tests = _json(record, name)
        if tests is not None:
            yield from _pairs(tests, name, "input", "output")
    listed = _json(record, "test_list")
    if listed is not None and not isinstance(listed, list):
        raise ValueError(f"'test_list' must be a list of tests, got {type(listed).__name__}")
    for number, test in enumerate(listed or [], start=1):
        if not isinstance(test, Mapping) or "input" not in test or "output" not in test:
            raise ValueError(f"'test_list', entry {number}: must hold 'input' and 'output'")
        yield test["input"], test["output"]


def _pairs(value: Any, name: str, first: str, second: str) -> Iterable[tuple[Any, Any]]:
    """The entries of two lists of one length under these keys, or their plurals."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name!r} must hold two lists, {first!r} and {second!r}, got {type(value).__name__}")
    one, other = (value.get(key, value.get(f"{key}s")) for key in (first, second))
    if not isinstance(one, list) or not isinstance(other, list) or len(one) != len(other):
        raise ValueError(f"{name!r} must hold two lists of one length, {first!r} and {second!r}")
    return zip(one, other, strict=True)


def _said(value: Any) -> str:
    """A value as a program reads or prints it: a list has one item per line.

    >>> _said([100]), _said(["1", "2"]), _said("x"), _said([[1, 2]])
    ('100', '1\\n2', 'x', '[1, 2]')
    """
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _json(record: Mapping[str, Any], name: str) -> Any:
    """The value of a field, or the JSON inside its text; None for a blank text."""
    value = record.get(name)
    try:
        return (json.loads(value) if value.strip() else None) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"{name!r} is not JSON: {error}"[:200]) from None
