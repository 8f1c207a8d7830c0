"""Pid 1 of the sandbox: forks a process per program, keeps the clock and cleans up.

    stdin    per job three frames: orders for the zygote, the program for its process, the tests for the examiner
    stdout   per job two frames: the examiner's report, then the zygote's account of how the program ended

Each process reads its own frame and no byte more. So the memory that the next program inherits by fork has never held
a program, a test, an answer or an output. One examiner serves many programs, because a fork takes most of a job's time.
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
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from . import confine, examiner, program, wire

GRACE_SECONDS = 1.0  # for the examiner to write its report once the program is dead
FEED_SECONDS = 30.0  # for a busy judge to write a large job; not counted as the program's time
_OWN_FILES = 64  # descriptors that the zygote needs; it uses about 20
_PRELOADED = "bisect collections copy functools heapq itertools json math operator random re string time typing"
_tried: set[str] = set()


class Examiner(NamedTuple):  # not a dataclass: that module imports `inspect`, which every fork would copy
    """The current examiner, its pipes (reader, writer) to the programs, the file of their output, and our two pipes."""

    pid: int
    to_program: tuple[int, int]
    to_examiner: tuple[int, int]
    output: int
    begin: int
    words: int


def main() -> NoReturn:
    """Set up, report "ready", then run jobs until the judge closes the pipe."""
    judge = wire.Channel(0, 1)
    setup = _set_up(judge.receive())
    confine.become_zygote()
    confine.fresh_tmp(setup["bounds"], replace=False)
    _tidy()
    judge.send({"ready": True})
    current = _hire(setup)
    while True:
        try:
            orders = judge.receive()
        except wire.Closed:
            os._exit(0)
        if _preload(orders["packages"]):
            _dismiss(current)
            current = _hire(setup)  # the new one has the package in memory too
        ending, fit = _run(setup, current, orders["cpu_seconds"], orders["wall_seconds"])
        judge.send(ending)
        if not ending["examined"]:
            os._exit(3)  # a report may be cut off, a job half read: the judge starts a fresh sandbox
        confine.fresh_tmp(setup["bounds"], replace=True)
        if not fit:
            _dismiss(current)
            current = _hire(setup)


def _set_up(setup: dict[str, Any]) -> dict[str, Any]:
    sys.path[:] = [path for path in sys.path if path not in ("", os.environ.get("PYTHONPATH"))] + setup["path"]
    os.environ.pop("PYTHONPATH", None)
    sys.argv[:] = ["program"]
    for name in _PRELOADED.split():
        import_module(name)
    quitter = import_module("_sitebuiltins").Quitter
    for name in ("exit", "quit"):  # what `site` would have added
        setattr(builtins, name, quitter(name, "Ctrl-D"))
    bounds = setup["bounds"]
    # Close what the judge left open, and forbid large descriptors: closing up to the limit then closes everything.
    _keep([], [0, 1, 2])
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


def _preload(packages: list[str]) -> bool:
    """Import a heavy package when the first program asks for it, so that every later child inherits it."""
    new = [name for name in packages if name not in _tried]
    for name in new:
        _tried.add(name)
        with suppress(Exception):  # the program imports it again and sees the error
            import_module(name)
    if new:
        _tidy()
    return bool(new)


def _hire(setup: dict[str, Any]) -> Examiner:
    to_program, to_examiner, begin, words = (os.pipe() for _ in range(4))
    output = os.memfd_create("stdout")
    ends = [to_examiner[0], to_program[1], output, begin[0], words[1], 0, 1]
    pid = _fork(lambda: _be_examiner(setup, ends))
    os.close(begin[0])
    os.close(words[1])  # only the examiner holds it: its death reads as an end of file
    return Examiner(pid, to_program, to_examiner, output, begin[1], words[0])


def _dismiss(current: Examiner) -> None:
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(current.pid, signal.SIGKILL)
        os.waitpid(current.pid, 0)
    for fd in (*current.to_program, *current.to_examiner, current.output, current.begin, current.words):
        os.close(fd)


def _run(
    setup: dict[str, Any], current: Examiner, cpu_seconds: int, wall_seconds: float
) -> tuple[dict[str, Any], bool]:
    """Run one program; return how it ended and whether the examiner and its pipes are fit for the next one."""
    pid = _fork(lambda: _be_program(setup, current, cpu_seconds))
    os.write(current.begin, examiner.BEGIN.pack(pid))
    word, timed_out, seconds = _wait(pid, current, wall_seconds)
    code, usage, swept = _sweep(pid, setup["alone"])
    ending = {
        "exit": code,
        "cpu": usage.ru_utime + usage.ru_stime,
        "seconds": seconds,
        "timed_out": timed_out,
        "examined": word != b"",
        "swept": swept,
    }
    return ending, setup["alone"] and word == examiner.FIT and _empty(current)


def _wait(pid: int, current: Examiner, wall_seconds: float) -> tuple[bytes, bool, float]:
    """Return the examiner's last word, whether time ran out, and the seconds since the program had its job.

    The program is killed at the deadline. The examiner then has GRACE_SECONDS to report before it is killed too.
    """
    poller = select.poll()
    poller.register(current.words, select.POLLIN)
    poller.register(0, 0)  # wake when the judge hangs up, not when the next job waits
    started, timed_out = time.monotonic(), False
    deadline = started + FEED_SECONDS
    while True:
        ready = [fd for fd, _ in poller.poll(max(0.0, deadline - time.monotonic()) * 1000 + 1)]
        now = time.monotonic()
        if 0 in ready:
            os._exit(0)
        if current.words in ready:
            word = os.read(current.words, 1)
            if word != examiner.STARTED:
                return word, timed_out, now - started
            started, deadline = now, now + wall_seconds
        elif now >= deadline:
            os.kill(current.pid if timed_out else pid, signal.SIGKILL)
            deadline, timed_out = now + GRACE_SECONDS, True


def _sweep(pid: int, alone: bool) -> tuple[int, Any, int]:
    """Kill and reap the program; if it may have had children, kill and reap everything in the pid namespace.

    Pid 1 inherits every orphan, so no process can hide. Returns exit code, usage, and how many others were killed.
    """
    if alone:
        os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        return os.waitstatus_to_exitcode(status), usage, 0
    ended: dict[int, tuple[int, Any]] = {}
    while True:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            reaped, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return (*ended[pid], len(ended) - 2)  # the program and the examiner are not counted
        ended[reaped] = os.waitstatus_to_exitcode(status), usage


def _empty(current: Examiner) -> bool:
    """Return whether the pipes are empty, without reading: the program's bytes must not enter this memory."""
    pipes = (current.to_program, current.to_examiner)
    return not any(any(fcntl.ioctl(reader, termios.FIONREAD, b"\0\0\0\0")) for reader, _ in pipes)


