"""MBPP: a sentence and the tests that the function must pass, then the function (Austin et al., 2021).

The hub's ``google-research-datasets/mbpp`` (``text, code, test_list, test_setup_code``), its config ``sanitized`` (``prompt, code,
test_list, test_imports``), and files of either kind. The prompt shows the tests, which alone say what the function is called. Windows
line ends are converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .definition import Example, Task, text_of, texts_of


def example(record: Mapping[str, Any]) -> Example:
    """Sentence and tests as a docstring, then the code.

    >>> print(example({"text": "Write a function to add.", "test_list": ["assert f(1, 2) == 3"]}).prompt, end="")
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


TASK = Task(
    name="mbpp",
    hub="google-research-datasets/mbpp:full",
    columns=("text", "prompt", "code", "test_list", "test_setup_code", "test_imports"),
    completion=("code",),
    make=example,
    csv=False,
)
