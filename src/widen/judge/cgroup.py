"""A memory cgroup for each worker, where this user owns one: a cap on everything the sandbox holds, its files in /tmp
and kernel memory included.

Version 1 (`/sys/fs/cgroup/memory`) and version 2 (one tree) are tried; where neither may be written to, the sandbox
stands without, and says so.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_COUNT = itertools.count()


class MemoryGroup:
    """One group of its own, removed by `close`."""

    def __init__(self, folder: Path, limit_file: str, events_file: str) -> None:
        self.folder, self.limit_file, self.events_file = folder, limit_file, events_file

    def kills(self) -> int:
        """How often the kernel has killed a process of this group for want of memory."""
        try:
            lines = (self.folder / self.events_file).read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def close(self) -> None:
        """Remove the group; if the kernel is a moment behind its dead processes, the next judge removes it."""
        with suppress(OSError):
            self.folder.rmdir()


def memory_group(limit_bytes: int) -> MemoryGroup | None:
    """A new group below our own with the limit set, or None where that is not allowed."""
    for parent, limit_file, events_file in _candidates():
        _remove_orphans(parent)
        folder = parent / f"widen-{os.getpid()}-{next(_COUNT)}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit_file).write_text(str(limit_bytes))
            return MemoryGroup(folder, limit_file, events_file)
        except OSError:  # no memory controller in this tree
            folder.rmdir()
    return None


def _remove_orphans(parent: Path) -> None:
    """Groups of judges that were killed; only empty ones can be removed at all."""
    for folder in parent.glob("widen-*-*"):
        if not Path("/proc", folder.name.split("-")[1]).exists():
            with suppress(OSError):
                folder.rmdir()


def _candidates() -> list[tuple[Path, str, str]]:
    """Our own group in either version's tree."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            found.append((_ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes", "memory.oom_control"))
        elif controllers == "":
            found.append((_ROOT / path.lstrip("/"), "memory.max", "memory.events"))
    return found
