"""Tasks whose completion is a Python program. Windows line ends are converted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .definition import Example, Task, number_of, text_of, texts_of

_NUMBERS = re.compile(r"(\s+n\d+ = \S+)+\s*$")


def mathqa_python(record: Mapping[str, Any]) -> Example:
    """MathQA-Python (Austin et al., 2021): ``# question``, then a program that leaves its result in ``answer``.

    Accepted fields: ``question, program, answer``; ``prompt, code, answer`` (the official test set); ``text, code, answer`` (the hub's
    ``dtruong46me/mathqa-python``). The last two carry a comment sign and, after the question, the program's numbers
    (``... had been offered ? n0 = 5.0 n1 = 31.1``). Both are removed.

    >>> mathqa_python({"prompt": "# what is half of 5 ? n0 = 5.0", "code": "n0 = 5.0\\nanswer = n0 / 2.0", "answer": 2.5})[:3]
    ('# what is half of 5 ?\\n', 'n0 = 5.0\\nanswer = n0 / 2.0', {'answer': 2.5})
    """
    asked = text_of(record, "question", "prompt", "text")
    question = " ".join(_NUMBERS.sub("", asked).removeprefix("#").split())
    if not question:
        raise ValueError("the question is empty")
    program = text_of(record, "program", "code", empty=True, default="")
    answer = record.get("answer")
    # A .csv has an empty cell where JSON has no answer.
    unknown = answer is None or (isinstance(answer, str) and not answer.strip())
    facts = {} if unknown else {"answer": number_of(answer, "answer")}
    return Example(f"# {question}\n", program.replace("\r\n", "\n").strip(), facts)


MATHQA_PYTHON = Task(
    name="mathqa_python",
    hub="dtruong46me/mathqa-python",
    columns=("question", "prompt", "text", "program", "code", "answer"),
    completion=("program", "code"),
    make=mathqa_python,
)


def mbpp(record: Mapping[str, Any]) -> Example:
    """MBPP (Austin et al., 2021): a sentence and the tests as a docstring, then the function.

    The hub's ``google-research-datasets/mbpp`` (``text, code, test_list, test_setup_code``), its config ``sanitized`` (``prompt, code,
    test_list, test_imports``), and files of either kind. The tests alone say what the function is called.

    >>> print(mbpp({"text": "Write a function to add.", "test_list": ["assert f(1, 2) == 3"]}).prompt, end="")
    \"\"\"
    Write a function to add.
    assert f(1, 2) == 3
    \"\"\"
    """
    text = text_of(record, "text", "prompt").strip()
    tests = texts_of(record, "test_list")
    if not tests:
        raise ValueError("'test_list' is empty: nothing says what the function is called")
    setup = "\n".join(
        [*texts_of(record, "test_imports", default=[]), text_of(record, "test_setup_code", empty=True, default="")]
    )
    shown = "\n".join(test.strip() for test in tests)
    code = text_of(record, "code", empty=True, default="").replace("\r\n", "\n").strip()
    return Example(f'"""\n{text}\n{shown}\n"""\n', code, {"tests": tests, "setup": setup.replace("\r\n", "\n").strip()})


MBPP = Task(
    name="mbpp",
    hub="google-research-datasets/mbpp:full",
    columns=("text", "prompt", "code", "test_list", "test_setup_code", "test_imports"),
    completion=("code",),
    make=mbpp,
    csv=False,
)


def humaneval(record: Mapping[str, Any]) -> Example:
    """HumanEval (Chen et al., 2021): the head of a function with its docstring, then the body.

    The hub's ``openai/openai_humaneval`` and files of its kind: ``prompt, entry_point, test, canonical_solution``. A judge appends the
    program to the head, so that an answer may be the body alone or the whole function once more.

    >>> made = humaneval({"prompt": "def f(x):\\n", "entry_point": "f", "test": "def check(candidate):\\n    assert candidate(1) == 2"})
    >>> made.facts["entry_point"], made.facts["head"] == made.prompt
    ('f', True)
    """
    head = text_of(record, "prompt").replace("\r\n", "\n")
    body = text_of(record, "canonical_solution", empty=True, default="").replace("\r\n", "\n").rstrip()
    facts = {"head": head, "entry_point": text_of(record, "entry_point"), "check": text_of(record, "test")}
    return Example(head, body, facts)


HUMANEVAL = Task(
    name="humaneval",
    hub="openai/openai_humaneval",
    columns=("prompt", "canonical_solution", "entry_point", "test"),
    completion=("canonical_solution",),
    make=humaneval,
    csv=False,
)


PYTHON3 = (3, "PYTHON3")
"""What the hub's ``solutions.language`` says for Python 3."""


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


CODECONTESTS = Task(
    name="codecontests",
    hub="deepmind/code_contests",
    columns=(
        *("description", "question", "prompt", "solutions", "solution", "canonical_solution", "code"),
        *("public_tests", "private_tests", "generated_tests", "input_output", "test_list"),
    ),
    completion=("solutions", "solution", "canonical_solution", "code"),
    make=codecontests,
)
