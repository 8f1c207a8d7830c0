"""Attack a sandbox before it serves; if one attack gets through, the sandbox refuses to serve.

These attacks test what depends on the machine: kernel, bubblewrap, installed files. Each is a program that tries
something real on a small scale. It collects what succeeded in `through` and must print STOPPED alone.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from .profile import SAFE_VARIABLES, SandboxUnavailable
from .worker import Job, Outcome

if TYPE_CHECKING:
    from .sandbox import Sandbox

_SECONDS = 10.0  # not the limit under test, which may be too short for an attack to show anything
_TWICE = "what the last program left"  # shows something only if one worker runs it twice
_PRELUDE = """
import ctypes, mmap, os, socket, sys, time
through = []
def attempt(what, action):
    try:
        through.append(f"{what}: {action()!r}"[:80])
    except BaseException:
        pass
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    if getattr(libc, name)(*args) == -1:
        raise OSError(ctypes.get_errno(), name)
"""
ATTACKS = {
    "fork bomb": """
count = 0
try:
    while count < 400:
        if os.fork() == 0:
            time.sleep(60)
        count += 1
except OSError:
    pass
if count >= PROCESSES: through.append(f"{count} children")
""",
    "memory bomb": """
held = []
try:
    while len(held) << 24 < 4 * MEMORY:
        held.append(mmap.mmap(-1, 16 << 20))  # asked for, not touched: the limit is on the asking
except (MemoryError, OSError):
    pass
if len(held) << 24 > MEMORY: through.append(f"{16 * len(held)} MiB")
""",
    "fill /tmp": """
for folder in ("/tmp", "/dev/shm", "/tmp"):
    with open(f"{folder}/{time.monotonic()}", "wb") as file:
        attempt(folder, lambda: os.posix_fallocate(file.fileno(), 0, TMP * 3 // 4))
if len(through) < 2: through.clear()  # the first file fits
""",
    "a file a name": "attempt('files', lambda: [os.mkdir(f'/tmp/{i}') for i in range(2 * FILES)])",
    "write outside": """
folders = ("", "/usr", "/usr/lib", "/etc", "/dev", "/root", "/home", "/widen", "/widen/code/inside", sys.prefix)
for place in [folder + "/x" for folder in folders] + [os.__file__]:
    attempt(place, lambda: open(place, "w"))
attempt("remove", lambda: os.unlink(os.__file__))
""",
    "read secrets": """
for place in ("/etc/passwd", "/etc/shadow", "/proc/1/environ", "/proc/self/environ", "/proc/self/maps", "/sys/kernel"):
    attempt(place, lambda: open(place, "rb").read())
for place in ("/proc", "/sys", "/home", "/var", "/run", "/mnt", "/srv", "/opt"):
    attempt(place, lambda: os.listdir(place) or 1 / 0)
""",
    "inherited descriptors": """
for fd in range(6, 4096):  # the standard three, two pipes and the input are the program's own
    attempt(fd, lambda: os.fstat(fd))
""",
    "packages that were not named": """
import glob
bases = {os.path.dirname(os.__file__), "/usr/lib", "/usr/lib64", "/usr/local/lib", sys.prefix + "/lib"}
through += [path for base in bases for below in ("", "/python*") for kind in ("site", "dist")
            for path in glob.glob(f"{base}{below}/{kind}-packages/*")]
if os.path.isdir("/widen/site"):
    through += [name for name in os.listdir("/widen/site") if name.removesuffix(".libs") not in PACKAGES]
""",
    "environment": "through += set(os.environ) - SAFE",
    "network": """
def reach(family, address):
    with socket.socket(family) as line:
        line.settimeout(1)
        line.connect(address)
attempt("tcp", lambda: reach(socket.AF_INET, ("127.0.0.1", PORT)))
attempt("abstract", lambda: reach(socket.AF_UNIX, chr(0) + ABSTRACT))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("netlink", lambda: socket.socket(16, socket.SOCK_RAW))
attempt("pair", socket.socketpair)
""",
    "kill others": """
for pid in (HOST, os.getppid(), 1, 2, 3, -1):
    attempt(pid, lambda: os.kill(pid, 9))
""",
    "trace others": """
for pid in (1, 2, os.getppid()):
    attempt("attach", lambda: call("ptrace", 16, pid, 0, 0))
    attempt("seize", lambda: call("ptrace", 0x4206, pid, 0, 0))
    here = there = ctypes.create_string_buffer(16)
    attempt("read", lambda: call("process_vm_readv", pid, here, 1, there, 1, 0))
    attempt("limit", lambda: call("prlimit", pid, 7, ctypes.create_string_buffer(16), None))
    attempt("pidfd", lambda: os.pidfd_open(pid))
attempt("traceme", lambda: call("ptrace", 0, 0, 0, 0))
""",
    "namespaces and mounts": """
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000):
    attempt(f"unshare {flag:x}", lambda: call("unshare", flag))
attempt("mount", lambda: call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None))
attempt("umount", lambda: call("umount2", b"/tmp", 2))
attempt("chroot", lambda: os.chroot("/tmp"))
attempt("setuid", lambda: os.setuid(0))
attempt("keys", lambda: call("syscall", 248, b"user", b"a", b"b", 1, -3))
attempt("memory file", lambda: os.memfd_create("x"))
attempt("queue", lambda: call("msgget", 1234, 0o1600))
attempt("shared memory", lambda: call("shmget", 1234, 4096, 0o1600))
attempt("io_uring", lambda: call("syscall", 425, 8, ctypes.create_string_buffer(120)))
""",
    "run another program": """
