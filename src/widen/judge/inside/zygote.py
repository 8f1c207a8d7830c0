"""Pid 1 of the sandbox: forks one process per program, keeps the clock and cleans up.

The zygote itself reads fixed-size commands only. A program's text goes from the judge straight to the child that runs
it, the tests go straight to the examiner, and the examiner's reports go straight back. So the memory that the next
program inherits by fork has never held a program, a test, an answer or an output.

    stdin    commands from the judge          stdout   how each program ended
    jobs     programs and inputs              exams    tests            findings  the examiner's reports
"""

from __future__ import annotations

import _thread
import builtins
import fcntl
import gc
import os
import resource
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

COMMAND = struct.Struct(">BHI")  # packages wanted (bits), CPU seconds, wall milliseconds
GRACE_SECONDS = 1.0  # for the examiner to write its report once the program is dead
FEED_SECONDS = 30.0  # for a busy judge to write a large job; not counted as the program's time
_OWN_FILES = 64  # descriptors that the zygote needs; it uses about 20
_TERM = 64  # programs per examiner
_PRELOADED = "bisect collections copy functools heapq itertools json math operator random re string time typing"
_tried: set[str] = set()


class Examiner(NamedTuple):  # not a dataclass: that module imports `inspect`, which every fork would copy
    """The current examiner and the pipes (reader, writer) between it, the program and the zygote."""

    pid: int
    to_program: tuple[int, int]
    to_examiner: tuple[int, int]
    output: tuple[int, int]
    begin: int
    done: int


def main() -> NoReturn:
    """Set up, report "ready", then serve commands until the judge closes the pipe."""
    setup = _read_setup()
    confine.become_zygote()
    confine.fresh_tmp(setup["bounds"], replace=False)
    _tidy()
    status = wire.Channel(0, 1)
    status.send({"ready": True})
    current, used = _hire(setup), 0
    while True:
        raw = os.read(0, COMMAND.size)  # a pipe never splits so short a write
        if len(raw) != COMMAND.size:
            os._exit(0)
        wanted, cpu_seconds, wall_ms = COMMAND.unpack(raw)
        if _preload(setup, wanted):
            _dismiss(current)
            current, used = _hire(setup), 0  # the new one has the package in memory too
        ending, healthy = _run(setup, current, cpu_seconds, wall_ms / 1000)
        status.send(ending)
        if ending["examiner"] != 0:
            os._exit(3)  # a report may be cut off, a job half read: the judge starts a fresh sandbox
        confine.fresh_tmp(setup["bounds"], replace=True)
        used += 1
        if not healthy or used == _TERM:
            _dismiss(current)
            current, used = _hire(setup), 0


