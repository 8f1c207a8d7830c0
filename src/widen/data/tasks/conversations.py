"""Conversations: records as messages, and messages as tokens and targets by the tokenizer's chat template.

{"messages": [{"role": "user", "content": "..."}, ...]}             every assistant turn is a target
{"conversations": [{"from": "human", "value": "..."}, ...]}         ShareGPT, read as "messages"
{"prompt": [messages], "completion": [messages]}                    only assistant turns of the completion are targets
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .definition import Example, text_of

Message = Mapping[str, Any]
"""``role`` and ``content``, and whatever else the chat template reads."""

ROLES = ("system", "developer", "user", "assistant", "tool")
SHAREGPT = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "observation": "tool"}
MARKERS = re.compile(r"\{%-?\s*generation\s*-?%\}")
"""What a template writes before the tokens of the assistant, if it marks them."""


def messages_of(value: Any, name: str) -> tuple[Message, ...]:
    """The messages of a list, in the spelling of the chat templates; a ValueError says what is wrong.

    >>> messages_of([{"from": "human", "value": "Hi"}], "conversations")
    ({'role': 'user', 'content': 'Hi'},)
    """
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"{name!r} must be a list of messages that is not empty, got {value!r}"[:200])
    return tuple(_message(one, f"{name}[{number}]") for number, one in enumerate(value))


def _message(value: Any, place: str) -> Message:
    if not isinstance(value, Mapping):
        raise ValueError(f"{place} must be an object with 'role' and 'content', got {type(value).__name__}")
    known = {key: item for key, item in value.items() if item is not None}  # a data set fills missing keys with null
    said = str(known.pop("role", known.pop("from", "")))
    role = SHAREGPT.get(said, said)
    if role not in ROLES:
        legal = ", ".join([*ROLES, *SHAREGPT])
        raise ValueError(f"{place} has the role {said!r}; legal: {legal}")
    if "value" in known:
        known["content"] = known.pop("value")
    if "tool_calls" not in known:
        try:
            text_of(known, "content", empty=True)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
    return {"role": role, "content": known.pop("content", ""), **known}


def transcript(messages: Sequence[Message]) -> str:
    """The messages as one text for people and checkers: the content of a single message, else a line per message.

    >>> transcript([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    'system: Be brief.\\nuser: Hi'
    """
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n".join(f"{one['role']}: {one['content']}" for one in messages)


def in_form(example: Example, *, chat: bool) -> Example:
    """The example as it is asked and learnt: as a text, or, with ``chat``, as a conversation with at most one answer after the prompt.

    A prompt becomes the user's message, its completion the assistant's. Of a conversation, the answer at its end is the completion. A
    ValueError says why the example has no such form.

    >>> in_form(Example("2 + 2 =", "4", {}), chat=True).messages
    ({'role': 'user', 'content': '2 + 2 ='}, {'role': 'assistant', 'content': '4'})
    """
    if not chat:
        if example.messages:
            raise ValueError("a conversation needs the chat template: give chat (--chat)")
        return example
    asked = example.asked or ({"role": "user", "content": example.prompt},)
    said = example.messages[len(asked) :]
    if not example.messages and example.completion:
        said = ({"role": "assistant", "content": example.completion},)
    if not any(str(one["content"]).strip() for one in asked):
        raise ValueError("there is no prompt, which a chat template needs: leave the record out, or chat (--chat)")
    if len(said) > 1 or any(one["role"] != "assistant" for one in said):
        raise ValueError("'completion' must hold one message of the assistant; move earlier messages to 'prompt'")
    answer = str(said[0]["content"]) if said else ""
    return example._replace(completion=answer, messages=(*asked, *said), given=len(asked))


def template_ids(tokenizer: Any, messages: Sequence[Message], *, ask: bool = False, **options: Any) -> Any:
    """The tokens of a conversation by the tokenizer's chat template, with its special tokens.

    Args:
      ask: also write what begins the assistant's answer (``add_generation_prompt``).
      options: of ``apply_chat_template``.
    """
    from jinja2 import TemplateError

    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "the tokenizer has no chat template, which a conversation needs: take an Instruct model, or set chat_template"
        )
    try:
        found = tokenizer.apply_chat_template(
            [dict(one) for one in messages], tokenize=True, return_dict=True, add_generation_prompt=ask, **options
        )
    except TemplateError as error:
        raise ValueError(f"the chat template refuses the conversation: {error}") from None
    return found if options else list(found["input_ids"])


def chat_tokens(messages: Sequence[Message], tokenizer: Any, *, given: int) -> tuple[list[int], list[bool]]:
    """The tokens of a conversation, and which of them are targets.

    If the template marks the assistant's tokens (``{% generation %}``), these are the targets. Else, and after a prompt, the targets of
    an assistant's turn are the tokens by which the templated text grows with it, as in TRL's prompt-completion data. That needs templated
    prefixes that agree; a template that rewrites earlier turns is refused. A turn without anything before it is no target.

    Args:
      given: the first so many messages are the prompt; their assistant turns are no targets.
    """
    template = str(getattr(tokenizer, "chat_template", None) or "")
    if given == 0 and MARKERS.search(template):
        found = template_ids(tokenizer, messages, return_assistant_tokens_mask=True)
        ids, mask = list(found["input_ids"]), [bool(one) for one in found["assistant_masks"]]
    else:
        ids = template_ids(tokenizer, messages)
        mask = [False] * len(ids)
        for turn in range(max(given, 1), len(messages)):
            if messages[turn]["role"] != "assistant":
                continue
            start = template_ids(tokenizer, messages[:turn], ask=True)
            end = template_ids(tokenizer, messages[: turn + 1])
            if ids[: len(end)] != end or end[: len(start)] != start:
                raise ValueError(
                    f"the tokens of message {turn + 1} cannot be told apart: the chat template writes earlier messages differently when "
                    "others follow, or a token reaches over the border between messages; give one record with 'prompt' and 'completion' "
                    "per answer, or a template that marks the assistant's tokens with {% generation %}"
                )
            mask[len(start) : len(end)] = [True] * (len(end) - len(start))
    if not any(mask[1:]):
        raise ValueError("there is no turn of the assistant to learn, after a turn of somebody else")
    mask[0] = False  # nothing predicts the first token
    last = len(mask) - mask[::-1].index(False)  # where the targets at the very end begin
    if last < len(ids) and not set(ids[last:]) & set(tokenizer.all_special_ids):
        return [*ids, tokenizer.eos_token_id], [*mask, True]  # the template does not end an answer
    return ids, mask
