"""A task turns a record of a data set into a prompt, a completion and what a judge needs to know."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

LOSS_WEIGHTS = "loss_weights"
"""The field of a record that says how much its completion counts in training; every task may have it."""


class Example(NamedTuple):
    """One example, as text.

    Args:
      prompt: what the model is given; may be empty.
      completion: what it should write; "" if the data set has no answer (good for sampling, not for training).
      facts: what a judge needs: ``{"answer": 3.5}``, ``{"tests": [...], "setup": ""}``, ``{"inputs": [...], "outputs": [...]}`` or nothing.
      loss_weights: one number for the whole completion, or one per target token, the end token included; None without the field.
      messages: the whole conversation, if the record is one; `prompt` and `completion` are then texts for people.
      given: the first so many messages are the prompt.
    """

    prompt: str
    completion: str
    facts: Mapping[str, Any]
    loss_weights: float | tuple[float, ...] | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    given: int = 0

    @property
    def asked(self) -> tuple[Mapping[str, Any], ...]:
        """The messages that a model is asked with: the prompt's, or all but an answer at the end."""
        if self.given:
            return self.messages[: self.given]
        answered = bool(self.messages) and self.messages[-1]["role"] == "assistant"
        return self.messages[:-1] if answered else self.messages


def spaced(facts: Mapping[str, Any], answer: str) -> str:
    """The answer in composed Unicode (NFC), with every run of white space as one space; the facts do not matter.

    >>> spaced({}, " 3 *  4\\n= 12 ")
    '3 * 4 = 12'
    """
    return " ".join(unicodedata.normalize("NFC", answer).split())


@dataclass(frozen=True)
class Task:
    """A kind of data.

    Args:
      name: as on the command line.
      make: the example of a record; a ValueError says what is wrong with the record.
      fields: the fields that it reads besides the completion.
      completion: the fields that may hold the completion.
      hub: its data set on the hub, ``owner/name`` or ``owner/name:config``, if it has one.
      csv: whether a .csv, .tsv or .txt can hold its records.
      check: whether an answer is right, given the facts of its example; None if an answer is a program or has no check.
      key: answers to one prompt with the same key count as one; the facts are empty if the prompt is unknown.
    """

    name: str
    make: Callable[[Mapping[str, Any]], Example]
    fields: tuple[str, ...]
    completion: tuple[str, ...]
    _: KW_ONLY
    hub: str | None = None
    csv: bool = True
    check: Callable[[Mapping[str, Any], str], bool] | None = None
    key: Callable[[Mapping[str, Any], str], str] = spaced

    @property
    def columns(self) -> tuple[str, ...]:
        """All fields that it reads; other columns of a data set are not decoded."""
        return (*self.fields, *self.completion)

    def example(self, record: Any) -> Example:
        """The example of one record; a ValueError says what is wrong with the record."""
        if not isinstance(record, Mapping):
            raise ValueError(f"expected an object with fields, got {type(record).__name__}")
        return self.make(record)

    def unanswered(self, record: Mapping[str, Any]) -> str:
        """Why an example of this record has no completion."""
        name = next((name for name in self.completion if name in record), None)
        if name is None:
            return f"there is no completion to learn: {missing(record, self.completion)}"
        value = record[name]
        blank = not value.strip() if isinstance(value, str) else not value
        state = "is null" if value is None else "is empty" if blank else "holds no usable one"
        return f"there is no completion to learn: {name!r} {state}"


def field_of(record: Mapping[str, Any], *names: str) -> str:
    """The first of these names that has a value in the record.

    >>> field_of({"q": "2 + 2"}, "question", "text")
    Traceback (most recent call last):
    ...
    ValueError: no field 'question' or 'text'; it has 'q'
    """
    for name in names:
        if record.get(name) is not None:
            return name
    null = [f"{name!r} is null" for name in names if name in record]
    raise ValueError(null[0] if null else missing(record, names))


def missing(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """The sentence about a record with none of these fields."""
    return f"no field {' or '.join(map(repr, names))}; it has {', '.join(map(repr, record)) or 'none'}"


def text_of(record: Mapping[str, Any], *names: str, empty: bool = False, default: str | None = None) -> str:
    """The text under the first of these names that has a value.

    Args:
      empty: allow blank texts.
      default: for records without the field; None requires the field.
    """
    if default is not None and all(record.get(name) is None for name in names):
        return default
    name = field_of(record, *names)
    text = record[name]
    if not isinstance(text, str):
        raise ValueError(f"{name!r} must be text, got {type(text).__name__}")
    if not empty and not text.strip():
        raise ValueError(f"{name!r} is empty")
    try:
        text.encode("utf-8")  # JSON can spell half of a surrogate pair, which tokenizers refuse
    except UnicodeEncodeError as error:
        raise ValueError(f"{name!r} holds half of a surrogate pair at character {error.start + 1}") from None
    return text


def texts_of(record: Mapping[str, Any], name: str) -> list[str]:
    """A list of texts under this name."""
    value = record[field_of(record, name)]
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        kind = f"a list with {type(value[0]).__name__}" if isinstance(value, list) and value else type(value).__name__
        raise ValueError(f"{name!r} must be a list of texts, got {kind}")
    return list(value)


def number_of(value: Any, name: str) -> float:
    """A finite number, or a text that spells one.

    >>> number_of("117", "answer")
    117.0
    """
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):  # a whole number above 1.8e308 overflows
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{name!r} must be a finite number, got {value!r}"[:200])
    return found


def weights_of(record: Mapping[str, Any]) -> float | tuple[float, ...] | None:
    """The ``loss_weights`` of a record: None, one number, or several.

    >>> weights_of({"prompt": "a"}), weights_of({"loss_weights": 2}), weights_of({"loss_weights": [0, 1.5]})
    (None, 2.0, (0.0, 1.5))
    """
    given = record.get(LOSS_WEIGHTS)
    if given is None:
        return None
    numbers = tuple(number_of(one, LOSS_WEIGHTS) for one in (given if isinstance(given, (list, tuple)) else [given]))
    if any(number < 0 for number in numbers):
        raise ValueError(f"{LOSS_WEIGHTS!r} must be at least 0, got {min(numbers):g}")
    return numbers if isinstance(given, (list, tuple)) else numbers[0]