def _read_setup() -> dict[str, Any]:
    """Read what `Worker` sends at the start."""
    setup: dict[str, Any] = wire.Channel(0, -1).receive()
    sys.path[:] = [path for path in sys.path if path not in ("", os.environ.get("PYTHONPATH"))] + setup["path"]
    os.environ.pop("PYTHONPATH", None)
    sys.argv[:] = ["program"]
    for name in _PRELOADED.split():
        import_module(name)
    quitter = import_module("_sitebuiltins").Quitter
    for name in ("exit", "quit"):  # what `site` would have added
        setattr(builtins, name, quitter(name, "Ctrl-D"))
    bounds = setup["bounds"]
    # Descriptors arrive under whatever numbers the judge had. Move them to 3, 4, 5, close all others, and forbid large
    # numbers: from here on, closing up to the limit closes everything.
    pipes = ("jobs", "exams", "findings")
    setup.update(zip(pipes, _keep([setup[name] for name in pipes], [0, 1, 2])))  # noqa: B905 - Python 3.9
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(_OWN_FILES, bounds["open_files"]),) * 2)
    _thread.stack_size(bounds["thread_stack_bytes"])
    for name in ("program_filter", "examiner_filter"):
        code = bytes.fromhex(setup[name])
        setup[name] = confine.Filter(len(code) // 8, code)
    return setup


def _tidy() -> None:
    """Collect garbage, then freeze what is left: a collection in a child would copy every page that it touches."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.disable()


def _hire(setup: dict[str, Any]) -> Examiner:
    to_program, to_examiner, output, begin, done = (os.pipe() for _ in range(5))
    pid = confine.fork()
    if pid == 0:
        ends = [to_examiner[0], to_program[1], output[0], begin[0], done[1], setup["exams"], setup["findings"]]
        _child(lambda: _be_examiner(setup, ends))
    os.close(begin[0])
    os.close(done[1])  # only the examiner holds it: its death reads as an end of file
    return Examiner(pid, to_program, to_examiner, output, begin[1], done[0])


def _dismiss(current: Examiner) -> None:
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(current.pid, signal.SIGKILL)
        os.waitpid(current.pid, 0)
    for fd in (*current.to_program, *current.to_examiner, *current.output, current.begin, current.done):
        os.close(fd)


def _run(
    setup: dict[str, Any], current: Examiner, cpu_seconds: int, wall_seconds: float
) -> tuple[dict[str, Any], bool]:
    """Run one program; return how it ended and whether the examiner and its pipes are fit for the next one."""
    pid = confine.fork()
    if pid == 0:
        _child(lambda: _be_program(setup, current, cpu_seconds))
    os.write(current.begin, struct.pack(">I", pid))
    word, timed_out, seconds = _wait(pid, current, wall_seconds)
    code, usage, swept = _sweep(pid, setup["alone"])
    ending = {
        "exit": code,
        "cpu": usage.ru_utime + usage.ru_stime,
        "seconds": seconds,
        "timed_out": timed_out,
        "examiner": 1 if word in (b"", examiner.LOST) else 0,
        "swept": swept,
    }
    return ending, bool(setup["alone"]) and word == examiner.FIT and _empty(current)


def _preload(setup: dict[str, Any], wanted: int) -> bool:
    """Import a heavy package when the first program asks for it, so that every later child inherits it."""
    names = [name for bit, name in enumerate(setup["packages"]) if wanted >> bit & 1 and name not in _tried]
    for name in names:
        _tried.add(name)
        with suppress(Exception):  # the program imports it again and sees the error
            import_module(name)
    if names:
        _tidy()
    return bool(names)


def _wait(pid: int, current: Examiner, wall_seconds: float) -> tuple[bytes, bool, float]:
    """Return the examiner's last word, whether time ran out, and the seconds since the program had its job.

    The program is killed at the deadline. The examiner then has GRACE_SECONDS to report before it is killed too.
    """
    poller = select.poll()
    poller.register(current.done, select.POLLIN)
    poller.register(0, 0)  # wake when the judge hangs up, not when a command waits
    started, timed_out = time.monotonic(), False
    deadline = started + FEED_SECONDS
    while True:
        ready = [fd for fd, _ in poller.poll(max(0.0, deadline - time.monotonic()) * 1000 + 1)]
        if 0 in ready:
            os._exit(0)
        if current.done in ready:
            word = os.read(current.done, 1)
            if word != examiner.STARTED:
                return word, timed_out, time.monotonic() - started
            started = time.monotonic()
            deadline = started + wall_seconds
        elif time.monotonic() >= deadline:
            os.kill(current.pid if timed_out else pid, signal.SIGKILL)
            deadline, timed_out = time.monotonic() + GRACE_SECONDS, True


def _sweep(pid: int, alone: bool) -> tuple[int, Any, int]:
    """Kill and reap the program; if it may have had children, kill and reap everything in the pid namespace.

    Pid 1 inherits every orphan, so no process can hide.
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


def _empty(current: Examiner) -> bool:
    """Return whether the pipes are empty, without reading: the program's bytes must not enter this memory."""
    return not any(
        any(fcntl.ioctl(pipe[0], termios.FIONREAD, b"\0\0\0\0"))
        for pipe in (current.to_program, current.to_examiner, current.output)
    )


def _child(body: Callable[[], None]) -> NoReturn:
    """Run `body` and exit: a child never returns into the zygote's loop."""
    code = 70
    try:
        body()
        code = 0
    finally:
        os._exit(code)


def _be_program(setup: dict[str, Any], current: Examiner, cpu_seconds: int) -> None:
    job = wire.Channel(setup["jobs"], -1).receive(wire.JOB_LIMIT)
    os.chdir("/tmp")  # in the child: the zygote's own working folder would keep an old /tmp alive
    for name, text in job.get("files", {}).items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    nowhere = os.open("/dev/null", os.O_RDWR)
    wanted, stdout = [current.to_program[0], current.to_examiner[1]], nowhere
    if "inputs" in job:
        wanted, stdout = [*wanted, os.memfd_create("stdin")], current.output[1]
    kept = _keep(wanted, [nowhere, stdout, nowhere])
    for fd in (*kept[:2], 1):
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)  # the previous program may have set a flag on a shared pipe
    confine.confine(setup["bounds"], cpu_seconds=cpu_seconds, allowed=setup["program_filter"])
    channel = wire.Channel(kept[0], kept[1])
    channel.send(["here"])  # the job is read completely: the next child will find the next job
    gc.enable()
    if "random" in job["source"]:
        sys.modules["random"].seed()
        if "numpy" in sys.modules:
            import_module("numpy.random").seed()
    if "inputs" in job:
        program.converse(channel, job["source"], job["inputs"], kept[2])
    else:
        program.serve(channel, job["source"])


def _be_examiner(setup: dict[str, Any], ends: list[int]) -> None:
    gc.enable()
    kept = _keep(ends, [os.open("/dev/null", os.O_RDWR)] * 3)
    os.set_blocking(kept[1], False)
    confine.confine(setup["bounds"], cpu_seconds=3600, allowed=setup["examiner_filter"])
    examiner.attend(*kept, limit=setup["bounds"]["output_bytes"])


def _keep(keep: list[int], standard: list[int]) -> list[int]:
    """Make `standard` descriptors 0, 1, 2 and `keep` descriptors 3, 4, ...; close every other one."""
    wanted = [*standard, *keep]
    # First copy them all above the final numbers, so that no copy overwrites a descriptor that is still needed.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, len(wanted)) for fd in wanted]
    for number, fd in enumerate(high):
        os.dup2(fd, number)
    for fd in {*wanted, *high}:
        if fd >= len(wanted):
            os.close(fd)
    os.closerange(len(wanted), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    return list(range(3, len(wanted)))
