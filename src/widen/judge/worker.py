"""One running sandbox, as the judge sees it: jobs go in, one at a time, and endings and reports come out.

Nothing here blocks: writes wait in buffers, and `Sandbox` polls the descriptors. The worker may be killed at any moment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import profile, seccomp
from .cgroup import MemoryGroup, memory_group
from .inside.wire import FRAME_LIMIT, JOB_LIMIT, LENGTH
from .inside.zygote import FEED_SECONDS, GRACE_SECONDS
from .interpreter import SITE, Interpreter
from .limits import Limits

_START_SECONDS = 60.0
_SLACK_SECONDS = 5.0
_GOODBYE_SECONDS = 1.0
_OVERHEAD_BYTES = 192 << 20  # zygote, examiner's interpreter, kernel memory
_BOOT = "from inside.zygote import main; main()"


@dataclass(frozen=True, eq=False)  # compared by identity: two jobs with the same text are two runs
class Job:
    """One run: a program, the exam for its examiner, and the program's inputs if it is run once per input.

    The program finds `files`, texts by name, in its working folder. `wall_seconds` and `cpu_seconds` replace the limits.
    """

    source: str
    exam: Mapping[str, Any]
    inputs: tuple[str, ...] | None = None
    wall_seconds: float | None = None
    cpu_seconds: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    tag: Any = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Args:
        ending: the zygote's account; empty if there is none.
        report: the examiner's report; None if there is none.
        fault: why the job did not run, or why its sandbox died; empty otherwise.
        out_of_memory: the kernel killed a process of the sandbox because memory ran out.
    """

    ending: Mapping[str, Any]
    report: Mapping[str, Any] | None = None
    fault: str = ""
    out_of_memory: bool = False