import subprocess
if PROCESSES == 1: attempt("exec", lambda: subprocess.run([sys.executable or "/bin/true", "-c", "0"]))
""",
    _TWICE: """
through += os.listdir("/tmp") + os.listdir("/dev/shm") + os.listdir(".")
for mark in ("/tmp/mark", "/dev/shm/other", "third"):
    open(mark, "w").close()
if not os.path.exists("/tmp/third"): through.append("the working folder is not /tmp")
""",
}


def attack_ourselves(sandbox: Sandbox) -> tuple[str, ...]:
    """Run every attack and return the names; raise SandboxUnavailable if one gets through."""
    abstract = f"widen-{secrets.token_hex(8)}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        for listener, address in ((tcp, ("127.0.0.1", 0)), (unix, f"\0{abstract}")):
            with suppress(OSError):  # the host may have no network
                listener.bind(address)
                listener.listen()
        port = tcp.getsockname()[1] or 9
        names = [*ATTACKS, *[_TWICE] * sandbox.workers * (_TWICE in ATTACKS)]
        jobs = deque(attack(name, sandbox, port=port, abstract=abstract) for name in names)
        through = [f"{job.tag} ({_seen(outcome)})" for job, outcome in sandbox.stream(jobs) if not stopped(outcome)]
    if through:
        raise SandboxUnavailable(
            f"the sandbox does not hold, and is not used; attacks that got through: {'; '.join(sorted(set(through)))}"
        )
    return tuple(ATTACKS)


def attack(name: str, sandbox: Sandbox, *, port: int = 9, abstract: str = "nobody") -> Job:
    """Return one attack, aimed at this process, a TCP port of this machine and the name of an abstract socket."""
    limits = sandbox.limits
    aim = {
        "PROCESSES": limits.processes,
        "MEMORY": limits.memory_bytes,
        "TMP": limits.tmp_bytes,
        "FILES": limits.tmp_files,
        "HOST": os.getpid(),
        "PORT": port,
        "ABSTRACT": abstract,
        "SAFE": set(SAFE_VARIABLES),
        "PACKAGES": sandbox.interpreter.packages,
    }
    values = "\n".join(f"{key} = {value!r}" for key, value in aim.items())
    source = values + _PRELUDE + ATTACKS[name] + "\nprint(*through[:3] or ['STOPPED'], sep='; ')"
    exam = {"outputs": ["STOPPED"], "tolerance": 0.0, "ignore_case": False}
    return Job(source, exam, inputs=("",), wall_seconds=_SECONDS, tag=name)


def stopped(outcome: Outcome) -> bool:
    """Return whether an attack achieved nothing."""
    return outcome.report is not None and outcome.report["status"] == "passed"


def _seen(outcome: Outcome) -> str:
    return outcome.fault or (outcome.report or {}).get("detail") or str(dict(outcome.ending))
