"""Pid 1 of the sandbox: forks one process a program, keeps the clock, and sweeps up.

It reads fixed-size commands and nothing else. The program's text goes from the judge straight to the child that runs
it, the tests straight to the examiner (forked once and kept), and the findings straight back; so the memory that the
next program inherits by fork has never held a program, a test, an answer or an output.

    stdin    commands from the judge          stdout   how each program ended
    jobs     programs and inputs              exams    tests            findings  the examiner's reports
"""

from __future__ import annotations

import builtins
import fcntl
import gc
import os
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from . import confine, examiner, program, wire

COMMAND = struct.Struct(">BBHI")  # mode, packages wanted (bits), CPU seconds, wall milliseconds
SERVE, CONVERSE = 0, 1
GRACE_SECONDS = 1.0  # for the examiner to write its report once the program is dead
FEED_SECONDS = 30.0  # for a busy judge to write a large job: not counted as the program's time
_tried: set[str] = set()
_TERM = 256  # an examiner is replaced after so many programs, whatever it says
_PRELOADED = (
    "bisect",
    "collections",
    "copy",
    "functools",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "re",
    "string",
    "time",
    "typing",
)


class Setup(NamedTuple):
    """What the judge tells the zygote once."""

    bounds: confine.Bounds
    program_filter: confine.Filter
    examiner_filter: confine.Filter
    packages: tuple[str, ...]
    alone: bool  # a program is one process, so that killing it kills all of it
    jobs: int
    exams: int
    findings: int


class Lines(NamedTuple):
    """Pipes between program, examiner and zygote; they outlive the program, and are replaced if it leaves a byte in
    them.
    """

    to_program: tuple[int, int]
    to_examiner: tuple[int, int]
    output: tuple[int, int]
    begin: tuple[int, int]
    done: tuple[int, int]


class Examiner(NamedTuple):
    """The examiner at work."""

    pid: int
    lines: Lines


def main() -> NoReturn:
    """Set up, say "ready", then serve commands until the judge hangs up."""
    setup = _read_setup()
    confine.become_zygote()
    confine.fresh_tmp(setup.bounds, replace=False)
    _tidy()
    status = wire.Channel(0, 1)
    status.send({"ready": True, "version": sys.version.split()[0]})
    current, used = _hire(setup), 0
    while True:
        raw = os.read(0, COMMAND.size)  # written in one piece, and far below the size up to which pipes do not split
        if len(raw) != COMMAND.size:
            os._exit(0)
        mode, wanted, cpu_seconds, wall_ms = COMMAND.unpack(raw)
        if _preload(setup, wanted):
            _dismiss(current)
            current, used = _hire(setup), 0  # with the package in its memory too
        ending, healthy = _run(setup, current, mode, cpu_seconds, wall_ms)
        status.send(ending)
        if ending["examiner"] != 0:
            os._exit(3)  # a report may be cut short or a job half read: the judge starts a fresh sandbox
        confine.fresh_tmp(setup.bounds, replace=True)
        used += 1
        if not healthy or used == _TERM:
            _dismiss(current)
            current, used = _hire(setup), 0


def _read_setup() -> Setup:
    raw = wire.read_frame(0)
    sys.path[:] = [path for path in sys.path if path not in ("", os.environ.get("PYTHONPATH"))] + raw["path"]
    os.environ.pop("PYTHONPATH", None)
    sys.argv[:] = ["program"]
    for name in _PRELOADED:
        import_module(name)
    quitter = import_module("_sitebuiltins").Quitter
    for name in ("exit", "quit"):  # what `site` would have added
        setattr(builtins, name, quitter(name, "Ctrl-D"))
    return Setup(
        bounds=confine.Bounds(**raw["bounds"]),
        program_filter=confine.Filter.of(bytes.fromhex(raw["program_filter"])),
        examiner_filter=confine.Filter.of(bytes.fromhex(raw["examiner_filter"])),
        packages=tuple(raw["packages"]),
        alone=raw["alone"],
        jobs=raw["jobs"],
        exams=raw["exams"],
        findings=raw["findings"],
    )