def _fork(body: Callable[[], None]) -> int:
    """Run `body` in a new process, which never returns into the zygote's loop; return its pid."""
    pid = confine.fork()
    if pid == 0:
        code = 70
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    return pid


def _be_program(setup: dict[str, Any], current: Examiner, cpu_seconds: int) -> None:
    job = wire.Channel(0, -1).receive(wire.JOB_LIMIT)
    os.chdir("/tmp")  # in the child: the zygote's own working folder would keep an old /tmp alive
    for name, text in job["files"].items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    nowhere, stdin = os.open("/dev/null", os.O_RDWR), os.memfd_create("stdin")
    stdout = current.output if "inputs" in job else nowhere
    reader, writer, stdin = _keep([current.to_program[0], current.to_examiner[1], stdin], [nowhere, stdout, nowhere])
    for fd in (reader, writer, 1):
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)  # the previous program may have set a flag on what is shared
    confine.confine(setup["bounds"], cpu_seconds=cpu_seconds, allowed=setup["program_filter"])
    channel = wire.Channel(reader, writer)
    channel.send(["here"])  # the job is read completely, and this process has closed the judge's pipe
    gc.enable()
    if "random" in job["source"]:
        sys.modules["random"].seed()
        if "numpy" in sys.modules:
            import_module("numpy.random").seed()
    if "inputs" in job:
        program.converse(channel, job["source"], job["inputs"], stdin)
    else:
        program.serve(channel, job["source"])


def _be_examiner(setup: dict[str, Any], ends: list[int]) -> None:
    gc.enable()
    kept = _keep(ends, [os.open("/dev/null", os.O_RDWR)] * 3)
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
