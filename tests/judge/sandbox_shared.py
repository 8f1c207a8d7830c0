"""One open sandbox for all tests, because opening takes a while. Small limits keep every test short."""

import atexit
import functools
import os
import struct
import time
from dataclasses import replace
from pathlib import Path

from widen.judge import Assertions, Exchange, Limits, Program, Sandbox, StdinStdout, judge_programs, selftest

MIB = 1 << 20
LIMITS = Limits(
    wall_seconds=10.0, cpu_seconds=1, memory_bytes=512 * MIB, output_bytes=MIB // 16, tmp_bytes=MIB, tmp_files=64
)


@functools.cache
def shared() -> Sandbox:
    return _opened(Sandbox(limits=LIMITS, workers=2))


@functools.cache
def processes_allowed() -> Sandbox:
    return _opened(Sandbox(limits=replace(LIMITS, processes=4), workers=1))


def _opened(sandbox: Sandbox) -> Sandbox:
    sandbox.__enter__()
    atexit.register(sandbox.close)
    return sandbox


def assertions(source, *tests, sandbox=None, **more):
    """The verdict on one program with assertions."""
    program = Program(problem="p", source=source, tests=tests, **more)
    return judge_programs(Assertions(), [program], sandbox=sandbox or shared())[0]


def contest(source, *pairs, sandbox=None, **settings):
    """The verdict on one contest program."""
    program = Program(problem="p", source=source, tests=tuple(Exchange(a, b) for a, b in pairs))
    return judge_programs(StdinStdout(**settings), [program], sandbox=sandbox or shared())[0]


def only(monkeypatch, *names):
    """Let the next sandbox run only these attacks of its self-test, so that it opens quickly."""
    monkeypatch.setattr(selftest, "ATTACKS", {name: selftest.ATTACKS[name] for name in names})


def descendants(pid: int) -> set[int]:
    """Living processes below `pid`, zombies left out."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(folder.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def gone(pids: set[int], *, within: float) -> bool:
    """Whether none of the processes lives any more, waiting a little for the kernel."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def is_root() -> bool:
    return os.getuid() == 0


def framed(*bodies: bytes) -> bytes:
    """Messages as they travel between program and examiner."""
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def writes(*bodies: bytes) -> str:
    """A program that sends these messages to its examiner, whatever it is asked, and exits."""
    return f"import os\nrest = {framed(*bodies)!r}\nwhile rest:\n    rest = rest[os.write(4, rest):]\nos._exit(0)"
