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
        with suppress(OSError):
            for line in (self.folder / self.events_file).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def close(self) -> None:
        """Remove the group; if it still holds a dying process, the next judge removes it."""
        with suppress(OSError):
            self.folder.rmdir()


def memory_group(limit_bytes: int) -> MemoryGroup | None:
    """Create a group with this limit below our own; return None if that is not allowed."""
    own = Path("/proc/self/cgroup")
    for line in own.read_text().splitlines() if own.exists() else ():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            parent, limit_file, events_file = _ROOT / "memory", "memory.limit_in_bytes", "memory.oom_control"
        elif controllers == "":
            parent, limit_file, events_file = _ROOT, "memory.max", "memory.events"
        else:
            continue
        parent /= path.lstrip("/")
        for orphan in parent.glob("widen-*-*"):  # of a judge that was killed; the kernel keeps a group in use
            if not Path("/proc", orphan.name.split("-")[1]).exists():
                MemoryGroup(orphan, events_file).close()
        group = MemoryGroup(parent / f"widen-{os.getpid()}-{next(_COUNT)}", events_file)
        try:
            group.folder.mkdir()
            (group.folder / limit_file).write_text(str(limit_bytes))
            return group
        except OSError:  # not ours to write, or no memory controller in this tree
            group.close()
    return None
