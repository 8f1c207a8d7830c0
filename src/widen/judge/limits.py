"""What one judged program may use. The limits are part of every verdict's key."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one run: all tests of a program together, or one test if tests are run separately.

    processes=1 (the default) refuses fork; threads still work. With more, each process gets memory_bytes / processes.

    Args:
        wall_seconds: elapsed time.
        cpu_seconds: processor time in whole seconds.
        memory_bytes: address space, including the interpreter (about 30 MiB) and numpy (about 150 MiB).
        output_bytes: what a contest program may print for one input.
        tmp_bytes: size of /tmp, which is also /dev/shm, and of any single file.
        tmp_files: files and folders in /tmp.
        processes: processes alive at the same time.
        threads: threads besides the first. If processes > 1, threads count as processes.
        open_files: open descriptors.
    """

    wall_seconds: float = 10.0
    cpu_seconds: int = 10
    memory_bytes: int = 512 * _MIB
    output_bytes: int = 4 * _MIB
    tmp_bytes: int = 16 * _MIB
    tmp_files: int = 1024
    processes: int = 1
    threads: int = 32
    open_files: int = 64

    def __post_init__(self) -> None:
        least = {"wall_seconds": 0.01, "cpu_seconds": 1, "memory_bytes": 64 * _MIB, "output_bytes": 1}
        least |= {"tmp_bytes": 4096, "tmp_files": 2, "processes": 1, "threads": 1, "open_files": 16}
        most = {"wall_seconds": 3600, "cpu_seconds": 3600, "output_bytes": 8 * _MIB}
        for name, smallest in least.items():
            value = getattr(self, name)
            if not smallest <= value <= most.get(name, value):
                raise ValueError(f"{name}={value!r}: from {smallest} to {most.get(name, 'any number')}")
        if self.memory_bytes // self.processes < 64 * _MIB:
            raise ValueError(
                f"memory_bytes={self.memory_bytes} over processes={self.processes}: each needs at least {64 * _MIB}"
            )

    @classmethod
    def up_to(cls, wall_seconds: float) -> Limits:
        """Limits for programs that may take this long, whether they wait or compute.

        >>> Limits.up_to(60.0).cpu_seconds, Limits.up_to(2.5).cpu_seconds
        (60, 10)
        """
        one = cls(wall_seconds=wall_seconds)
        return replace(one, cpu_seconds=max(one.cpu_seconds, math.ceil(wall_seconds)))

    def bounds(self) -> dict[str, int]:
        """Return the limits as the zygote reads them.

        `tasks` counts three more: the zygote, the examiner and the program's first thread. All thread stacks together
        take a quarter of the memory at most.
        """
        memory = self.memory_bytes // self.processes
        return {
            "memory_bytes": memory,
            "file_bytes": max(self.tmp_bytes, self.output_bytes + 1),  # stdout is a file too
            "tmp_bytes": self.tmp_bytes,
            "tmp_files": self.tmp_files,
            "output_bytes": self.output_bytes,
            "open_files": self.open_files,
            "tasks": 3 + (self.threads if self.processes == 1 else self.processes - 1),
            "stack_bytes": min(64 * _MIB, memory // 2),
            "thread_stack_bytes": max(1 << 16, min(8 * _MIB, memory // 4 // self.threads) & ~4095),
        }
