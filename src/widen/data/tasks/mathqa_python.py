"""MathQA-Python: a word problem as a comment, then a program that leaves its result in ``answer`` (Austin et al., 2021).

Fields, by the file they are in: ``question, program, answer``; ``prompt, code, answer`` (the official test set as a file); ``text, code,
answer`` (the hub's ``dtruong46me/mathqa-python``). The last two carry the comment sign in the question, and after it the numbers as the
program names them (``... had been offered ? n0 = 5.0 n1 = 31.1``); both are taken off, so that all three ask in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .definition import Example, Task, number_of, text_of

_NUMBERS = re.compile(r"(\s+n\d+ = \S+)+\s*$")


def example(record: Mapping[str, Any]) -> Example:
    """``# question``, a line break, the program.

    >>> example({"prompt": "# what is half of 5 ? n0 = 5.0", "code": "n0 = 5.0\\nanswer = n0 / 2.0", "answer": 2.5})[:3]
    ('# what is half of 5 ?\\n', 'n0 = 5.0\\nanswer = n0 / 2.0', {'answer': 2.5})
    """
    asked = text_of(record, "question", "prompt", "text")
    question = " ".join(_NUMBERS.sub("", asked).removeprefix("#").split())
    if not question:
        raise ValueError("the question is empty")
    program = text_of(record, "program", "code", empty=True, default="")
    answer = record.get("answer")
    # A table of texts has an empty cell where JSON has no answer.
    unknown = answer is None or (isinstance(answer, str) and not answer.strip())
    facts = {} if unknown else {"answer": number_of(answer, "answer")}
    return Example(f"# {question}\n", program.replace("\r\n", "\n").strip(), facts)


TASK = Task(
    name="mathqa_python",
    hub="dtruong46me/mathqa-python",
    columns=("question", "prompt", "text", "program", "code", "answer"),
    completion=("program", "code"),
    make=example,
)
