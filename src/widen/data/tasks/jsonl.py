"""Data of one's own: ``prompt`` and ``completion``, or ``text`` alone, which is learnt whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .definition import Example, Task, text_of


def example(record: Mapping[str, Any]) -> Example:
    """Both as they stand: not a blank is added or taken away between them.

    >>> example({"text": "Once."})[:2], example({"prompt": "2 + 2 =", "completion": " 4"})[:2]
    (('', 'Once.'), ('2 + 2 =', ' 4'))
    """
    if not {"prompt", "completion", "text"} & set(record):
        raise ValueError(
            f"no fields 'prompt' and 'completion', nor 'text'; it has {', '.join(map(repr, record)) or 'none'}"
        )
    if record.get("prompt") is None and record.get("completion") is None:
        return Example("", text_of(record, "text"), {})
    return Example(text_of(record, "prompt", empty=True), text_of(record, "completion", empty=True, default=""), {})


TASK = Task(name="jsonl", hub=None, columns=("prompt", "completion", "text"), completion=("completion",), make=example)