class Worker:
    """A running sandbox; `number` chooses its user."""

    def __init__(self, bwrap: str, interpreter: Interpreter, limits: Limits, number: int) -> None:
        self.limits = limits
        # `scipy.special` takes 130 ms to import and is what most programs want from scipy: preload it too.
        self._importable = (*interpreter.packages, *(("scipy.special",) if "scipy" in interpreter.packages else ()))
        self.group: MemoryGroup | None = memory_group(limits.memory_bytes + limits.tmp_bytes + _OVERHEAD_BYTES)
        self.ready = False
        self.job: Job | None = None
        self.since = time.monotonic()
        self.to_send, self._received = bytearray(), bytearray()
        self._report: Any = None
        self._oom_seen = 0
        self._broken = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        stdin, stdout, walls = (os.pipe() for _ in range(3))
        arch = seccomp.machine()
        os.write(walls[1], seccomp.zygote_filter(arch))
        plan = {
            "bwrap": bwrap,
            "options": profile.bubblewrap_options(
                tmp_bytes=limits.tmp_bytes, seccomp_fd=walls[0], hidden=interpreter.hidden
            ),
            "binds": interpreter.binds,
            "command": [interpreter.executable, "-S", "-s", "-B", "-X", "utf8", "-c", _BOOT],
            "uid": profile.worker_uid(number),
            "cgroup": None if self.group is None else str(self.group.folder),
        }
        launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")), json.dumps(plan)]
        self.process = subprocess.Popen(
            launcher, stdin=stdin[0], stdout=stdout[1], stderr=self._errors, pass_fds=(walls[0],), env={}, cwd="/"
        )
        for fd in (stdin[0], stdout[1], *walls):
            os.close(fd)
        self.stdin, self.stdout = stdin[1], stdout[0]
        for fd in (self.stdin, self.stdout):
            os.set_blocking(fd, False)
        alone = limits.processes == 1
        setup = {
            "bounds": limits.bounds(),
            "path": [SITE],
            "alone": alone,
            "program_filter": seccomp.program_filter(arch, processes=not alone).hex(),
            "examiner_filter": seccomp.examiner_filter(arch).hex(),
        }
        self._frame(json.dumps(setup))

    def submit(self, job: Job) -> None:
        """Start a job; raise ValueError if it cannot be sent."""
        inputs = {} if job.inputs is None else {"inputs": job.inputs}
        body = json.dumps({"source": job.source, "files": dict(job.files), **inputs})
        exam = json.dumps(job.exam)
        if (size := max(len(body), len(exam))) > JOB_LIMIT:
            raise ValueError(
                f"a program with its inputs, or its tests, take {size} bytes; at most {JOB_LIMIT} can be sent"
            )
        largest = max((len(text.encode("utf-8", "surrogatepass")) for text in job.inputs or ()), default=0)
        if largest > self.limits.tmp_bytes:
            raise ValueError(f"an input of {largest} bytes exceeds tmp_bytes={self.limits.tmp_bytes}")
        orders = {
            "packages": [name for name in self._importable if name in job.source],
            "cpu_seconds": job.cpu_seconds or self.limits.cpu_seconds,
            "wall_seconds": job.wall_seconds or self.limits.wall_seconds,
        }
        self.job, self.since = job, time.monotonic()
        for payload in (json.dumps(orders), body, exam):
            self._frame(payload)
        self.flush()

    def _frame(self, payload: str) -> None:
        self.to_send += LENGTH.pack(len(payload)) + payload.encode()

    def flush(self) -> None:
        """Write what the pipe takes."""
        try:
            while self.to_send:
                del self.to_send[: os.write(self.stdin, self.to_send[:65536])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.to_send.clear()

    def collect(self) -> tuple[Outcome | None, bool]:
        """Return the outcome of the job if it has ended, and whether the sandbox is still usable.

        A sandbox that sends anything malformed is not.
        """
        alive = _read_all(self.stdout, self._received)
        try:
            for frame in _frames(self._received):
                message = json.loads(frame)
                if message.get("ready"):
                    self.ready, self.since = True, time.monotonic()
                elif self.job is None or ("exit" not in message and self._report is not None):
                    raise ValueError("a message that nobody asked for")
                elif "exit" not in message:
                    self._report = message
                else:
                    report, self.job, self._report = self._report, None, None
                    return Outcome(message, report, out_of_memory=self._ran_out()), alive and message["examined"]
        except Exception as error:
            self._broken = f"the sandbox sent a malformed message: {type(error).__name__}: {error}"[:400]
        return None, alive and not self._broken

    def _ran_out(self) -> bool:
        now = self.group.kills() if self.group is not None else 0
        grown, self._oom_seen = now > self._oom_seen, now
        return grown

    def lose(self) -> Outcome:
        """Return the outcome of the current job if the sandbox itself died or had to be killed."""
        self._errors.seek(0)  # what bubblewrap or the zygote wrote to stderr
        said = self._errors.read()[-2000:].decode(errors="replace").strip()
        return Outcome({}, fault=self._broken or said or "the sandbox ended", out_of_memory=self._ran_out())

    def overdue(self, now: float) -> bool:
        """Return whether the current job has outlived every limit: a working zygote would have ended it."""
        if not self.ready:
            return now - self.since > _START_SECONDS
        if self.job is None:
            return False
        wall = self.job.wall_seconds or self.limits.wall_seconds
        return now - self.since > FEED_SECONDS + wall + 2 * GRACE_SECONDS + _SLACK_SECONDS

    def close(self) -> None:
        """End the sandbox.

        Pid 1 exits when its pipes close, and the kernel then kills every process of its namespace. A bubblewrap that
        does not exit in time is killed.
        """
        os.close(self.stdin)
        os.close(self.stdout)
        try:
            self.process.wait(timeout=_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._errors.close()
        if self.group is not None:
            self.group.close()


def _read_all(fd: int, into: bytearray) -> bool:
    """Append everything that is in the pipe; return False at its end."""
    try:
        while chunk := os.read(fd, 1 << 16):
            into += chunk
    except BlockingIOError:
        return True
    return False


def _frames(buffer: bytearray) -> list[bytes]:
    """Remove all complete frames from the buffer and return them."""
    frames, start = [], 0
    while len(buffer) >= start + LENGTH.size:
        (length,) = LENGTH.unpack_from(buffer, start)
        if length > FRAME_LIMIT:
            raise ValueError(f"a frame of {length} bytes; at most {FRAME_LIMIT} is legal")
        end = start + LENGTH.size + length
        if len(buffer) < end:
            break
        frames.append(bytes(buffer[start + LENGTH.size : end]))
        start = end
    del buffer[:start]
    return frames
