"""Seccomp filters as classic BPF: a list of eight-byte instructions that the kernel runs at every system call.

The filters add up. Bubblewrap installs `zygote_filter`, which applies to everything in the sandbox. A program's process
installs `program_filter` just before hostile code runs; the examiner installs `examiner_filter`. All kill a process that
uses another architecture's system calls, whose numbers mean other calls.

All are allow-lists: every other call fails with EPERM, including calls that later kernels add. Absent on purpose:
whatever creates a process (unless allowed), a socket (also socketpair, so asyncio does not run), a namespace, a mount,
a key, a memory file, a message queue or an io_uring, and whatever traces a process.

A balanced tree of comparisons finds the number of a call, because a filter is installed once per program and the kernel
then runs it once for every number.
"""

from __future__ import annotations

import errno
import platform
import struct
from itertools import pairwise

# System calls as name:x86_64:aarch64; a dash means "does not exist".
PROGRAM = """
read:0:63 write:1:64 readv:19:65 writev:20:66 pread64:17:67 pwrite64:18:68 preadv:295:69 pwritev:296:70
preadv2:327:286 pwritev2:328:287 lseek:8:62 close:3:57 close_range:436:436 dup:32:23 dup2:33:- dup3:292:24 pipe:22:-
pipe2:293:59 poll:7:- ppoll:271:73 select:23:- pselect6:270:72 flock:73:32 fsync:74:82 fdatasync:75:83
open:2:- openat:257:56 creat:85:- stat:4:- fstat:5:80 lstat:6:- newfstatat:262:79 statx:332:291 statfs:137:43
fstatfs:138:44 access:21:- faccessat:269:48 faccessat2:439:439 getdents:78:- getdents64:217:61 getcwd:79:17
chdir:80:49 fchdir:81:50 readlink:89:- readlinkat:267:78 mkdir:83:- mkdirat:258:34 rmdir:84:- rename:82:-
renameat:264:38 renameat2:316:276 unlink:87:- unlinkat:263:35 symlink:88:- symlinkat:266:36 link:86:- linkat:265:37
chmod:90:- fchmod:91:52 fchmodat:268:53 umask:95:166 truncate:76:45 ftruncate:77:46 fallocate:285:47 fadvise64:221:223
utime:132:- utimes:235:- utimensat:280:88 futimesat:261:-
brk:12:214 mmap:9:222 munmap:11:215 mremap:25:216 mprotect:10:226 madvise:28:233 msync:26:227 membarrier:324:283
futex:202:98 set_robust_list:273:99 get_robust_list:274:100 rseq:334:293 set_tid_address:218:96 sched_yield:24:124
sched_getaffinity:204:123 sched_getparam:143:121 sched_getscheduler:145:120 sched_get_priority_max:146:125
sched_get_priority_min:147:126 getcpu:309:168 gettid:186:178 exit:60:93 exit_group:231:94 restart_syscall:219:128
rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 rt_sigpending:127:136 rt_sigsuspend:130:133
rt_sigtimedwait:128:137 sigaltstack:131:132 pause:34:- alarm:37:- setitimer:38:103 getitimer:36:102
clock_gettime:228:113 clock_getres:229:114 clock_nanosleep:230:115 nanosleep:35:101 gettimeofday:96:169 time:201:-
times:100:153
getpid:39:172 getppid:110:173 getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177 getresuid:118:148
getresgid:120:150 getgroups:115:158 getpgrp:111:- getpgid:121:155 getsid:124:156 getrusage:98:165 getrlimit:97:163
setrlimit:160:164 getpriority:140:141 sysinfo:99:179 uname:63:160 getrandom:318:278
"""
# Allowed with certain arguments only.
CHECKED = "clone:56:220 clone3:435:435 fcntl:72:25 ioctl:16:29 prctl:157:167 prlimit64:302:261"
PROCESSES = "fork:57:- vfork:58:- wait4:61:260 waitid:247:95 execve:59:221 arch_prctl:158:-"
ZYGOTE = """
kill:62:129 pidfd_open:434:434 unshare:272:97 mount:165:40 umount2:166:39 capset:126:91 capget:125:90
seccomp:317:277 memfd_create:319:279
"""
_COLUMN = {"x86_64": 1, "aarch64": 2}
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_LOAD, _JUMP, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data, little-endian
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000

Instruction = tuple[int, int, int, int]
Rule = int | tuple[Instruction, ...]

