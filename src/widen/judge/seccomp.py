"""Seccomp filters as classic BPF, packed by hand: a list of eight-byte instructions that the kernel runs at every
system call.

One on top of the other: `zygote_filter` holds for everything in the sandbox (bubblewrap installs it);
`program_filter` is installed by each child as its last act before hostile code, `examiner_filter` by the examiner.
All are allow-lists; all kill on a foreign architecture, where the numbers would mean other calls.

The numbers are searched by a balanced tree of comparisons: the kernel tries every number once when a filter is
installed (to find those that need no run), and installing happens once a program.
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
_FCNTL = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    36,
    37,
    38,
    1030,
    1032,
)  # duplicate, flags, locks, read a pipe's size: no owner, signal, lease, seal or pipe growth
_IOCTL = (
    0x5401,
    0x5413,
    0x541B,
    0x5421,
    0x5450,
    0x5451,
)  # isatty, window size, bytes waiting, non-blocking, close-on-exec: no TIOCSTI
_PRCTL_NAME = (15, 16)


@dataclass(frozen=True)
class Argument:
    """Allowed if argument `index`, after `& mask`, is one of `values`; refused with `error` otherwise."""

    index: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    error: int = errno.EPERM

    def code(self) -> list[Instruction]:
        """Load, mask, compare; only the low half: every argument checked here is an int for the kernel, or flags
        below 2^32.
        """
        body: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * self.index)]
        if self.mask != 0xFFFFFFFF:
            body.append((_AND, 0, 0, self.mask))
        for left, value in zip(range(len(self.values), 0, -1), self.values, strict=True):
            body.append((_EQUAL, left, 0, value))
        return [*body, (_RETURN, 0, 0, REFUSE | self.error), (_RETURN, 0, 0, ALLOW)]


Rule = Argument | int


def program_filter(arch: str, *, processes: bool) -> bytes:
    """What a judged program may call; with `processes`, fork and exec too (never a namespace).

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
    """A lone program's list, and the right to watch the program's process for its end."""
    return assemble(arch, {**_program_rules(arch), syscalls.zygote(arch)["pidfd_open"]: ALLOW})


def _program_rules(arch: str) -> dict[int, Rule]:
    rules: dict[int, Rule] = dict.fromkeys(syscalls.program(arch).values(), ALLOW)
    number = syscalls.checked(arch)
    rules[number["fcntl"]] = Argument(1, _FCNTL)
    rules[number["ioctl"]] = Argument(1, _IOCTL)
    rules[number["prctl"]] = Argument(0, _PRCTL_NAME)
    rules[number["prlimit64"]] = Argument(0, (0,))  # its own limits only: the zygote has the same user
    rules[number["clone3"]] = REFUSE | errno.ENOSYS  # its flags are behind a pointer; the C library falls back to clone
    rules[number["clone"]] = Argument(0, (_CLONE_THREAD,), mask=_CLONE_THREAD)
    return rules


def zygote_filter(arch: str) -> bytes:
    """What anything in the sandbox may call: the program's list, processes, one mount namespace, and the tools of
    confinement.
    """
    tables = (syscalls.program, syscalls.checked, syscalls.processes, syscalls.zygote)
    rules: dict[int, Rule] = {number: ALLOW for table in tables for number in table(arch).values()}
    number = syscalls.checked(arch) | syscalls.zygote(arch)
    rules[number["clone"]] = Argument(0, (0,), mask=_CLONE_NAMESPACES)
    rules[number["clone3"]] = REFUSE | errno.ENOSYS
    rules[number["unshare"]] = Argument(0, (_CLONE_NEWNS,))
    rules[number["ioctl"]] = Argument(1, _IOCTL)
    return assemble(arch, rules)


def assemble(arch: str, rules: dict[int, Rule]) -> bytes:
    """The filter that applies `rules` by system call number and refuses the rest with EPERM."""
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
    """Binary search: below the middle bound fall through, from it on jump over the left half."""
    if len(bounds) == 1:
        rule = bounds[0][1]
        return rule.code() if isinstance(rule, Argument) else [(_RETURN, 0, 0, rule)]
    middle = len(bounds) // 2
    left, right = _search(bounds[:middle]), _search(bounds[middle:])
    if len(left) < 256:
        return [(_AT_LEAST, len(left), 0, bounds[middle][0]), *left, *right]
    return [(_AT_LEAST, 0, 1, bounds[middle][0]), (_JUMP, 0, 0, len(left)), *left, *right]