def _tidy() -> None:
    """Collected and set aside: a collection in a child would write to, and so copy, every page it walks."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.disable()


def _hire(setup: Setup) -> Examiner:
    lines = Lines(*[os.pipe() for _ in Lines._fields])
    pid = confine.fork()
    if pid == 0:
        _child(lambda: _be_examiner(setup, lines))
    os.close(lines.begin[0])
    os.close(lines.done[1])  # the examiner's only: its death reads as an end of file
    return Examiner(pid, lines)


def _dismiss(current: Examiner) -> None:
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(current.pid, signal.SIGKILL)
        os.waitpid(current.pid, 0)
    lines = current.lines
    for fd in (*lines.to_program, *lines.to_examiner, *lines.output, lines.begin[1], lines.done[0]):
        os.close(fd)


def _run(setup: Setup, current: Examiner, mode: int, cpu_seconds: int, wall_ms: int) -> tuple[dict[str, Any], bool]:
    """One program: one child, one clock, no survivor; and whether the examiner and its pipes are fit for the next."""
    pid = confine.fork()
    if pid == 0:
        _child(lambda: _be_program(setup, current.lines, mode, cpu_seconds))
    os.write(current.lines.begin[1], struct.pack(">II", pid, mode))
    word, timed_out, seconds = _wait(pid, current, wall_ms / 1000)
    code, usage, swept = _sweep(pid, setup.alone)
    ending = {
        "exit": code,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss * 1024,
        "seconds": seconds,
        "timed_out": timed_out,
        "examiner": 1 if word in (b"", examiner.LOST) else 0,
        "swept": swept,
    }
    return ending, setup.alone and word == examiner.FIT and _empty(current.lines)


def _preload(setup: Setup, wanted: int) -> bool:
    """Import a heavy package here, once, when the first program asks for it: every later child then has it for free."""
    names = [name for bit, name in enumerate(setup.packages) if wanted >> bit & 1 and name not in _tried]
    for name in names:
        _tried.add(name)
        with suppress(Exception):  # the program that asked for it is the one to see why it does not load
            import_module(name)
    if names:
        _tidy()
    return bool(names)


def _wait(pid: int, current: Examiner, wall_seconds: float) -> tuple[bytes, bool, float]:
    """The examiner's last word, whether time ran out, and the seconds since the program had its job.

    At the deadline the program is killed, and the examiner has a moment to say how far it came.
    """
    done = current.lines.done[0]
    poller = select.poll()
    poller.register(done, select.POLLIN)
    poller.register(0, 0)  # only the judge's hanging up wakes us: commands that wait their turn do not
    started, timed_out = time.monotonic(), False
    deadline = started + FEED_SECONDS
    while True:
        ready = [fd for fd, _ in poller.poll(max(0.0, deadline - time.monotonic()) * 1000 + 1)]
        if 0 in ready:
            os._exit(0)
        if done in ready:
            word = os.read(done, 1)
            if word != examiner.STARTED:
                return word, timed_out, time.monotonic() - started
            started = time.monotonic()
            deadline = started + wall_seconds
        elif time.monotonic() >= deadline:
            os.kill(current.pid if timed_out else pid, signal.SIGKILL)
            deadline, timed_out = time.monotonic() + GRACE_SECONDS, True


def _sweep(pid: int, alone: bool) -> tuple[int, Any, int]:
    """Kill and reap the program; where it may have had children, everything in the namespace: pid 1 inherits every
    orphan, so none can hide.
    """
    usage: Any = None
    if alone:
        os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        return os.waitstatus_to_exitcode(status), usage, 0
    swept, code = -2, 0  # the program and the examiner are not counted
    while True:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            reaped, status, used = os.wait4(-1, 0)
        except ChildProcessError:
            return code, usage, swept
        swept += 1
        if reaped == pid:
            code, usage = os.waitstatus_to_exitcode(status), used


def _empty(lines: Lines) -> bool:
    """Whether the program left nothing in the pipes (asked, not read: its bytes must not enter this memory)."""
    return not any(
        any(fcntl.ioctl(line[0], termios.FIONREAD, b"\0\0\0\0"))
        for line in (lines.to_program, lines.to_examiner, lines.output)
    )


def _child(body: Callable[[], None]) -> NoReturn:
    """Never return into the zygote's loop, whatever happens."""
    code = 70
    try:
        body()
        code = 0
    finally:
        os._exit(code)


def _be_program(setup: Setup, lines: Lines, mode: int, cpu_seconds: int) -> None:
    job = wire.read_frame(setup.jobs)
    os.chdir("/tmp")  # here, not in the zygote: a working folder outlives the mount over it
    stdin = os.memfd_create("stdin") if mode == CONVERSE else -1
    kept = _keep([lines.to_program[0], lines.to_examiner[1], stdin], lines.output[1] if mode == CONVERSE else -1)
    for fd in (*kept[:2], 1):
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)  # the program before may have left a flag on a pipe that it shared with us
    confine.confine(setup.bounds, cpu_seconds=cpu_seconds, allowed=setup.program_filter)
    channel = wire.Channel(kept[0], kept[1])
    channel.send(["here"])  # the job is read to its end: whatever happens now, the next child finds the next job
    gc.enable()
    if "random" in job["source"]:
        _reseed()
    if mode == SERVE:
        program.serve(channel, job["source"])
    else:
        program.converse(channel, job["source"], job["inputs"], kept[2])


def _reseed() -> None:
    sys.modules["random"].seed()
    if "numpy" in sys.modules:
        import_module("numpy.random").seed()


def _be_examiner(setup: Setup, lines: Lines) -> None:
    gc.enable()
    ends = (
        lines.to_examiner[0],
        lines.to_program[1],
        lines.output[0],
        lines.begin[0],
        lines.done[1],
        setup.exams,
        setup.findings,
    )
    kept = _keep(list(ends), -1)
    os.set_blocking(kept[1], False)
    confine.confine(setup.bounds, cpu_seconds=3600, allowed=setup.examiner_filter)
    examiner.attend(*kept, limit=setup.bounds.output_bytes)


def _keep(keep: list[int], stdout: int) -> list[int]:
    """Descriptors 0, 1, 2 to nowhere (or stdout to its pipe), the kept ones to 3, 4, ..., every other closed."""
    nowhere = os.open("/dev/null", os.O_RDWR)
    high = [os.dup2(fd, 100 + i) if fd >= 0 else -1 for i, fd in enumerate(keep)]
    for fd in range(3):
        os.dup2(stdout if fd == 1 and stdout >= 0 else nowhere, fd)
    low = [os.dup2(fd, 3 + i) if fd >= 0 else -1 for i, fd in enumerate(high)]
    os.closerange(3 + sum(fd >= 0 for fd in low), 256)
    return low


if __name__ == "__main__":
    main()
