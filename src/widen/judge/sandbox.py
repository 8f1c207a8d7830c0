"""A pool of sandboxes that run judged programs.

The pool attacks itself when it opens, and refuses to open if one attack gets through.
"""

from __future__ import annotations

import os
import select
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import profile
from .interpreter import Interpreter, find_interpreter
from .limits import Limits
from .worker import Job, Outcome, Worker

_TRIES = 2


@dataclass(frozen=True)
class Protections:
    """Which protections hold, in words for a result file."""

    bubblewrap: str
    user: str
    memory: str
    attacks_stopped: tuple[str, ...]


class Sandbox:
    """Workers with one set of limits and one interpreter; a context manager, for use in one thread.

    Raises SandboxUnavailable without bubblewrap, without user namespaces, or if an attack of the self-test gets through.
    There is no unsafe mode.

    Args:
        python: path of the interpreter that programs run under (default: the running one); it may belong to a virtual
            environment.
        packages: packages of that interpreter that programs may import. List the packages that these import too.
        workers: sandboxes that run in parallel; use one per core.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        python: str | None = None,
        packages: tuple[str, ...] = ("numpy", "scipy"),
        workers: int = 2,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers={workers!r}: at least 1")
        self.limits = limits or Limits()
        self.workers = workers
        self._python, self._packages = python, packages
        self._pool: list[Worker] = []
        self._started = 0
        self._interpreter: Interpreter | None = None
        self._bwrap = ""
        self.protections: Protections | None = None

    def __enter__(self) -> Sandbox:
        from .selftest import attack_ourselves

        self._bwrap = profile.find_bubblewrap()
        self._interpreter = find_interpreter(self._python, self._packages)
        try:
            self._fill()
            stopped = attack_ourselves(self)
        except BaseException:
            self.close()
            raise
        user = f"uid {profile.worker_uid(0) or os.getuid()}, unprivileged"
        self.protections = Protections(self._bwrap, user, self._memory_protection(), stopped)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill every worker; nothing is left running."""
        while self._pool:
            self._pool.pop().close()

    @property
    def interpreter(self) -> Interpreter:
        """The interpreter that programs run under."""
        if self._interpreter is None:
            raise RuntimeError("the sandbox is not open: use it in a with statement")
        return self._interpreter

    def settings(self) -> dict[str, Any]:
        """Return the settings that a verdict depends on."""
        return {"limits": asdict(self.limits), **self.interpreter.versions}

    def stream(self, jobs: deque[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Run `jobs` and yield each with its outcome, in the order in which they end.

        The caller may add jobs to the deque meanwhile.
        """
        tries: Counter[Job] = Counter()
        try:
            while jobs or any(worker.job for worker in self._pool):
                self._fill()
                yield from self._feed(jobs) or self._turn(jobs, tries)
        finally:
            if any(worker.job for worker in self._pool):  # the caller stopped early
                self.close()

    def _fill(self) -> None:
        while len(self._pool) < self.workers:
            self._pool.append(Worker(self._bwrap, self.interpreter, self.limits, self._started % self.workers))
            self._started += 1

    def _feed(self, jobs: deque[Job]) -> list[tuple[Job, Outcome]]:
        """Give every idle worker a job; return the jobs that cannot be sent."""
        refused: list[tuple[Job, Outcome]] = []
        for worker in self._pool:
            while jobs and worker.job is None:
                job = jobs.popleft()
                try:
                    worker.submit(job)
                except Exception as error:  # one job that cannot be sent must not end the run
                    refused.append((job, Outcome({}, fault=f"not run: {error}")))
        return refused

    def _turn(self, jobs: deque[Job], tries: Counter[Job]) -> list[tuple[Job, Outcome]]:
        """Wait until a worker is ready, then write to and read from every worker once."""
        poller = select.poll()
        for worker in self._pool:
            poller.register(worker.stdout, select.POLLIN)
            if worker.to_send:
                poller.register(worker.stdin, select.POLLOUT)
        poller.poll(1000)
        ended: list[tuple[Job, Outcome]] = []
        for worker in list(self._pool):
            worker.flush()
            job = worker.job
            outcome, alive = worker.collect()
            if not alive or worker.overdue(time.monotonic()):
                lost = self._remove(worker)
                if outcome is None and job is not None:  # the sandbox died under this job: try it once more
                    tries[job] += 1
                    if tries[job] < _TRIES:
                        jobs.appendleft(job)
                    else:
                        outcome = replace(lost, fault=f"the sandbox died twice: {lost.fault}")
            if outcome is not None and job is not None:
                ended.append((job, outcome))
        return ended

    def _remove(self, worker: Worker) -> Outcome:
        outcome = worker.lose()
        self._pool.remove(worker)
        worker.close()
        if not worker.ready:
            raise profile.SandboxUnavailable(f"the sandbox does not start: {outcome.fault}")
        return outcome

    def _memory_protection(self) -> str:
        mib = self.limits.memory_bytes >> 20
        words = f"{self.limits.processes} processes of at most {mib // self.limits.processes} MiB each"
        if self.limits.processes == 1:
            words = f"fork refused, address space of the one process at most {mib} MiB"
        capped = self._pool[0].group is not None
        return f"{words}; {'a memory cgroup besides' if capped else 'no memory cgroup is ours here'}"
