"""Tasks of plain text: instructions, stories, and your own files, with conversations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from .conversations import messages_of, transcript
from .definition import Example, Task, missing, spaced, text_of, texts_of

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


def kind_of(record: Mapping[str, Any]) -> Literal["messages", "conversations", "chat_prompt", "prompt", "text", ""]:
    """What a record of your own is, "" for none of these. Nothing else decides it.

    >>> kind_of({"text": "Once."}), kind_of({"prompt": "2 + 2 =", "completion": " 4"}), kind_of({"messages": []})
    ('text', 'prompt', 'messages')
    """
    if record.get("messages") is not None:
        return "messages"
    if record.get("conversations") is not None:
        return "conversations"
    if any(isinstance(record.get(name), (list, tuple)) for name in ("prompt", "completion")):
        return "chat_prompt"
    if record.get("prompt") is not None or record.get("completion") is not None:
        return "prompt"
    return "text" if "text" in record else ""


def own_record(record: Mapping[str, Any]) -> Example:
    """Your own data: ``prompt`` and ``completion``, or ``text`` alone, which is learned whole, as they are; or a conversation.

    >>> own_record({"text": "Once."})[:2], own_record({"prompt": "2 + 2 =", "completion": " 4"})[:2]
    (('', 'Once.'), ('2 + 2 =', ' 4'))
    >>> own_record({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]})[:2]
    ('Hi', 'Hello')
    """
    kind = kind_of(record)
    if not kind:
        null = [f"{name!r} is null" for name in OWN if name in record]
        raise ValueError(null[0] if null else missing(record, OWN))
    if kind == "text":
        return Example("", text_of(record, "text"), {})
    if kind == "prompt":
        return Example(text_of(record, "prompt", empty=True), text_of(record, "completion", empty=True, default=""), {})
    if record.get("tools"):
        raise ValueError("'tools': conversations with tools cannot be learnt here; leave the record out")
    if kind == "chat_prompt":
        given = messages_of(record.get("prompt"), "prompt")
        answer = record.get("completion")
        said = given if answer is None else (*given, *messages_of(answer, "completion"))
        start = len(given)
    else:
        said, start = messages_of(record[kind], kind), 0
    answers = [str(one["content"]) for one in said[start:] if one["role"] == "assistant"]
    found = Example("", answers[-1] if answers else "", {}, messages=said, given=start)
    return found._replace(prompt=transcript(found.asked))


OWN = ("prompt", "completion", "messages", "conversations", "text")
JSONL = Task(name="jsonl", hub=None, columns=(*OWN, "tools"), completion=("completion", "messages"), make=own_record)


def own_fields(prompt: str | None, completion: str | None) -> Task:
    """The task `jsonl` for records whose prompt and completion have other names; None keeps the usual name.

    >>> own_fields("question", "answer").example({"question": "2 + 2 =", "answer": " 4"})[:2]
    ('2 + 2 =', ' 4')
    """
    names = {"prompt": prompt or "prompt", "completion": completion or "completion"}

    def make(record: Mapping[str, Any]) -> Example:
        if prompt is not None and prompt not in record:
            raise ValueError(missing(record, (prompt,)))
        found = {usual: record[name] for usual, name in names.items() if record.get(name) is not None}
        try:
            return own_record({"prompt": "", **found})
        except ValueError as error:
            text = str(error)
            for usual, name in names.items():
                text = text.replace(repr(usual), repr(name))
            raise ValueError(text) from None

    return replace(JSONL, columns=tuple(names.values()), completion=(names["completion"],), make=make)


def prompt_and_answers(record: Mapping[str, Any]) -> Example:
    """A prompt and all of its right answers, each once. The first is the completion; exact scores need the whole list.

    An answer is a text, or a list of texts that are spellings of one answer.

    >>> prompt_and_answers({"prompt": "3 4>7:", "answers": ["4+3=7"]})[:3]
    ('3 4>7:', '4+3=7', {'answers': ['4+3=7']})
    >>> prompt_and_answers({"prompt": "Name a gas.", "answers": [["Ne", "Neon"], "Argon"]}).completion
    'Ne'
    """
    if not isinstance(record.get("answers"), (list, tuple)):
        texts_of(record, "answers")  # says what is wrong
    answers = [
        texts_of({"answers": one}, "answers") if isinstance(one, (list, tuple)) else one for one in record["answers"]
    ]
    texts = texts_of({"answers": [text for one in answers for text in spellings(one)]}, "answers")
    if not all(answers) or not texts or not all(text.strip() for text in texts):
        raise ValueError("'answers' must hold at least one answer, and none that is empty")
    if len(set(texts)) < len(texts):
        raise ValueError("'answers' holds the same answer twice")
    return Example(text_of(record, "prompt"), texts[0], {"answers": answers})


def spellings(answer: str | list[str]) -> list[str]:
    """The texts of one right answer of the task ``answers``.

    >>> spellings("Argon"), spellings(["Ne", "Neon"])
    (['Argon'], ['Ne', 'Neon'])
    """
    return answer if isinstance(answer, list) else [answer]


def listed_key(facts: Mapping[str, Any], answer: str) -> str:
    """The first spelling of a listed answer; any other text as it is. White space does not count.

    >>> facts = {"answers": [["Ne", "Neon"], "Argon"]}
    >>> listed_key(facts, " Neon"), listed_key(facts, "Iron")
    ('Ne', 'Iron')
    """
    given = spaced(facts, answer)
    listed = ([spaced(facts, text) for text in spellings(one)] for one in facts.get("answers", ()))
    return next((texts[0] for texts in listed if given in texts), given)


def is_listed(facts: Mapping[str, Any], answer: str) -> bool:
    """Whether the answer is a spelling of a listed one.

    >>> is_listed({"answers": [["Ne", "Neon"], "Argon"]}, "Neon "), is_listed({"answers": ["Argon"]}, "Iron")
    (True, False)
    """
    given = spaced(facts, answer)
    return any(given == spaced(facts, text) for one in facts["answers"] for text in spellings(one))


ANSWERS = Task(
    name="answers",
    hub=None,
    columns=("prompt", "answers"),
    completion=("answers",),
    make=prompt_and_answers,
    csv=False,
    check=is_listed,
    key=listed_key,
)
