"""One running sandbox, as the judge sees it: jobs go in, endings and findings come out.

Nothing here blocks: writes wait in buffers, and `Sandbox` polls the descriptors. Jobs may be queued; the zygote takes
one at a time. The worker may be killed at any moment.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import profile, seccomp, syscalls
from .cgroup import MemoryGroup, memory_group
from .inside.wire import FRAME_LIMIT
from .inside.zygote import COMMAND, CONVERSE, FEED_SECONDS, GRACE_SECONDS, SERVE
from .interpreter import SITE, Interpreter
from .limits import Limits

_LENGTH = struct.Struct(">I")
_START_SECONDS = 60.0
_SLACK_SECONDS = 5.0
_GOODBYE_SECONDS = 1.0
_OVERHEAD_BYTES = 192 << 20  # zygote, examiner's interpreter, kernel memory
_JOB_BYTES = 64 << 20  # largest job
_BOOT = "from inside.zygote import main; main()"


@dataclass(frozen=True, eq=False)  # compared by identity: two jobs with the same text are two runs
class Job:
    """One run: a program with the code of its tests (SERVE) or with inputs (CONVERSE)."""

    source: str
    exam: Mapping[str, Any]
    inputs: tuple[str, ...] | None = None
    wall_seconds: float | None = None
    cpu_seconds: int | None = None
    tag: Any = None

    @property
    def mode(self) -> int:
        """CONVERSE with inputs, SERVE without."""
        return SERVE if self.inputs is None else CONVERSE


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Args:
        ending: the zygote's account; empty if there is none.
        findings: the examiner's reports.
        lost: why the sandbox died during this job, if it did.
        refused: why the job was not run, if it was not.
        out_of_memory: the kernel killed a process of the sandbox because memory ran out.
    """

    ending: Mapping[str, Any]
    findings: tuple[bytes, ...]
    lost: str = ""
    refused: str = ""
    out_of_memory: bool = False


@dataclass
class _Pipe:
    fd: int
    waiting: bytearray = field(default_factory=bytearray)


