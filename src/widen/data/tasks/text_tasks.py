"""Records of plain text: instructions, stories, and your own files, with conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from .conversations import messages_of, transcript
from .definition import Example, field_of, spaced, text_of, texts_of

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
OWN = ("prompt", "completion", "messages", "conversations", "text")
"""Fields of your own records."""


def alpaca(record: Mapping[str, Any]) -> Example:
    """Alpaca (Taori et al., 2023): instruction and input in Alpaca's own template, then the output.

    Fields: ``instruction``, ``input`` (may be empty or missing) and ``output``.

    >>> alpaca({"instruction": "Name a colour.", "input": "", "output": "Blue."}).prompt[-47:]
    '### Instruction:\\nName a colour.\\n\\n### Response:\\n'
    """
    instruction = text_of(record, "instruction").strip()
    given = text_of(record, "input", empty=True, default="").strip()
    prompt = (WITH_INPUT if given else WITHOUT_INPUT).format(instruction=instruction, input=given)
    return Example(prompt, text_of(record, "output", empty=True, default="").strip(), {})


def writing_prompts(record: Mapping[str, Any]) -> Example:
    """WritingPrompts (Fan et al., 2018): the prompt, an empty line, the story.

    Fields: ``prompt`` and ``story``. ``<newline>``, as in the original release, becomes a line break. Tags such as ``[ WP ]`` stay.

    >>> writing_prompts({"prompt": "A door appears.", "story": "I knocked."})[:2]
    ('A door appears.\\n\\n', 'I knocked.')
    """

    def lines(text: str) -> str:
        return "\n".join(part.strip() for part in text.split("<newline>")).strip()

    prompt = lines(text_of(record, "prompt"))
    return Example(f"{prompt}\n\n", lines(text_of(record, "story", empty=True, default="")), {})


def kind_of(record: Mapping[str, Any]) -> Literal["messages", "conversations", "chat_prompt", "prompt", "text", ""]:
    """What a record of your own is; "" for none of these.

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
    kind = kind_of(record) or field_of(record, *OWN)
    if kind == "text":
        return Example("", text_of(record, "text"), {})
    if kind == "prompt":
        return Example(text_of(record, "prompt", empty=True), text_of(record, "completion", empty=True, default=""), {})
    if record.get("tools"):
        raise ValueError("'tools': conversations with tools cannot be learnt here; leave the record out")
    given = messages_of(record.get("prompt"), "prompt") if kind == "chat_prompt" else ()
    name = "completion" if kind == "chat_prompt" else kind
    said = messages_of(record[name], name) if record.get(name) is not None else ()
    answers = [str(one["content"]) for one in said if one["role"] == "assistant"]
    found = Example("", answers[-1] if answers else "", {}, messages=(*given, *said), given=len(given))
    return found._replace(prompt=transcript(found.asked))


def prompt_and_answers(record: Mapping[str, Any]) -> Example:
    """A prompt and all of its right answers, each once. The first is the completion; exact scores need the whole list.

    An answer is a text, or a list of texts that are spellings of one answer. Two answers must differ in more than white space.

    >>> prompt_and_answers({"prompt": "Name a gas.", "answers": [["Ne", "Neon"], "Argon"]})[:3]
    ('Name a gas.', 'Ne', {'answers': [['Ne', 'Neon'], 'Argon']})
    """
    given = record[field_of(record, "answers")]
    if not isinstance(given, (list, tuple)):
        texts_of(record, "answers")  # says what is wrong
    answers = [texts_of({"answers": one}, "answers") if isinstance(one, (list, tuple)) else one for one in given]
    texts = texts_of({"answers": [text for one in answers for text in spellings(one)]}, "answers")
    if not all(answers) or not texts or not all(text.strip() for text in texts):
        raise ValueError("'answers' must hold at least one answer, and none that is empty")
    keys = [key for one in answers for key in {spaced({}, text) for text in spellings(one)}]
    for found in (texts, keys):
        if twice := [one for one, count in Counter(found).items() if count > 1]:
            raise ValueError(f"'answers' holds the same answer twice: {twice[0]!r}")
    return Example(text_of(record, "prompt"), texts[0], {"answers": answers})


def spellings(answer: str | list[str]) -> list[str]:
    """The texts of one right answer of the task ``answers``.

    >>> spellings("Argon"), spellings(["Ne", "Neon"])
    (['Argon'], ['Ne', 'Neon'])
    """
    return answer if isinstance(answer, list) else [answer]


def _listed(facts: Mapping[str, Any], answer: str) -> str | None:
    """The first spelling of the listed answer that this is; None if it is not listed."""
    given = spaced(facts, answer)
    listed = ([spaced(facts, text) for text in spellings(one)] for one in facts.get("answers", ()))
    return next((texts[0] for texts in listed if given in texts), None)


def listed_key(facts: Mapping[str, Any], answer: str) -> str:
    """The first spelling of a listed answer; any other text as it is. White space does not count.

    >>> facts = {"answers": [["Ne", "Neon"], "Argon"]}
    >>> listed_key(facts, " Neon"), listed_key(facts, "Iron")
    ('Ne', 'Iron')
    """
    found = _listed(facts, answer)
    return spaced(facts, answer) if found is None else found


def is_listed(facts: Mapping[str, Any], answer: str) -> bool:
    """Whether the answer is a spelling of a listed one.

    >>> is_listed({"answers": [["Ne", "Neon"], "Argon"]}, "Neon "), is_listed({"answers": ["Argon"]}, "Iron")
    (True, False)
    """
    return _listed(facts, answer) is not None
