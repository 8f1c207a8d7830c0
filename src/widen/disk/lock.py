"""One process per folder: whoever writes into a run folder or a root of runs holds its lock.

The lock is ``flock`` on the file ``.lock`` in the folder. The system releases it when the process ends, however it ends, so a killed
process leaves no stale lock. The file says who holds it, and is empty otherwise.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import shlex
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from .atomic import refuse_all_but

_held: dict[tuple[int, int], tuple[int, int]] = {}
"""(device, inode) of a lock file -> its descriptor, and how often this process holds it."""
_change = RLock()


@contextmanager
def hold(folder: str | Path) -> Iterator[None]:
    """Hold ``folder``, which is created if missing. A process may hold the same folder several times.

    Raises ValueError at once, naming the other process, if another process holds it.
    """
    path = Path(folder) / ".lock"
    with _change:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            refuse_all_but(stat.S_ISREG, path, "regular file")
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ValueError(f"{folder}: this folder cannot be made or written to: {error.strerror}") from None
        about = os.fstat(opened)
        key = about.st_dev, about.st_ino
        descriptor, count = _held.get(key, (opened, 0))
        try:
            if not count:
                _lock(opened, path.parent)
        except BaseException:
            os.close(opened)
            raise
        if count:
            os.close(opened)
        _held[key] = descriptor, count + 1
    try:
        yield
    finally:
        with _change:
            descriptor, count = _held.pop(key)
            if count > 1:
                _held[key] = descriptor, count - 1
            else:
                os.ftruncate(descriptor, 0)
                os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(descriptor)
        raise ValueError(f"{folder} is in use by {holder}: wait until it has finished, or stop it") from None
    about = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": shlex.join(sys.argv),
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    with suppress(OSError):  # on a full disk the lock holds all the same, without a name
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(about).encode())


def _holder(descriptor: int) -> str:
    """Who holds the lock, as its file says; the holder may not have written it yet."""
    try:
        about = json.loads(os.pread(descriptor, 1 << 16, 0))
        where = "" if about["host"] == socket.gethostname() else f" on {about['host']}"
        text = f"process {about['pid']}{where} ({about['command'][:200]}), started {about['started']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
    return "".join(letter if letter.isprintable() else "?" for letter in text)
