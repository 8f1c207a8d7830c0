"""The walls: bubblewrap's arguments, found and checked once a sandbox.

What is not here is not inside: no /proc, no /sys, no /etc, no home, no network, no host process, no second user
namespace; the root is read-only; /tmp is sized and replaced before every program; /dev has four harmless nodes and
/dev/shm is /tmp.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

from .interpreter import CODE

INSTALL = "apt-get install bubblewrap"
_LEAST = (0, 8, 0)  # the first with --disable-userns
_FIRST_UID = 60001
_INSIDE_ID = "65534"
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONPATH": CODE,
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
}  # fmt: skip
SAFE_VARIABLES = frozenset(_ENVIRONMENT) | {"PWD", "LC_CTYPE"}


class SandboxUnavailable(RuntimeError):
    """No sandbox on this machine, and therefore no judging: there is no unsafe way round."""


def find_bubblewrap() -> str:
    """The path of a bwrap that is new enough; otherwise refuse, and say what to do."""
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
    """As root, a user that nobody has, one a worker; an ordinary user keeps its own uid (None)."""
    if os.getuid() != 0:
        return None
    candidate, left = _FIRST_UID, number
    while True:
        try:
            pwd.getpwuid(candidate)
        except KeyError:
            if left == 0:
                return candidate
            left -= 1
        candidate += 1


def bubblewrap_options(*, tmp_bytes: int, seccomp_fd: int) -> list[str]:
    """Everything but the bindings and the command."""
    namespaces = [
        "--unshare-user",
        "--unshare-all",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
        "--hostname",
        "sandbox",
    ]
    links = [
        word
        for path in ("/lib", "/lib64")
        if Path(path).is_symlink()
        for word in ("--symlink", os.readlink(path), path)
    ]
    devices = [
        word
        for name in ("null", "zero", "random", "urandom")
        for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    ]
    files = [
        *links,
        *devices,
        "--symlink",
        "/tmp",
        "/dev/shm",
        "--size",
        str(tmp_bytes),
        "--tmpfs",
        "/tmp",
        "--remount-ro",
        "/",
    ]
    # CAP_SYS_ADMIN of the innermost user namespace: enough to mount a fresh /tmp in a mount namespace of its own,
    # powerless over all that is mounted here.
    identity = ["--uid", _INSIDE_ID, "--gid", _INSIDE_ID, "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    environment = ["--clearenv", *[word for key, value in _ENVIRONMENT.items() for word in ("--setenv", key, value)]]
    return [*namespaces, *files, *identity, *environment, "--chdir", "/", "--seccomp", str(seccomp_fd)]