class Worker:
    """A running sandbox; `number` chooses its user."""

    def __init__(self, *, bwrap: str, interpreter: Interpreter, limits: Limits, number: int) -> None:
        self.limits, self.interpreter = limits, interpreter
        # `scipy.special` takes 130 ms to import and is what most programs want from scipy: preload it too.
        self._importable = (*interpreter.packages, *(("scipy.special",) if "scipy" in interpreter.packages else ()))
        self.group: MemoryGroup | None = memory_group(limits.memory_bytes + limits.tmp_bytes + _OVERHEAD_BYTES)
        self.ready = False
        self.in_flight: deque[tuple[int, Job]] = deque()
        self.head_since = time.monotonic()
        self._serial = 0
        self._oom_seen = 0
        self._broken = ""
        self._findings: dict[int, list[bytes]] = {}
        self._status_bytes, self._findings_bytes = bytearray(), bytearray()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._start(bwrap, number)

    def _start(self, bwrap: str, number: int) -> None:
        arch = syscalls.machine()
        alone = self.limits.processes == 1
        control, status, jobs, exams, findings, walls = (os.pipe() for _ in range(6))
        os.write(walls[1], seccomp.zygote_filter(arch))
        os.close(walls[1])
        plan = {
            "bwrap": bwrap,
            "options": profile.bubblewrap_options(
                tmp_bytes=self.limits.tmp_bytes, seccomp_fd=walls[0], hidden=self.interpreter.hidden
            ),
            "binds": self.interpreter.binds,
            "command": [self.interpreter.executable, "-S", "-s", "-B", "-X", "utf8", "-c", _BOOT],
            "uid": profile.worker_uid(number),
            "cgroup": None if self.group is None else str(self.group.folder),
        }
        launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")), json.dumps(plan)]
        inherited = (jobs[0], exams[0], findings[1], walls[0])
        self.process = subprocess.Popen(
            launcher, stdin=control[0], stdout=status[1], stderr=self._errors, pass_fds=inherited, env={}, cwd="/"
        )
        for fd in (control[0], status[1], *inherited):
            os.close(fd)
        self.control, self.jobs, self.exams = _Pipe(control[1]), _Pipe(jobs[1]), _Pipe(exams[1])
        self.status, self.findings = status[0], findings[0]
        for fd in (control[1], jobs[1], exams[1], status[0], findings[0]):
            os.set_blocking(fd, False)
        setup = {"bounds": self.limits.bounds(), "packages": self._importable, "path": [SITE], "alone": alone}
        setup |= {
            "program_filter": seccomp.program_filter(arch, processes=not alone).hex(),
            "examiner_filter": seccomp.examiner_filter(arch).hex(),
        }
        setup |= {"jobs": jobs[0], "exams": exams[0], "findings": findings[1]}
        self._write(self.control, json.dumps(setup).encode())

    def submit(self, job: Job) -> None:
        """Queue one job; raises, and queues nothing, if the job cannot be sent."""
        frame = _job_frame(job, self.limits)
        exam = json.dumps({**job.exam, "serial": self._serial + 1}).encode()
        wanted = sum(1 << bit for bit, name in enumerate(self._importable) if name in job.source)
        wall_ms = round(1000 * (job.wall_seconds or self.limits.wall_seconds))
        command = COMMAND.pack(job.mode, wanted, job.cpu_seconds or self.limits.cpu_seconds, wall_ms)
        if not self.in_flight:
            self.head_since = time.monotonic()
        self._serial += 1
        self.in_flight.append((self._serial, job))
        self._write(self.jobs, frame)
        self._write(self.exams, exam)
        self.control.waiting += command
        self.flush()

    def _write(self, pipe: _Pipe, payload: bytes) -> None:
        pipe.waiting += _LENGTH.pack(len(payload)) + payload

    def flush(self) -> None:
        """Write what the pipes take."""
        for pipe in (self.control, self.jobs, self.exams):
            try:
                while pipe.waiting:
                    del pipe.waiting[: os.write(pipe.fd, pipe.waiting[:65536])]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                pipe.waiting.clear()

    def writing(self) -> list[int]:
        """Descriptors with bytes still to go."""
        return [pipe.fd for pipe in (self.control, self.jobs, self.exams) if pipe.waiting]

    def collect(self) -> tuple[list[tuple[Job, Outcome]], bool]:
        """Return the jobs that have ended since, and whether the sandbox is still usable.

        A sandbox that sends anything malformed is not.
        """
        alive = _read_all(self.status, self._status_bytes)
        _read_all(self.findings, self._findings_bytes)
        ended: list[tuple[Job, Outcome]] = []
        try:
            for frame in _frames(self._findings_bytes):
                head, _, _ = frame.partition(b"\n")
                self._findings.setdefault(int(json.loads(head)["serial"]), []).append(frame)
            for frame in _frames(self._status_bytes):
                message = json.loads(frame)
                if message.get("ready"):
                    self.ready, self.head_since = True, time.monotonic()
                    continue
                usable = message["examiner"] == 0
                serial, job = self.in_flight.popleft()
                self.head_since = time.monotonic()
                found = tuple(self._findings.pop(serial, ()))
                ended.append((job, Outcome(message, found, out_of_memory=self._ran_out())))
                alive = alive and usable
        except Exception as error:
            self._broken = f"the sandbox sent a malformed message: {type(error).__name__}: {error}"[:400]
        return ended, alive and not self._broken

    def _ran_out(self) -> bool:
        now = self.group.kills() if self.group is not None else 0
        grown, self._oom_seen = now > self._oom_seen, now
        return grown

    def lose(self) -> Outcome:
        """Return the outcome of the current job when the sandbox itself died or had to be killed."""
        why = self._broken or self.errors() or "the sandbox ended"
        return Outcome({}, (), lost=why, out_of_memory=self._ran_out())

    def overdue(self, now: float) -> bool:
        """Return whether the current job has outlived every limit: a working zygote would have ended it."""
        if not self.ready:
            return now - self.head_since > _START_SECONDS
        if not self.in_flight:
            return False
        wall = self.in_flight[0][1].wall_seconds or self.limits.wall_seconds
        return now - self.head_since > FEED_SECONDS + wall + 2 * GRACE_SECONDS + _SLACK_SECONDS

    def errors(self) -> str:
        """Return what bubblewrap or the zygote wrote to stderr."""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip()

    def close(self) -> None:
        """End the sandbox.

        Pid 1 exits when its pipes close, and the kernel then kills every process of its namespace. A bubblewrap that
        does not exit in time is killed.
        """
        for fd in (self.control.fd, self.jobs.fd, self.exams.fd, self.status, self.findings):
            os.close(fd)
        try:
            self.process.wait(timeout=_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._errors.close()
        if self.group is not None:
            self.group.close()


def _job_frame(job: Job, limits: Limits) -> bytes:
    body = {"source": job.source} if job.inputs is None else {"source": job.source, "inputs": job.inputs}
    frame = json.dumps(body).encode()
    if len(frame) > _JOB_BYTES:
        raise ValueError(f"source and inputs take {len(frame)} bytes; at most {_JOB_BYTES} can be sent")
    largest = max((len(text.encode("utf-8", "surrogatepass")) for text in job.inputs or ()), default=0)
    if largest > limits.tmp_bytes:
        raise ValueError(f"an input of {largest} bytes exceeds tmp_bytes={limits.tmp_bytes}")
    return frame


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
    while len(buffer) >= start + _LENGTH.size:
        (length,) = _LENGTH.unpack_from(buffer, start)
        if length > FRAME_LIMIT:
            raise ValueError(f"a frame of {length} bytes; at most {FRAME_LIMIT} is legal")
        end = start + _LENGTH.size + length
        if len(buffer) < end:
            break
        frames.append(bytes(buffer[start + _LENGTH.size : end]))
        start = end
    del buffer[:start]
    return frames
