"""Attacks on the sandbox, written as programs: each tries something real on a small scale and prints STOPPED or THROUGH.

`selftest` runs them before a sandbox serves; the tests run them one by one. An attack is stopped if it says so, or if
it aims at a limit and that limit ended it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from .limits import Limits
from .profile import SAFE_VARIABLES
from .worker import Job, Outcome

ATTACK_SECONDS = 10.0  # not the limit under test, which may be too short for an attack to show anything
_PRELUDE = """
import os, sys, time
def attempt(what, action):
    try:
        got = action()
    except BaseException as error:
        print("STOPPED", what, type(error).__name__, flush=True)
    else:
        print("THROUGH", what, repr(got)[:80], flush=True)
"""


@dataclass(frozen=True)
class Attack:
    """A program, its limits, and how to tell from the outcome that it was stopped."""

    name: str
    source: str
    stopped: Callable[[Outcome], bool]
    wall_seconds: float = ATTACK_SECONDS
    cpu_seconds: int | None = None

    def job(self) -> Job:
        """Return a run without input."""
        return Job(
            _PRELUDE + self.source,
            {"rounds": 1},
            inputs=("",),
            wall_seconds=self.wall_seconds,
            cpu_seconds=self.cpu_seconds,
            tag=self,
        )


def said(outcome: Outcome) -> str:
    """Return what the attack printed."""
    return outcome.findings[0].partition(b"\n")[2].decode(errors="replace") if outcome.findings else ""


def _says_stopped(outcome: Outcome) -> bool:
    text = said(outcome)
    return "STOPPED" in text and "THROUGH" not in text


def _timed_out(outcome: Outcome) -> bool:
    return bool(outcome.ending.get("timed_out")) and "THROUGH" not in said(outcome)


def _out_of_cpu(outcome: Outcome) -> bool:
    return outcome.ending.get("exit") in (-24, -9) and outcome.ending["seconds"] < 30 and "THROUGH" not in said(outcome)


def _too_much_output(outcome: Outcome) -> bool:
    return bool(json.loads(outcome.findings[0].partition(b"\n")[0])["over"]) if outcome.findings else False


def attacks(limits: Limits, *, host_pid: int, port: int, abstract_name: str, packages: tuple[str, ...]) -> list[Attack]:
    """Return every attack, aimed at this host: its judge process, a listening TCP port, an abstract socket.

    `packages` are the packages that the sandbox may show.
    """
    values = {
        "PROCESSES": limits.processes - 1,
        "MEMORY": limits.memory_bytes,
        "TMP": limits.tmp_bytes,
        "FILES": limits.tmp_files,
        "HOST": host_pid,
        "PORT": port,
        "ABSTRACT": abstract_name,
        "SAFE": sorted(SAFE_VARIABLES),
        "PACKAGES": sorted([*packages, *[f"{name}.libs" for name in packages]]),
    }
    found = [Attack(name, _fill(source, values), _says_stopped) for name, source in _SOURCES.items()]
    found.append(Attack("infinite loop", "while True: pass", _out_of_cpu, wall_seconds=30.0, cpu_seconds=1))
    found.append(Attack("sleep forever", "time.sleep(3600)\nprint('THROUGH')", _timed_out, wall_seconds=0.2))
    found.append(Attack("infinite output", "while True: sys.stdout.write('x' * 65536)", _too_much_output))
    return found


def _fill(source: str, values: dict[str, object]) -> str:
    for name, value in values.items():
        source = source.replace(f"<{name}>", repr(value))
    return source


_SOURCES = {
    "fork bomb": """
count = 0
try:
    while count < 400:
        if os.fork() == 0:
            time.sleep(60)
        count += 1
except OSError:
    pass
print("STOPPED" if count <= <PROCESSES> else "THROUGH", count)
""",
    "memory bomb": """
import mmap
held = []
try:
    while sum(map(len, held)) < 4 * <MEMORY>:
        held.append(mmap.mmap(-1, 16 << 20))     # asked for, not touched: the limit is on the asking
