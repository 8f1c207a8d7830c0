"""The walls of the sandbox: how bubblewrap is found, and its options.

The sandbox has no /proc, /sys, /etc, home, network, host process or second user namespace. Its root is read-only.
/tmp has a fixed size and is replaced before every program. /dev has four harmless nodes, and /dev/shm is /tmp.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from itertools import count, islice
from pathlib import Path

from .interpreter import CODE

INSTALL = "apt-get install bubblewrap"
_LEAST = (0, 8, 0)  # the first with --disable-userns
_FIRST_UID = 60001
_INSIDE_ID = "65534"
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONPATH": CODE,
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",  # otherwise each thread reserves 64 MiB or more of the address space
}  # fmt: skip
SAFE_VARIABLES = frozenset(_ENVIRONMENT) | {"PWD", "LC_CTYPE"}


class SandboxUnavailable(RuntimeError):
    """This machine has no working sandbox. Programs are never run without one."""


def find_bubblewrap() -> str:
    """Return the path of a bwrap that is new enough; raise SandboxUnavailable if there is none."""
    path = shutil.which("bwrap")
    if path is None:
        raise SandboxUnavailable(f"bubblewrap (bwrap) is not installed: {INSTALL}")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30).stdout
    version = tuple(int(part) for part in re.findall(r"\d+", said)[:3])
    if version < _LEAST:
        raise SandboxUnavailable(
            f"{path} is {said.strip()!r}, at least {'.'.join(map(str, _LEAST))} is needed: {INSTALL}"
        )
    return path


def worker_uid(number: int) -> int | None:
    """Return, for root, an unused uid per worker; None for an ordinary user, who keeps its uid."""
    if os.getuid() != 0:
        return None
    taken = {user.pw_uid for user in pwd.getpwall()}
    return next(islice((uid for uid in count(_FIRST_UID) if uid not in taken), number, None))


def bubblewrap_options(*, tmp_bytes: int, seccomp_fd: int, hidden: tuple[str, ...]) -> list[str]:
    """Return every option except the bindings and the command; folders in `hidden` appear empty."""
    namespaces = ["--unshare-user", "--unshare-all", "--disable-userns"]
    namespaces += ["--die-with-parent", "--new-session", "--as-pid-1"]
    links = [("--symlink", os.readlink(path), path) for path in ("/lib", "/lib64") if Path(path).is_symlink()]
    devices = [("--dev-bind", f"/dev/{name}", f"/dev/{name}") for name in ("null", "zero", "random", "urandom")]
    empty = [("--perms", "0555", "--size", "4096", "--tmpfs", path, "--remount-ro", path) for path in hidden]
    tmp = ("--symlink", "/tmp", "/dev/shm", "--size", str(tmp_bytes), "--tmpfs", "/tmp", "--remount-ro", "/")
    files = [word for option in (*links, *devices, *empty, tmp) for word in option]
    # CAP_SYS_ADMIN of the innermost user namespace is enough to mount a fresh /tmp in a new mount namespace. It cannot
    # change anything that bubblewrap mounted.
    identity = ["--uid", _INSIDE_ID, "--gid", _INSIDE_ID, "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    environment = ["--clearenv", *[word for key, value in _ENVIRONMENT.items() for word in ("--setenv", key, value)]]
    ends = ["--hostname", "sandbox", "--chdir", "/", "--seccomp", str(seccomp_fd)]
    return [*namespaces, *files, *identity, *environment, *ends]
