"""A server's answers as values. Every field is checked: a wrong shape or type is a `ServerFault` that names the server and the field."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .server_http import ServerFault

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
    look = _Field(url)
    look.optional(answer, "model", "a string", lambda value: isinstance(value, str))
    given = look.required(answer, "choices", "a list that is not empty", lambda value: _is_list(value) and value)
    usage = look.optional(answer, "usage", "an object", _is_object) or {}
    counts = {name: look.optional(usage, name, "a count", _is_count) for name in ("prompt_tokens", "completion_tokens")}
    alone = counts["completion_tokens"] if len(given) == 1 else None
    found: dict[int, Choice] = {}
    for position, choice in enumerate(given):
        inner = look.inside(f"choices[{position}]")
        inner.check(choice, "an object", _is_object)
        index = inner.optional(choice, "index", "a count", _is_count)
        index = position if index is None else index
        if index in found:
            raise ServerFault(f"{url}: in the answer, index {index} occurs twice among the choices")
        found[index] = _choice(choice, inner, alone)
    return [found[index] for index in sorted(found)], counts["prompt_tokens"]


def _choice(choice: dict[str, Any], look: _Field, alone: int | None) -> Choice:
    text = look.required(choice, "text", "a string", lambda value: isinstance(value, str))
    finish = look.required(choice, "finish_reason", "'stop' or 'length'", lambda value: value in ("stop", "length"))
    ids = look.optional(choice, "token_ids", "a list", _is_list) or []
    for position, one in enumerate(ids):
        look.inside(f"token_ids[{position}]").check(one, "a count", _is_count)
    logprobs = look.optional(choice, "logprobs", "an object", _is_object) or {}
    scores = look.optional(logprobs, "token_logprobs", "a list", _is_list) or []
    for position, one in enumerate(scores):
        look.inside(f"token_logprobs[{position}]").check(one, "a log-probability or null", _is_logprob)
    known = bool(scores) and None not in scores
    number = len(ids) if ids else alone if alone is not None else len(scores) if known else None
    return Choice(text, finish, number, float(sum(scores)) if known else None, tuple(ids) or None)


def listed_models(answer: dict[str, Any], url: str) -> list[dict[str, Any]]:
    """The entries of ``/v1/models``; each `id` is a string."""
    look = _Field(url)
    data = look.optional(answer, "data", "a list", _is_list) or []
    for position, model in enumerate(data):
        inner = look.inside(f"data[{position}]")
        inner.check(model, "an object", _is_object)
        inner.optional(model, "id", "a string", lambda value: isinstance(value, str))
    return list(data)


class _Field:
    """Looks up fields of an answer and complains by their place in it."""

    def __init__(self, url: str, place: str = "") -> None:
        self.url, self.place = url, place

    def inside(self, name: str) -> _Field:
        return _Field(self.url, f"{self.place}.{name}" if self.place else name)

    def check(self, value: Any, what: str, legal: Callable[[Any], Any]) -> None:
        if not legal(value):
            shown = repr(value)
            shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
            raise ServerFault(f"{self.url}: in the answer, {self.place} is {shown}, not {what}")

    def optional(self, content: dict[str, Any], name: str, what: str, legal: Callable[[Any], Any]) -> Any:
        value = content.get(name)
        if value is not None:
            self.inside(name).check(value, what, legal)
        return value

    def required(self, content: dict[str, Any], name: str, what: str, legal: Callable[[Any], Any]) -> Any:
        value = content.get(name)
        self.inside(name).check(value, what, legal)
        return value


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_logprob(value: Any) -> bool:
    if value is None:
        return True
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and -1e30 < value <= ROUNDING and not math.isnan(value)
