"""Which records compare.

Samples that differ in the chat template, stop strings, max-tokens or seed are not values of one point. Nor are scores with different
settings, such as other prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .record import Record


def asked_key(asked: Mapping[str, Any] | None) -> str:
    """A key of `Settings.asked`; scores without it have a key of their own."""
    return json.dumps(asked or {}, sort_keys=True)


def by_asking(records: Iterable[Record]) -> list[tuple[str, list[Record]]]:
    """The records of each way of asking, with the way in words: the settings that differ, "" if there is only one way."""
    ways: dict[str, list[Record]] = {}
    for record in records:
        ways.setdefault(asked_key(record.detail.get("asked")), []).append(record)
    words = in_words([found[0].detail.get("asked") or {} for found in ways.values()])
    return list(zip(words, ways.values(), strict=True))


def score_key(record: Record) -> tuple[str, str]:
    """Records with the same key compare: same task, score and settings, the listed points of the curve aside."""
    return record.kind, json.dumps({k: v for k, v in record.score.items() if k != "lams"}, sort_keys=True)


def score_labels(records: Iterable[Record]) -> dict[tuple[str, str], str]:
    """A name for each `score_key`: the kind of score, with the settings that differ if there are several."""
    labels: dict[tuple[str, str], str] = {}
    keys = list(dict.fromkeys(map(score_key, records)))
    for kind in dict.fromkeys(kind for kind, _ in keys):
        same = [key for key in keys if key[0] == kind]
        words = in_words([json.loads(settings) for _, settings in same])
        labels |= {key: f"{kind} ({said})" if said else kind for key, said in zip(same, words, strict=True)}
    return labels


def in_words(ways: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each way of asking by the settings in which it differs from another; empty if there is only one.

    >>> in_words([{"max_tokens": 9, "chat": True}, {"max_tokens": 9}, {"max_tokens": 50}])
    ['max_tokens=9, chat', 'max_tokens=9', 'max_tokens=50']
    """
    return [
        ", ".join(
            "chat" if key == "chat" else f"{key}={_shown(way[key])}"
            for key in way
            if any(other.get(key) != way[key] for other in ways)
        )
        for way in ways
    ]


def _shown(value: Any) -> str:
    text = " ".join(map(repr, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
