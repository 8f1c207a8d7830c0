"""WritingPrompts: a prompt of a line or two, then a story (Fan et al., 2018). The task of Tables `tab:pr-wp` and `tab:pr-wp-mathqa`.

The hub's ``euclaise/writingprompts`` and files with ``prompt`` and ``story``. The original release writes line breaks as ``<newline>``;
they are made line breaks again. Tags such as ``[ WP ]`` stay: they are part of what a writer was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .definition import Example, Task, text_of


def example(record: Mapping[str, Any]) -> Example:
    """The prompt, an empty line, the story.

    >>> example({"prompt": "A door appears.", "story": "I knocked."})[:2]
    ('A door appears.\\n\\n', 'I knocked.')
    """
    prompt = _lines(text_of(record, "prompt"))
    return Example(f"{prompt}\n\n", _lines(text_of(record, "story", empty=True, default="")), {})


def _lines(text: str) -> str:
    return "\n".join(part.strip() for part in text.split("<newline>")).strip()


TASK = Task(
    name="writing_prompts",
    hub="euclaise/writingprompts",
    columns=("prompt", "story"),
    completion=("story",),
    make=example,
)
