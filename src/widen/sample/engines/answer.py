"""A server's answers as values. A field of a wrong type or range is a `ServerFault` that names the server and the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .http import ServerFault

__all__ = ["Choice", "choices", "listed_models"]

ROUNDING = 1e-3
"""A log-probability may exceed 0 by this much: servers compute in half precision."""


@dataclass(frozen=True)
class Choice:
    """One completion as the server gave it."""

    text: str
    finish: Literal["stop", "length"]
    num_tokens: int | None
    logprob: float | None
    ids: tuple[int, ...] | None


def choices(answer: dict[str, Any], url: str) -> tuple[list[Choice], int | None]:
    """The completions of an answer, in the order of their indices, and the number of tokens in the prompt.

    The answer may hold fewer completions than were asked for. An answer without any is a fault.
    """
    _optional(url, answer, "model", "a string")
    given = _checked(url, "choices", answer.get("choices"), "a list that is not empty")
    usage = _optional(url, answer, "usage", "an object", default={})
    prompt_tokens = _optional(url, usage, "prompt_tokens", "a count")
    completion_tokens = _optional(url, usage, "completion_tokens", "a count")
    found: dict[int, Choice] = {}
    for position, choice in enumerate(given):
        place = f"choices[{position}]"
        _checked(url, place, choice, "an object")
        index = _optional(url, choice, "index", "a count", place, default=position)
        if index in found:
            raise ServerFault(f"{url}: in the answer, index {index} occurs twice among the choices")
        found[index] = _choice(url, choice, place, completion_tokens if len(given) == 1 else None)
    return [found[index] for index in sorted(found)], prompt_tokens


def _choice(url: str, choice: dict[str, Any], place: str, num_tokens: int | None) -> Choice:
    text = _checked(url, f"{place}.text", choice.get("text"), "a string")
    finish = _checked(url, f"{place}.finish_reason", choice.get("finish_reason"), "'stop' or 'length'")
    ids = _optional(url, choice, "token_ids", "a list", place, default=[])
    for position, one in enumerate(ids):
        _checked(url, f"{place}.token_ids[{position}]", one, "a count")
    logprobs = _optional(url, choice, "logprobs", "an object", place, default={})
    scores = _optional(url, logprobs, "token_logprobs", "a list", f"{place}.logprobs", default=[])
    for position, one in enumerate(scores):
        _checked(url, f"{place}.logprobs.token_logprobs[{position}]", one, "a log-probability or null")
    known = bool(scores) and None not in scores
    if ids:
        num_tokens = len(ids)
    elif num_tokens is None and known:
        num_tokens = len(scores)
    return Choice(text, finish, num_tokens, float(sum(scores)) if known else None, tuple(ids) or None)


def listed_models(answer: dict[str, Any], url: str) -> list[dict[str, Any]]:
    """The entries of ``/v1/models``; each `id` is a string."""
    data: list[dict[str, Any]] = _optional(url, answer, "data", "a list", default=[])
    for position, model in enumerate(data):
        _checked(url, f"data[{position}]", model, "an object")
        _optional(url, model, "id", "a string", f"data[{position}]")
    return data


def _is_number(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


_LEGAL: dict[str, Callable[[Any], Any]] = {
    "a string": lambda value: isinstance(value, str),
    "an object": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "a list that is not empty": lambda value: isinstance(value, list) and value,
    "a count": lambda value: _is_number(value, (int,)) and 0 <= value < 2**63,
    "'stop' or 'length'": lambda value: value in ("stop", "length"),
    "a log-probability or null": lambda value: (
        value is None or (_is_number(value, (int, float)) and -1e30 < value <= ROUNDING)
    ),
}


def _checked(url: str, place: str, value: Any, kind: str) -> Any:
    if not _LEGAL[kind](value):
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
        raise ServerFault(f"{url}: in the answer, {place} is {shown}, not {kind}")
    return value


def _optional(url: str, content: dict[str, Any], name: str, kind: str, place: str = "", default: Any = None) -> Any:
    value = content.get(name)
    return default if value is None else _checked(url, f"{place}.{name}" if place else name, value, kind)
