"""The last steps before hostile code runs, in this order: limits, capabilities, seccomp.

The zygote runs in a user namespace that allows no further user namespace. It keeps one capability, CAP_SYS_ADMIN of
that namespace, to mount a fresh /tmp in its own mount namespace. It cannot change what bubblewrap mounted: umount
fails with EINVAL, remount with EPERM. Every process that it forks drops the capability for good.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Mapping

_CLONE_NEWNS = 0x00020000
_MS_NOSUID_NODEV = 2 | 4
_MNT_DETACH = 2
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_TMP = b"/tmp"

_libc = ctypes.CDLL(None, use_errno=True)
_CAPABILITY_HEADER = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()
_fork = ctypes.PyDLL(None).fork  # PyDLL keeps the interpreter's lock during the call


class Filter(ctypes.Structure):
    """struct sock_fprog: built once in the zygote from packed instructions, installed by each child."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _check(name: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def become_zygote() -> None:
    """Enter a new mount namespace; forbid processes of the same user to read or trace this one."""
    _check("unshare", _libc.unshare(_CLONE_NEWNS))
    _check("prctl", _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def fresh_tmp(bounds: Mapping[str, int], *, replace: bool) -> None:
    """Mount an empty /tmp for the next program; the old file system is detached as a whole (68 µs)."""
    if replace:
        _check("umount", _libc.umount2(_TMP, _MNT_DETACH))
    options = f"size={bounds['tmp_bytes']},nr_inodes={bounds['tmp_files']},mode=700".encode()
    _check("mount", _libc.mount(b"tmpfs", _TMP, b"tmpfs", _MS_NOSUID_NODEV, options))


def confine(bounds: Mapping[str, int], *, cpu_seconds: int, allowed: Filter) -> None:
    """Give up what this process does not need; call it before any hostile code runs.

    Soft limits equal hard limits, so a program cannot raise them. Only the processor limit differs: a signal comes
    first, and the kill a second later. An empty capability set also empties the ambient set. A seccomp filter cannot be
    removed.
    """
    for what, value in (
        (resource.RLIMIT_AS, bounds["memory_bytes"]),
        (resource.RLIMIT_FSIZE, bounds["file_bytes"]),
        (resource.RLIMIT_NOFILE, bounds["open_files"]),
        (resource.RLIMIT_NPROC, bounds["tasks"]),
        (resource.RLIMIT_STACK, bounds["stack_bytes"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(what, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    _check("capset", _libc.capset(_CAPABILITY_HEADER, _NO_CAPABILITIES))
    _check("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check("prctl", _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(allowed), 0, 0))


def fork() -> int:
    """Call fork(2) without the interpreter's fork hooks, which cost 0.25 ms per program.

    The hooks repair locks that other threads may hold. The zygote has one thread, and reseeds `random` itself.
    """
    pid = int(_fork())
    if pid < 0:
        raise OSError("fork failed")
    return pid
