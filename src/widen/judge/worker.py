"""One bubblewrap with one zygote in it, as the judge sees it: jobs go in, endings and findings come out, and it can
be killed at any moment.

Nothing here blocks: writes wait in buffers and `Sandbox` asks which descriptors are ready. Jobs may be queued ahead;
the zygote takes them one at a time.
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
_BOOT = "from inside.zygote import main; main()"


@dataclass(frozen=True, eq=False)  # one job is one run: two with the same text are two
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
    """How a job ended: the zygote's account, the examiner's findings, and whether the sandbox was lost over it."""

    ending: Mapping[str, Any]
    findings: tuple[bytes, ...]
    lost: str = ""
    out_of_memory: bool = False


@dataclass
class _Pipe:
    fd: int
    waiting: bytearray = field(default_factory=bytearray)


class Worker:
    """A running sandbox; `number` picks its user."""

    def __init__(self, *, bwrap: str, interpreter: Interpreter, limits: Limits, number: int) -> None:
        self.limits, self.interpreter = limits, interpreter
        # One submodule is worth keeping warm too: `scipy.special` takes 130 ms to import, and is what programs mean
        # by scipy.
        self._importable = (*interpreter.packages, *(("scipy.special",) if "scipy" in interpreter.packages else ()))
        self.group: MemoryGroup | None = memory_group(limits.memory_bytes + limits.tmp_bytes + _OVERHEAD_BYTES)
        self.ready = False
        self.in_flight: deque[tuple[int, Job]] = deque()
        self.head_since = time.monotonic()
        self._serial = 0
        self._oom_seen = 0
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
            "options": profile.bubblewrap_options(tmp_bytes=self.limits.tmp_bytes, seccomp_fd=walls[0]),
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
        """Queue one job."""
        frame = _job_frame(job, self.limits)
        if not self.in_flight:
            self.head_since = time.monotonic()
        self._serial += 1
        self.in_flight.append((self._serial, job))
        self._write(self.jobs, frame)
        self._write(self.exams, json.dumps({**job.exam, "serial": self._serial}).encode())
        wanted = sum(1 << bit for bit, name in enumerate(self._importable) if name in job.source)
        wall_ms = round(1000 * (job.wall_seconds or self.limits.wall_seconds))
        self.control.waiting += COMMAND.pack(job.mode, wanted, job.cpu_seconds or self.limits.cpu_seconds, wall_ms)
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
        """Jobs that have ended since, and whether the sandbox still lives."""
        alive = _read_all(self.status, self._status_bytes)
        _read_all(self.findings, self._findings_bytes)
        for frame in _frames(self._findings_bytes):
            head, _, _ = frame.partition(b"\n")
            self._findings.setdefault(json.loads(head)["serial"], []).append(frame)
        ended = []
        for frame in _frames(self._status_bytes):
            message = json.loads(frame)
            if message.get("ready"):
                self.ready, self.head_since = True, time.monotonic()
                continue
            serial, job = self.in_flight.popleft()
            self.head_since = time.monotonic()
            ended.append((job, Outcome(message, tuple(self._findings.pop(serial, ())), out_of_memory=self._ran_out())))
            alive = alive and message["examiner"] == 0
        return ended, alive

    def _ran_out(self) -> bool:
        now = self.group.kills() if self.group is not None else 0
        grown, self._oom_seen = now > self._oom_seen, now
        return grown

    def lose(self) -> Outcome:
        """The outcome of the job at hand when the sandbox itself died or had to be killed."""
        return Outcome({}, (), lost=self.errors() or "the sandbox ended", out_of_memory=self._ran_out())

    def overdue(self, now: float) -> bool:
        """Whether the job at hand has outlived every limit, which a working zygote does not let happen."""
        if not self.ready:
            return now - self.head_since > _START_SECONDS
        if not self.in_flight:
            return False
        wall = self.in_flight[0][1].wall_seconds or self.limits.wall_seconds
        return now - self.head_since > FEED_SECONDS + wall + 2 * GRACE_SECONDS + _SLACK_SECONDS

    def errors(self) -> str:
        """What bubblewrap or the zygote said on stderr."""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip()

    def close(self) -> None:
        """End it: pid 1 leaves when we hang up, and the kernel ends every process of its namespace with it; what does
        not obey is killed.
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
    largest = max((len(text.encode("utf-8", "surrogatepass")) for text in job.inputs or ()), default=0)
    if len(frame) > FRAME_LIMIT or largest > limits.tmp_bytes:
        legal = f"at most {FRAME_LIMIT}, and an input at most tmp_bytes={limits.tmp_bytes}"
        raise ValueError(f"a job of {len(frame)} bytes with an input of {largest} bytes: {legal}")
    return frame


def _read_all(fd: int, into: bytearray) -> bool:
    """Everything that lies in the pipe; False at its end."""
    try:
        while chunk := os.read(fd, 1 << 16):
            into += chunk
    except BlockingIOError:
        return True
    return False


def _frames(buffer: bytearray) -> list[bytes]:
    """Whole frames, taken out of the buffer."""
    frames = []
    while len(buffer) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(buffer)
        if len(buffer) < _LENGTH.size + length:
            break
        frames.append(bytes(buffer[_LENGTH.size : _LENGTH.size + length]))
        del buffer[: _LENGTH.size + length]
    return frames
