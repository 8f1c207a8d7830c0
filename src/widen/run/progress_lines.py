"""Progress as plain lines with the time left, so that a job's log file stays readable."""

from __future__ import annotations

import time
from collections.abc import Callable

from .folder import StageProgress


def progress_lines(every: float = 5.0, clock: Callable[[], float] = time.monotonic) -> StageProgress:
    """Progress as lines with the time left: when something starts and ends, and every few seconds."""
    first: dict[str, tuple[float, int]] = {}
    last: dict[str, float] = {}

    def at(what: str, done: int, total: int) -> None:
        now = clock()
        began, had = first.setdefault(what, (now, done))
        if what not in last or done == total or now - last[what] > every:
            last[what] = now
            left = f", {_minutes((now - began) * (total - done) / (done - had))} left" if had < done < total else ""
            print(f"{what}: {done:,} of {total:,}{left}", flush=True)
        if done == total:  # the next job may have the same name
            first.pop(what)

    return at


def _minutes(seconds: float) -> str:
    """As minutes and seconds.

    >>> _minutes(125.2), _minutes(4000)
    ('2:05', '1:06:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
