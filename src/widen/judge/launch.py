"""Run as a script, once a worker, just before bubblewrap: what must happen while the caller's rights are still there.

1. join the memory cgroup, if there is one;
2. as root only: copy the bindings into a private mount namespace under a folder that any user may enter (an
interpreter under a 0700 home is unreachable by the next step otherwise), and become an unprivileged user, because the
kernel counts no process limit for uid 0; 3. replace this process by bubblewrap with an EMPTY environment: pid 1 of a
sandbox keeps the environment it was started with, for all inside to read.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

_MS_BIND, _MS_REC, _MS_PRIVATE, _CLONE_NEWNS = 4096, 16384, 1 << 18, 0x00020000
_STAGE = "/tmp"


def main(argument: str) -> None:
    """`argument`: JSON with bwrap, options, binds, command, uid (None: stay), cgroup (None: none)."""
    plan = json.loads(argument)
    os.umask(0o077)
    if plan["cgroup"] is not None:
        with open(os.path.join(plan["cgroup"], "cgroup.procs"), "w") as group:
            group.write(str(os.getpid()))
    binds = [tuple(bind) for bind in plan["binds"]]
    if plan["uid"] is not None:
        binds = _stage(binds)
        os.setgroups([])
        os.setresgid(plan["uid"], plan["uid"], plan["uid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])
    bindings = [word for source, inside in binds for word in ("--ro-bind", source, inside)]
    os.execve(plan["bwrap"], ["bwrap", *bindings, *plan["options"], "--", *plan["command"]], {})


def _stage(binds: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Bind every source below a fresh world-readable folder that exists in this process's mount namespace only."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS), "unshare")
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount --make-rprivate /")
    opened = [
        (os.open(source, os.O_PATH), inside) for source, inside in binds
    ]  # before the stage hides what lies below it
    _check(libc.mount(b"tmpfs", _STAGE.encode(), b"tmpfs", 0, b"mode=755,size=1m"), "mount tmpfs")
    staged = []
    for number, (fd, inside) in enumerate(opened):
        place = f"{_STAGE}/{number}"
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
        _check(
            libc.mount(f"/proc/self/fd/{fd}".encode(), place.encode(), None, _MS_BIND | _MS_REC, None), f"bind {inside}"
        )
        os.close(fd)
        staged.append((place, inside))
    return staged


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1])
