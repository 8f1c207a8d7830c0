"""The state of a search in one small file, written atomically after every job, so that a killed search continues."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from widen.disk.json_file import read_json, write_sealed

Clock = Callable[[], float]
"""Seconds from any start."""
SCHEMA = 1


class SearchState:
    """What was asked, the plan, the seconds spent, and the outcome of every job.

    Args:
      asked: JSON of the request; a folder that holds another request is refused.
      clock: counts the seconds spent, also over restarts.
    """

    def __init__(self, path: Path, asked: dict[str, Any], *, clock: Clock = time.monotonic) -> None:
        self.path, self._clock, self._began = path, clock, clock()
        self._content: dict[str, Any] = {"schema": SCHEMA, "asked": asked, "plan": None, "spent": 0.0, "jobs": {}}
        if path.exists():
            found = read_json(path)
            if found.get("schema") != SCHEMA:
                raise ValueError(
                    f"{path} has schema {found.get('schema')!r}; this version of widen reads schema {SCHEMA}"
                )
            if differs := [key for key in asked if found["asked"].get(key) != asked[key]]:
                raise ValueError(
                    f"{path.parent} holds advice for another request (they differ in {', '.join(differs)}): take another --out, or "
                    "remove the folder"
                )
            self._content = found

    @property
    def spent(self) -> float:
        """Seconds spent so far, over all restarts."""
        return float(self._content["spent"]) + self._clock() - self._began

    @property
    def started(self) -> bool:
        """Whether a job was decided before."""
        return bool(self._content["jobs"])

    @property
    def plan(self) -> dict[str, Any] | None:
        """JSON of the plan, once there is one."""
        plan: dict[str, Any] | None = self._content["plan"]
        return plan

    def keep_plan(self, plan: dict[str, Any]) -> None:
        """Write the plan."""
        self._content["plan"] = plan
        self.save()

    def outcome(self, job: str) -> str | None:
        """ "trained" or "no time"; None if the job was not decided yet."""
        found: str | None = self._content["jobs"].get(job)
        return found

    def decide(self, job: str, outcome: str) -> None:
        """Write the outcome of a job."""
        self._content["jobs"][job] = outcome
        self.save()

    def save(self) -> None:
        """Write the file, with the seconds spent."""
        self._content["spent"], self._began = self.spent, self._clock()
        write_sealed(self.path, self._content)
