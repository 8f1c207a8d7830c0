"""Ways of asking one model: samples of a run that differ in the chat template, stop strings, max-tokens or seed are lines of their own.

Without this, two samples files of one run at the same decoding would be two values of one point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from widen.run.asking import asked_key, by_asking

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


def runs_by_asking(run: RunData) -> list[RunData]:
    """The run itself if all its scored samples were asked for in one way, else one run per way, named by the settings that differ."""
    ways = by_asking(run.records)
    if len(ways) < 2:
        return [run]
    found, scored = [], set()
    name = str(run.experiment.get("name") or run.name)
    for said, records in ways:
        key = asked_key(records[0].detail.get("asked"))
        scored.add(key)
        found.append(
            replace(
                run,
                experiment={**run.experiment, "name": f"{name} ({said})" if said else name},
                records=records,
                samples=[cell for cell in run.samples if asked_key(cell.asked) == key],
            )
        )
    other = [cell for cell in run.samples if asked_key(cell.asked) not in scored]  # drawn and not scored yet
    return [replace(found[0], samples=[*found[0].samples, *other]), *found[1:]]
