"""A script that starts bubblewrap for one worker, and does what needs the caller's rights:

1. Join the memory cgroup, if there is one.
2. As root only: bind the files into a private mount namespace, below a folder that any user may enter, and become an
   unprivileged user. Without the first, an interpreter below a 0700 home would be unreachable. Without the second, the
   process limit would not count: the kernel exempts uid 0.
3. Replace this process by bubblewrap with an empty environment, because everything inside could read the environment
   of pid 1.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

_MS_BIND, _MS_REC, _MS_PRIVATE, _CLONE_NEWNS = 4096, 16384, 1 << 18, 0x00020000
_STAGE = "/tmp"


def main(argument: str) -> None:
    """Start bubblewrap; `argument` is JSON with bwrap, options, binds, command, uid or None, cgroup or None."""
    plan = json.loads(argument)
    os.umask(0o077)
    if plan["cgroup"] is not None:
        with open(os.path.join(plan["cgroup"], "cgroup.procs"), "w") as group:
            group.write(str(os.getpid()))
    binds = [tuple(bind) for bind in plan["binds"]]
    bwrap = os.open(plan["bwrap"], os.O_PATH)  # closes on exec
    if plan["uid"] is not None:
        binds = _stage(binds)
        os.setgroups([])
        os.setresgid(plan["uid"], plan["uid"], plan["uid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])
    bindings = [word for source, inside in binds for word in ("--ro-bind", source, inside)]
    words = ["bwrap", *bindings, *plan["options"], "--", *plan["command"]]
    try:
        os.execve(plan["bwrap"], words, {})
    except (FileNotFoundError, PermissionError):  # below /tmp, which is hidden now, or in a folder of root's own
        os.execve(bwrap, words, {})


def _stage(binds: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Bind every source below a new world-readable folder that only this mount namespace has."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS), "unshare")
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount --make-rprivate /")
    # Open them first: the new folder hides what lies below /tmp.
    opened = [(os.open(source, os.O_PATH), inside) for source, inside in binds]
    _check(libc.mount(b"tmpfs", _STAGE.encode(), b"tmpfs", 0, b"mode=755,size=1m"), "mount tmpfs")
    staged = []
    for number, (fd, inside) in enumerate(opened):
        place = f"{_STAGE}/{number}"
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
        bound = libc.mount(f"/proc/self/fd/{fd}".encode(), place.encode(), None, _MS_BIND | _MS_REC, None)
        _check(bound, f"bind {inside}")
        os.close(fd)
        staged.append((place, inside))
    return staged


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1])
