"""System calls that a judged program and the zygote may make, as name:x86_64:aarch64; a dash means "does not exist".

This is an allow-list: every other call fails with EPERM, including calls that later kernels add. Absent on purpose:
whatever creates a process (unless allowed), a socket (also socketpair, so asyncio does not run), a namespace, a mount,
a key, a memory file, a message queue or an io_uring, and whatever traces a process.
"""

from __future__ import annotations

import platform

_PROGRAM = """
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
# Allowed with certain arguments only; see `seccomp`.
_CHECKED = "clone:56:220 clone3:435:435 fcntl:72:25 ioctl:16:29 prctl:157:167 prlimit64:302:261"
_PROCESSES = "fork:57:- vfork:58:- wait4:61:260 waitid:247:95 execve:59:221 arch_prctl:158:-"
_ZYGOTE = """
kill:62:129 pidfd_open:434:434 unshare:272:97 mount:165:40 umount2:166:39 capset:126:91 capget:125:90
seccomp:317:277 memfd_create:319:279
"""

_COLUMN = {"x86_64": 1, "aarch64": 2}
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def machine() -> str:
    """Return this machine's architecture; raise ValueError if the tables do not cover it."""
    name = platform.machine()
    if name not in _COLUMN:
        raise ValueError(f"machine {name!r}: the sandbox's seccomp filter is written for {' and '.join(_COLUMN)}")
    return name


def _numbers(table: str, arch: str) -> dict[str, int]:
    rows = [row.split(":") for row in table.split()]
    return {row[0]: int(row[_COLUMN[arch]]) for row in rows if row[_COLUMN[arch]] != "-"}


def program(arch: str) -> dict[str, int]:
    """Return the calls that every judged program may make."""
    return _numbers(_PROGRAM, arch)


def checked(arch: str) -> dict[str, int]:
    """Return the calls whose arguments are checked."""
    return _numbers(_CHECKED, arch)


def processes(arch: str) -> dict[str, int]:
    """Return the calls that a program may also make if processes are allowed."""
    return _numbers(_PROCESSES, arch)


def zygote(arch: str) -> dict[str, int]:
    """Return the calls that only the zygote may make."""
    return _numbers(_ZYGOTE, arch)
