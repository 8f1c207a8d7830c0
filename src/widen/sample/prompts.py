"""Prompts and their files.

A prompt's id keys its random numbers and its records. By default it is a digest of the text, so that shuffling a file or adding lines to
it changes no sample.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from widen.data.tasks.source_files import line_records
from widen.data.tasks.text_tasks import kind_of, own_record


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One text to continue, or token ids.

    Args:
      text: what is continued; "" continues the model's first token (unconditional sampling).
      id: its name in the records; by default a digest of the content.
      without: the same prompt without the evidence, for KL guidance with ``without=field``.
      ids: token ids instead of a text.
      messages: a conversation to answer (``Settings(chat=True)``); `text` then shows it to people and checkers.

    Examples:
      >>> Prompt(text="Once upon a time").id
      '77e599ecdfc2'
    """

    text: str = ""
    id: str = ""
    without: str | None = None
    ids: tuple[int, ...] | None = None
    messages: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)

    def __post_init__(self) -> None:
        if self.ids is not None and self.text:
            raise ValueError(f"prompt {self.id!r} has both text and ids: give one")
        if not self.id:
            object.__setattr__(self, "id", digest(self)[:12])


def digest(prompt: Prompt) -> str:
    """A digest of the content, without the id."""
    parts = [prompt.text, prompt.without, list(prompt.ids) if prompt.ids is not None else None]
    content = json.dumps([*parts, *([list(prompt.messages)] if prompt.messages else [])])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def unique(prompts: Iterable[Prompt]) -> list[Prompt]:
    """The prompts as a list; two with one id are refused."""
    seen: dict[str, Prompt] = {}
    for prompt in prompts:
        if prompt.id in seen:
            raise ValueError(
                f"two prompts have the id {prompt.id!r}: give them ids of their own, or ask for more samples of one"
            )
        seen[prompt.id] = prompt
    if not seen:
        raise ValueError("no prompts: give at least one (an empty text samples without a prompt)")
    return list(seen.values())


def read_prompts(path: str | Path) -> list[Prompt]:
    """Prompts of a file. In ``.jsonl``, lines are objects with `prompt` (or `text`, or `ids`) and optionally `id` and `without`, or
    conversations (`messages`, ShareGPT's `conversations`, a list as `prompt`), of which an answer at the end is left out. In other files
    each line is a prompt. Errors name the line.
    """
    path = Path(path)
    parse = json.loads if path.suffix == ".jsonl" else lambda line: {"prompt": line}
    seen: dict[str, tuple[Prompt, str]] = {}
    for where, data, fault in line_records(path, parse):
        try:
            prompt = _from_json(data, fault)
            if prompt.id in seen:
                raise ValueError(f"the same prompt or id as {seen[prompt.id][1]}; give it an id of its own, or drop it")
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        seen[prompt.id] = prompt, where.rpartition(", ")[2]
    if not seen:
        raise ValueError(f"{path} holds no prompts")
    return [prompt for prompt, _ in seen.values()]


def _from_json(data: Any, fault: str) -> Prompt:
    """The prompt of one line's object; other fields are ignored."""
    if fault:
        raise ValueError(fault)
    if not isinstance(data, dict):
        raise ValueError(f'expected an object such as {{"prompt": "..."}}, got {type(data).__name__}')
    name = "" if data.get("id") is None else data["id"]
    if not isinstance(name, (str, int)):
        raise ValueError(f"'id' must be a string or a number, got {name!r}")
    if kind_of(data) in ("messages", "conversations", "chat_prompt"):
        example = own_record({**data, "completion": None})
        return Prompt(text=example.prompt, id=str(name), messages=example.asked)
    text, ids, without = data.get("prompt", data.get("text")), data.get("ids"), data.get("without")
    if text is None and ids is None:
        raise ValueError(f"neither 'prompt' nor 'text' nor 'ids' among its keys: {', '.join(map(str, data)) or 'none'}")
    for field_name, value in (("prompt", text), ("without", without)):
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{field_name!r} must be a string, got {value!r}")
    if ids is not None and not (isinstance(ids, list) and ids and all(isinstance(i, int) and i >= 0 for i in ids)):
        raise ValueError(f"'ids' must be a list of token ids, got {ids!r}")
    return Prompt(text=text or "", id=str(name), without=without, ids=tuple(ids) if ids is not None else None)
