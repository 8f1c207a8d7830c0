"""A memory cgroup per worker: it limits the whole sandbox, including files in /tmp and kernel memory.

Versions 1 (`/sys/fs/cgroup/memory`) and 2 (one tree) are tried. If the user may write to neither, the sandbox works
without a cgroup, and `Protections.memory` says so.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_COUNT = itertools.count()


@dataclass(frozen=True)
class MemoryGroup:
    """One cgroup; `close` removes it."""

    folder: Path
    events_file: str

    def kills(self) -> int:
        """Return how many processes of this group the kernel has killed because memory ran out."""
        try:
            lines = (self.folder / self.events_file).read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def close(self) -> None:
        """Remove the group; if it still holds a dying process, the next judge removes it."""
        with suppress(OSError):
            self.folder.rmdir()


def memory_group(limit_bytes: int) -> MemoryGroup | None:
    """Create a group with this limit below our own; return None if that is not allowed."""
    try:
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in own:
        if "memory" in controllers.split(","):
            parent, limit_file, events_file = _ROOT / "memory", "memory.limit_in_bytes", "memory.oom_control"
        elif controllers == "":
            parent, limit_file, events_file = _ROOT, "memory.max", "memory.events"
        else:
            continue
        parent /= path.lstrip("/")
        _remove_orphans(parent)
        folder = parent / f"widen-{os.getpid()}-{next(_COUNT)}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit_file).write_text(str(limit_bytes))
            return MemoryGroup(folder, events_file)
        except OSError:  # no memory controller in this tree
            folder.rmdir()
    return None


def _remove_orphans(parent: Path) -> None:
    """Remove the groups of judges that were killed; the kernel refuses to remove a group in use."""
    for folder in parent.glob("widen-*-*"):
        if not Path("/proc", folder.name.split("-")[1]).exists():
            with suppress(OSError):
                folder.rmdir()
