"""Ways of asking one model: samples of a run that differ in the chat template, stop strings, max-tokens or seed are lines of their own.

Without this, two samples files of one run at the same decoding would be two values of one point.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .run_data import RunData


def names_of(paths: Sequence[Path]) -> list[str]:
    """A name for each folder: its own, with as many of its parents as tell folders of one name apart.

    >>> names_of([Path("s/chat/m"), Path("s/plain/m"), Path("s/x")])
    ['chat/m', 'plain/m', 'x']
    """
    parts = [path.resolve().parts for path in paths]
    names = []
    for mine in parts:
        rivals = [other for other in parts if other != mine]
        length = next(n for n in range(1, len(mine) + 1) if n == len(mine) or all(o[-n:] != mine[-n:] for o in rivals))
        names.append("/".join(mine[-length:]))
    return names


def by_asking(run: RunData) -> list[RunData]:
    """The run itself if all its scored samples were asked for in one way, else one run per way, named by the settings that differ."""
    ways: dict[str, Mapping[str, Any]] = {}
    for record in run.records:
        ways.setdefault(_key(record.detail.get("asked")), record.detail.get("asked") or {})
    if len(ways) < 2:
        return [run]
    found = []
    name = str(run.experiment.get("name") or run.name)
    for key, said in zip(ways, in_words(list(ways.values())), strict=True):
        found.append(
            replace(
                run,
                experiment={**run.experiment, "name": f"{name} ({said})" if said else name},
                records=[record for record in run.records if _key(record.detail.get("asked")) == key],
                samples=[cell for cell in run.samples if _key(cell.asked) == key],
            )
        )
    other = [cell for cell in run.samples if _key(cell.asked) not in ways]  # drawn and not scored yet
    return [replace(found[0], samples=[*found[0].samples, *other]), *found[1:]]


def _key(asked: Any) -> str:
    return json.dumps(asked or {}, sort_keys=True)


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
