"""``log.jsonl``: one JSON line per logged step. A kill loses no line, and a resumed run writes no step twice."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from widen.disk.atomic import write_text
from widen.disk.lock import hold


class Log:
    """A log open for appending. It holds its folder against other processes until it is closed.

    Args:
      path: the file.
      step: the step that comes next. Lines of this step and later ones are dropped: a run that was killed after its last checkpoint left
        them. A torn last line is dropped too.
    """

    def __init__(self, path: str | Path, *, step: int) -> None:
        self.path = Path(path)
        self._hold = ExitStack()
        self._hold.enter_context(hold(self.path.parent))
        kept = [record for record in read_log(self.path) if record["step"] < step]
        write_text(self.path, "".join(json.dumps(record) + "\n" for record in kept))
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one line; `record` has a "step". It reaches the system at once, so a killed process loses nothing."""
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Wait until all lines are on the disk: done before a checkpoint, so that no checkpoint is ahead of its log."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file and release the folder."""
        self._file.close()
        self._hold.close()


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The records of a log; a torn last line is left out, a broken line elsewhere is refused."""
    path = Path(path)
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines[:-1]):  # what follows the last newline is torn, or empty
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number + 1}: not JSON ({error})") from None
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise ValueError(f"{path}, line {number + 1}: not an object with a step")
        records.append(record)
    return records