_CLONE_THREAD, _CLONE_NAMESPACES = 0x00010000, 0x7E020080
_CLONE_NEWNS = 0x00020000
# Duplicate, flags, locks, read a pipe's size; not: owner, signal, lease, seal, pipe growth.
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
# isatty, window size, bytes waiting, non-blocking, close-on-exec; not: TIOCSTI.
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_PRCTL_NAME = (15, 16)


def machine() -> str:
    """Return this machine's architecture; raise ValueError if the tables do not cover it."""
    name = platform.machine()
    if name not in _COLUMN:
        raise ValueError(f"machine {name!r}: the sandbox's seccomp filter is written for {' and '.join(_COLUMN)}")
    return name


def numbers(arch: str, *tables: str) -> dict[str, int]:
    """Return the numbers of the calls in `tables`, by name."""
    rows = [row.split(":") for row in " ".join(tables).split()]
    return {row[0]: int(row[_COLUMN[arch]]) for row in rows if row[_COLUMN[arch]] != "-"}


def argument(index: int, values: tuple[int, ...], mask: int = 0xFFFFFFFF) -> tuple[Instruction, ...]:
    """Allow a call if argument `index`, after `& mask`, is one of `values`; refuse it with EPERM otherwise.

    Only the low 32 bits are compared: every argument checked here is an int or flags below 2^32.
    """
    equal = [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    load = [(_LOAD, 0, 0, _ARGUMENTS + 8 * index), (_AND, 0, 0, mask)]
    return (*load, *equal, (_RETURN, 0, 0, REFUSE | errno.EPERM), (_RETURN, 0, 0, ALLOW))


def program_filter(arch: str, *, processes: bool) -> bytes:
    """Build the filter of a judged program; `processes` allows fork and exec, never a namespace."""
    rules = _program_rules(arch)
    number = numbers(arch, CHECKED)
    if processes:
        rules |= dict.fromkeys(numbers(arch, PROCESSES).values(), ALLOW)
        rules[number["clone"]] = argument(0, (0,), mask=_CLONE_NAMESPACES)
    return assemble(arch, rules)


def examiner_filter(arch: str) -> bytes:
    """Build the examiner's filter: a single-process program's calls, and pidfd_open to notice the program's end."""
    return assemble(arch, {**_program_rules(arch), numbers(arch, ZYGOTE)["pidfd_open"]: ALLOW})


def _program_rules(arch: str) -> dict[int, Rule]:
    rules: dict[int, Rule] = dict.fromkeys(numbers(arch, PROGRAM).values(), ALLOW)
    number = numbers(arch, CHECKED)
    rules[number["fcntl"]] = argument(1, _FCNTL)
    rules[number["ioctl"]] = argument(1, _IOCTL)
    rules[number["prctl"]] = argument(0, _PRCTL_NAME)
    rules[number["prlimit64"]] = argument(0, (0,))  # its own limits only: the zygote runs as the same user
    rules[number["clone3"]] = REFUSE | errno.ENOSYS  # a filter cannot see its flags; the C library falls back to clone
    rules[number["clone"]] = argument(0, (_CLONE_THREAD,), mask=_CLONE_THREAD)
    return rules


def zygote_filter(arch: str) -> bytes:
    """Build the filter for everything in the sandbox: programs, processes, a mount namespace, confinement."""
    number = numbers(arch, PROGRAM, CHECKED, PROCESSES, ZYGOTE)
    rules: dict[int, Rule] = dict.fromkeys(number.values(), ALLOW)
    rules[number["clone"]] = argument(0, (0,), mask=_CLONE_NAMESPACES)
    rules[number["clone3"]] = REFUSE | errno.ENOSYS
    rules[number["unshare"]] = argument(0, (_CLONE_NEWNS,))
    rules[number["ioctl"]] = argument(1, _IOCTL)
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
        (_EQUAL, 1, 0, AUDIT_ARCH[arch]),
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
        return [(_RETURN, 0, 0, rule)] if isinstance(rule, int) else list(rule)
    middle = len(bounds) // 2
    left, right = _search(bounds[:middle]), _search(bounds[middle:])
    if len(left) < 256:
        return [(_AT_LEAST, len(left), 0, bounds[middle][0]), *left, *right]
    return [(_AT_LEAST, 0, 1, bounds[middle][0]), (_JUMP, 0, 0, len(left)), *left, *right]
