"""The last steps before hostile code runs, in this order: limits, capabilities, seccomp.

The zygote runs in a user namespace that allows no further user namespace. It keeps one capability, CAP_SYS_ADMIN of
that namespace, to mount a fresh /tmp in its own mount namespace. It cannot change what bubblewrap mounted: umount
fails with EINVAL, remount with EPERM. Every process that it forks drops the capability for good.
"""

from __future__ import annotations

import ctypes
import os
import resource
from typing import NamedTuple

_CLONE_NEWNS = 0x00020000
_MS_NOSUID_NODEV = 2 | 4
_MNT_DETACH = 2
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_TMP = b"/tmp"

_libc = ctypes.CDLL(None, use_errno=True)
_CAPABILITY_HEADER = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()
_fork = ctypes.PyDLL(None).fork  # PyDLL keeps the interpreter's lock during the call


class ResourceBounds(NamedTuple):  # not a dataclass: that module imports `inspect`, which every fork would copy
    """The limits of one sandbox, as the zygote received them."""

    memory_bytes: int
    file_bytes: int
    tmp_bytes: int
    tmp_files: int
    output_bytes: int
    open_files: int
    tasks: int
    stack_bytes: int
    thread_stack_bytes: int


class Filter(ctypes.Structure):
    """struct sock_fprog: built once in the zygote, installed by each child."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    @classmethod
    def of(cls, instructions: bytes) -> Filter:
        """Build the structure from packed instructions."""
        return cls(len(instructions) // 8, instructions)


def _check(name: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def become_zygote() -> None:
    """Enter a new mount namespace; forbid processes of the same user to read or trace this one."""
    _check("unshare", _libc.unshare(_CLONE_NEWNS))
    _check("prctl", _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def fresh_tmp(bounds: ResourceBounds, *, replace: bool) -> None:
    """Mount an empty /tmp for the next program; the old file system is detached as a whole (68 µs)."""
    if replace:
        _check("umount", _libc.umount2(_TMP, _MNT_DETACH))
    options = f"size={bounds.tmp_bytes},nr_inodes={bounds.tmp_files},mode=700".encode()
    _check("mount", _libc.mount(b"tmpfs", _TMP, b"tmpfs", _MS_NOSUID_NODEV, options))


def set_limits(bounds: ResourceBounds, *, cpu_seconds: int) -> None:
    """Set limits of this process. Soft equals hard, so a program cannot raise them.

    Only the processor limit differs: a signal comes first, and a second later the kill.
    """
    for what, value in (
        (resource.RLIMIT_AS, bounds.memory_bytes),
        (resource.RLIMIT_FSIZE, bounds.file_bytes),
        (resource.RLIMIT_NOFILE, bounds.open_files),
        (resource.RLIMIT_NPROC, bounds.tasks),
        (resource.RLIMIT_STACK, bounds.stack_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(what, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets; this empties the ambient set too."""
    _check("capset", _libc.capset(_CAPABILITY_HEADER, _NO_CAPABILITIES))


def install_filter(allowed: Filter) -> None:
    """Install a seccomp filter; it cannot be removed."""
    _check("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check("prctl", _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(allowed), 0, 0))


def confine(bounds: ResourceBounds, *, cpu_seconds: int, allowed: Filter) -> None:
    """Apply all three steps; call it before any hostile code runs in this process."""
    set_limits(bounds, cpu_seconds=cpu_seconds)
    drop_capabilities()
    install_filter(allowed)


def fork() -> int:
    """Call fork(2) without the interpreter's fork hooks, which cost 0.25 ms per program.

    The hooks repair locks and thread tables that other threads may hold. The zygote has one thread, holds the
    interpreter's lock while it forks, and reseeds `random`, the only imported module with a fork hook, itself.
    """
    pid = int(_fork())
    if pid < 0:
        raise OSError("fork failed")
    return pid
