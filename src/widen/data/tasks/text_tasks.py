"""Tasks of plain text: instructions, stories, and your own files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .definition import Example, Task, text_of, texts_of

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


def alpaca(record: Mapping[str, Any]) -> Example:
    """Alpaca (Taori et al., 2023): instruction and input in Alpaca's own template, then the output.

    The hub's ``tatsu-lab/alpaca`` and files with ``instruction``, ``input`` (may be empty or missing) and ``output``.

    >>> alpaca({"instruction": "Name a colour.", "input": "", "output": "Blue."}).prompt[-47:]
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


ALPACA = Task(
    name="alpaca",
    hub="tatsu-lab/alpaca",
    columns=("instruction", "input", "output"),
    completion=("output",),
    make=alpaca,
)


def writing_prompts(record: Mapping[str, Any]) -> Example:
    """WritingPrompts (Fan et al., 2018): the prompt, an empty line, the story.

    The hub's ``euclaise/writingprompts`` and files with ``prompt`` and ``story``. ``<newline>``, as in the original release, becomes a
    line break. Tags such as ``[ WP ]`` stay.

    >>> writing_prompts({"prompt": "A door appears.", "story": "I knocked."})[:2]
    ('A door appears.\\n\\n', 'I knocked.')
    """
    prompt = _lines(text_of(record, "prompt"))
    return Example(f"{prompt}\n\n", _lines(text_of(record, "story", empty=True, default="")), {})


def _lines(text: str) -> str:
    return "\n".join(part.strip() for part in text.split("<newline>")).strip()


WRITING_PROMPTS = Task(
    name="writing_prompts",
    hub="euclaise/writingprompts",
    columns=("prompt", "story"),
    completion=("story",),
    make=writing_prompts,
)


def prompt_and_completion(record: Mapping[str, Any]) -> Example:
    """Your own data, exactly as written: ``prompt`` and ``completion``, or ``text`` alone, which is learned whole.

    >>> prompt_and_completion({"text": "Once."})[:2], prompt_and_completion({"prompt": "2 + 2 =", "completion": " 4"})[:2]
    (('', 'Once.'), ('2 + 2 =', ' 4'))
    """
    if not {"prompt", "completion", "text"} & set(record):
        raise ValueError(
            f"no fields 'prompt' and 'completion', nor 'text'; it has {', '.join(map(repr, record)) or 'none'}"
        )
    if record.get("prompt") is None and record.get("completion") is None:
        return Example("", text_of(record, "text"), {})
    return Example(text_of(record, "prompt", empty=True), text_of(record, "completion", empty=True, default=""), {})


JSONL = Task(
    name="jsonl",
    hub=None,
    columns=("prompt", "completion", "text"),
    completion=("completion",),
    make=prompt_and_completion,
)


def prompt_and_answers(record: Mapping[str, Any]) -> Example:
    """A prompt and all of its right answers, each once. The first is the completion; exact scores need the whole list.

    >>> prompt_and_answers({"prompt": "3 4>7:", "answers": ["4+3=7"]})[:3]
    ('3 4>7:', '4+3=7', {'answers': ['4+3=7']})
    """
    answers = texts_of(record, "answers")
    if not answers or not all(text.strip() for text in answers):
        raise ValueError("'answers' must hold at least one answer, and none that is empty")
    if len(set(answers)) < len(answers):
        raise ValueError("'answers' holds the same answer twice")
    return Example(text_of(record, "prompt"), answers[0], {"answers": answers})


ANSWERS = Task(
    name="answers", hub=None, columns=("prompt", "answers"), completion=("answers",), make=prompt_and_answers, csv=False
)
