"""A model asked through its chat template: the messages of a prompt, and the strings at which an answer ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from widen.data.tasks.conversations import Message

from .decoding import Settings
from .prompts import Prompt


def turns(prompt: Prompt, settings: Settings) -> tuple[Message, ...]:
    """The messages that a chat template gets: those of the prompt, or its text as the user's, after the system message of the settings.

    >>> from .decoding import Decoding
    >>> turns(Prompt(text="Hi"), Settings(decoding=Decoding(), chat=True, system="Be brief."))
    ({'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'})
    """
    messages = prompt.messages or ({"role": "user", "content": prompt.text},)
    if not settings.system:
        return messages
    if messages[0]["role"] == "system":
        raise ValueError(f"prompt {prompt.id!r} has a system message of its own: leave system (--system) out")
    return ({"role": "system", "content": settings.system}, *messages)


def check_chat(settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
    """Refuse prompts that do not fit the settings: conversations without a chat template, token ids with one."""
    if len({(one.chat, one.system) for one in settings}) > 1:
        raise ValueError("the settings of one call must agree on chat and system: sample them one after the other")
    for prompt in prompts:
        if settings[0].chat:
            if prompt.ids is not None:
                raise ValueError(
                    f"prompt {prompt.id!r} has token ids, which no chat template takes: leave chat (--chat) out"
                )
            turns(prompt, settings[0])
        elif prompt.messages:
            raise ValueError(
                f"prompt {prompt.id!r} is a conversation, which needs the chat template: give chat (--chat)"
            )


def cut_at(text: str, stop: Sequence[str]) -> str | None:
    """The text before the first stop string in it; None if there is none.

    >>> cut_at("a = 1\\n\\nb = 2", ("\\n\\n",)), cut_at("a = 1", ("\\n\\n",))
    ('a = 1', None)
    """
    found = [at for one in stop if (at := text.find(one)) >= 0]
    return text[: min(found)] if found else None


class StopStrings:
    """Stop strings for one tokenizer: those that are special tokens by their number, the others by their text.

    Args:
      stop: the strings.
      tokenizer: of transformers.
    """

    def __init__(self, stop: Sequence[str], tokenizer: Any) -> None:
        added = getattr(tokenizer, "added_tokens_decoder", {}).values() if stop else ()
        # Decoding leaves out every special token, also those that the tokenizer has no name for.
        special = {str(one) for one in added if one.special} | set(getattr(tokenizer, "all_special_tokens", ()))
        self.tokens = tuple(int(tokenizer.convert_tokens_to_ids(one)) for one in stop if one in special)
        self.texts = tuple(one for one in stop if one not in special)
        # A token is at least a byte, and a few tokens more show the characters at the edge whole.
        self.window = max((len(one.encode()) for one in self.texts), default=0) + 8
        self._tokenizer = tokenizer

    def ended(self, rows: list[list[int]]) -> list[bool]:
        """Whether the last `window` tokens of each sample hold a stop string."""
        texts = self._tokenizer.batch_decode(rows, skip_special_tokens=True)
        return [cut_at(text, self.texts) is not None for text in texts]
