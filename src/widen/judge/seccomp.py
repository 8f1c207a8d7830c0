"""Seccomp filters as classic BPF: a list of eight-byte instructions that the kernel runs at every system call.

The filters add up. Bubblewrap installs `zygote_filter`, which applies to everything in the sandbox. A program's process
installs `program_filter` just before hostile code runs; the examiner installs `examiner_filter`. All are allow-lists.
All kill a process that uses another architecture's system calls, whose numbers mean other calls.

A balanced tree of comparisons finds the number of a call. This matters because a filter is installed once per program,
and the kernel then runs it once for every number.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from itertools import pairwise

from . import syscalls

_LOAD, _JUMP, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data, little-endian
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000

Instruction = tuple[int, int, int, int]

_CLONE_THREAD, _CLONE_NAMESPACES = 0x00010000, 0x7E020080
_CLONE_NEWNS = 0x00020000
# Duplicate, flags, locks, read a pipe's size; not: owner, signal, lease, seal, pipe growth.
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
# isatty, window size, bytes waiting, non-blocking, close-on-exec; not: TIOCSTI.
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_PRCTL_NAME = (15, 16)


@dataclass(frozen=True)
class Argument:
    """Allowed if argument `index`, after `& mask`, is one of `values`; refused with `error` otherwise."""

    index: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    error: int = errno.EPERM

    def code(self) -> list[Instruction]:
        """Load, mask and compare the low 32 bits: every argument checked here is an int or flags below 2^32."""
        body: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * self.index)]
        if self.mask != 0xFFFFFFFF:
            body.append((_AND, 0, 0, self.mask))
        for left, value in zip(range(len(self.values), 0, -1), self.values, strict=True):
            body.append((_EQUAL, left, 0, value))
        return [*body, (_RETURN, 0, 0, REFUSE | self.error), (_RETURN, 0, 0, ALLOW)]


Rule = Argument | int


def program_filter(arch: str, *, processes: bool) -> bytes:
    """Build the filter of a judged program; `processes` allows fork and exec, never a namespace.

    Examples:
        >>> len(program_filter("x86_64", processes=False)) % 8
        0
    """
    rules = _program_rules(arch)
    number = syscalls.checked(arch)
    if processes:
        rules |= dict.fromkeys(syscalls.processes(arch).values(), ALLOW)
        rules[number["clone"]] = Argument(0, (0,), mask=_CLONE_NAMESPACES)
    return assemble(arch, rules)


def examiner_filter(arch: str) -> bytes:
    """Build the examiner's filter: a single-process program's calls, and pidfd_open to notice the program's end."""
    return assemble(arch, {**_program_rules(arch), syscalls.zygote(arch)["pidfd_open"]: ALLOW})


def _program_rules(arch: str) -> dict[int, Rule]:
    rules: dict[int, Rule] = dict.fromkeys(syscalls.program(arch).values(), ALLOW)
    number = syscalls.checked(arch)
    rules[number["fcntl"]] = Argument(1, _FCNTL)
    rules[number["ioctl"]] = Argument(1, _IOCTL)
    rules[number["prctl"]] = Argument(0, _PRCTL_NAME)
    rules[number["prlimit64"]] = Argument(0, (0,))  # its own limits only: the zygote runs as the same user
    rules[number["clone3"]] = REFUSE | errno.ENOSYS  # a filter cannot see its flags; the C library falls back to clone
    rules[number["clone"]] = Argument(0, (_CLONE_THREAD,), mask=_CLONE_THREAD)
    return rules


def zygote_filter(arch: str) -> bytes:
    """Build the filter for everything in the sandbox: programs, processes, a mount namespace, confinement."""
    tables = (syscalls.program, syscalls.checked, syscalls.processes, syscalls.zygote)
    rules: dict[int, Rule] = {number: ALLOW for table in tables for number in table(arch).values()}
    number = syscalls.checked(arch) | syscalls.zygote(arch)
    rules[number["clone"]] = Argument(0, (0,), mask=_CLONE_NAMESPACES)
    rules[number["clone3"]] = REFUSE | errno.ENOSYS
    rules[number["unshare"]] = Argument(0, (_CLONE_NEWNS,))
    rules[number["ioctl"]] = Argument(1, _IOCTL)
    return assemble(arch, rules)


def assemble(arch: str, rules: dict[int, Rule]) -> bytes:
    """Build the filter that applies `rules` by system call number and refuses every other call with EPERM."""
    bounds: list[tuple[int, Rule]] = [(0, REFUSE | errno.EPERM)]
    for number in sorted(rules):
        if bounds[-1][0] == number:
            bounds.pop()
        bounds += [(number, rules[number]), (number + 1, REFUSE | errno.EPERM)]
    merged = [bounds[0]] + [here for before, here in pairwise(bounds) if here[1] != before[1]]
    head: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, syscalls.AUDIT_ARCH[arch]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if arch == "x86_64":
        head += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, KILL)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in [*head, *_search(merged)])


def _search(bounds: list[tuple[int, Rule]]) -> list[Instruction]:
    """Build a binary search: fall through below the middle bound, otherwise jump over the left half."""
    if len(bounds) == 1:
        rule = bounds[0][1]
        return rule.code() if isinstance(rule, Argument) else [(_RETURN, 0, 0, rule)]
    middle = len(bounds) // 2
    left, right = _search(bounds[:middle]), _search(bounds[middle:])
    if len(left) < 256:
        return [(_AT_LEAST, len(left), 0, bounds[middle][0]), *left, *right]
    return [(_AT_LEAST, 0, 1, bounds[middle][0]), (_JUMP, 0, 0, len(left)), *left, *right]
