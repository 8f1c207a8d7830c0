"""Alpaca: an instruction, sometimes with an input, and a response (Taori et al., 2023), in Alpaca's own prompt.

The hub's ``tatsu-lab/alpaca`` and files with ``instruction``, ``input`` (may be empty or missing) and ``output``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .definition import Example, Task, text_of

WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
)
WITHOUT_INPUT = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)


def example(record: Mapping[str, Any]) -> Example:
    """Instruction and input in the template, then the output.

    >>> example({"instruction": "Name a colour.", "input": "", "output": "Blue."}).prompt[-47:]
    '### Instruction:\\nName a colour.\\n\\n### Response:\\n'
    """
    instruction = text_of(record, "instruction").strip()
    given = text_of(record, "input", empty=True, default="").strip()
    template = WITH_INPUT if given else WITHOUT_INPUT
    return Example(
        template.format(instruction=instruction, input=given),
        text_of(record, "output", empty=True, default="").strip(),
        {},
    )


TASK = Task(
    name="alpaca",
    hub="tatsu-lab/alpaca",
    columns=("instruction", "input", "output"),
    completion=("output",),
    make=example,
)