except (MemoryError, OSError):
    pass
total = sum(map(len, held))
print("STOPPED" if total <= <MEMORY> else "THROUGH", total >> 20, "MiB")
""",
    "memory bomb of children": """
reader, writer = os.pipe()
for child in range(8):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        held = []
        try:
            while len(held) < <MEMORY> // 4 >> 20:
                held.append(b"x" * (1 << 20))
                os.write(writer, b"m")
        except MemoryError:
            pass
        time.sleep(60)
time.sleep(0.3)
os.set_blocking(reader, False)
try:
    total = len(os.read(reader, 1 << 16))
except BlockingIOError:
    total = 0
print("STOPPED" if total << 20 <= <MEMORY> else "THROUGH", total, "MiB")
""",
    "fill /tmp": """
def fill(folder):
    for number in range(3):
        with open(f"{folder}/{number}", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, <TMP> * 3 // 4)
attempt("three files of 3/4", lambda: fill("/tmp"))
""",
    "fill /dev/shm": """
def fill(folder):
    for number in range(3):
        with open(f"{folder}/{number}", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, <TMP> * 3 // 4)
attempt("three files of 3/4", lambda: fill("/dev/shm"))
""",
    "a file a name": "attempt('files', lambda: [os.mkdir(f'/tmp/{i}') for i in range(2 * <FILES>)])",
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
found = []
for fd in range(4096):
    try:
        os.fstat(fd)
    except OSError:
        continue
    found.append(fd)
print("STOPPED" if found == [0, 1, 2, 3, 4, 5] else "THROUGH", found)      # the standard three, two pipes, the input
""",
    "packages that were not named": """
import glob
bases = {os.path.dirname(os.__file__), "/usr/lib", "/usr/lib64", "/usr/local/lib", sys.prefix + "/lib"}
found = [path for base in bases for below in ("", "/python*") for kind in ("site", "dist")
         for path in glob.glob(f"{base}{below}/{kind}-packages/*")]
if os.path.isdir("/widen/site"):
    found += [name for name in os.listdir("/widen/site") if name not in <PACKAGES>]
print("THROUGH" if found else "STOPPED", found[:5])
""",
    "environment": "print('STOPPED' if set(os.environ) <= set(<SAFE>) else 'THROUGH', sorted(os.environ))",
    "network": """
import socket
def reach(family, address):
    with socket.socket(family) as line:
        line.settimeout(1)
        line.connect(address)
attempt("tcp", lambda: reach(socket.AF_INET, ("127.0.0.1", <PORT>)))
attempt("abstract", lambda: reach(socket.AF_UNIX, "\\0" + <ABSTRACT>))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("netlink", lambda: socket.socket(16, socket.SOCK_RAW))
attempt("pair", socket.socketpair)
""",
    "kill others": """
for pid in (<HOST>, os.getppid(), 1, 2, 3, -1):
    attempt(pid, lambda: os.kill(pid, 9))
""",
    "trace others": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    if getattr(libc, name)(*args) == -1:
        raise OSError(ctypes.get_errno(), name)
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
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    if getattr(libc, name)(*args) == -1:
        raise OSError(ctypes.get_errno(), name)
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
    "daemon": """
def leave():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
try:
    leave()
except OSError:
    print("STOPPED")
else:
    print("STOPPED" if <PROCESSES> else "THROUGH")
""",
    "run another program": """
try:
    import subprocess
    subprocess.run([sys.executable or "/bin/true", "-c", "0"])
except OSError:
    print("STOPPED")
else:
    print("STOPPED" if <PROCESSES> else "THROUGH")
""",
    "what the last program left": """
left = os.listdir("/tmp") + os.listdir("/dev/shm") + os.listdir(".")
for mark in ("/tmp/mark", "/dev/shm/other", "third"):
    open(mark, "w").close()
print("THROUGH" if left or not os.path.exists("/tmp/third") else "STOPPED", left)
""",
}
