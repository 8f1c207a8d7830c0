"""Problems with several right answers, all of them listed: ``{"prompt": "3 4>7:", "answers": ["4+3=7"]}``.

The first answer is the completion, so that the file can also be trained on. Exact scores need the whole list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .definition import Example, Task, text_of, texts_of


def example(record: Mapping[str, Any]) -> Example:
    """A prompt and its right answers, each once.

    >>> example({"prompt": "3 4>7:", "answers": ["4+3=7"]})
    Example(prompt='3 4>7:', completion='4+3=7', facts={'answers': ['4+3=7']})
    """
    answers = texts_of(record, "answers")
    if not answers or not all(text.strip() for text in answers):
        raise ValueError("'answers' must hold at least one answer, and none that is empty")
    if len(set(answers)) < len(answers):
        raise ValueError("'answers' holds the same answer twice")
    return Example(text_of(record, "prompt"), answers[0], {"answers": answers})


TASK = Task(name="answers", hub=None, columns=("prompt", "answers"), completion=("answers",), make=example, csv=False)
