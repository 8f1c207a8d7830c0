"""A sandbox whose jobs run on the nodes of a Ray cluster, each inside a `Sandbox` of that node.

It takes the place of a `Sandbox` in `judge_programs` and `run_checker`: verdicts come back to this process, which appends them to its file
by content. Ray runs a shard again on another node if its node dies. Nodes need widen, bubblewrap and the same Python and packages.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .interpreter import find_interpreter
from .limits import Limits
from .sandbox import Sandbox
from .worker import Job, Outcome

SHARD = 64
"""Jobs of one task."""
RETRIES = 5
"""How often Ray runs a shard again after its node or process died."""

_open: dict[Limits, Sandbox] = {}  # in a process of Ray's: sandboxes stay open from task to task


class RaySandbox(Sandbox):
    """Jobs on the Ray cluster at `address` (``ray://head:10001``, ``head:6379``, ``auto``), `shard` of them per one-core task."""

    def __init__(self, address: str, *, limits: Limits | None = None, shard: int = SHARD) -> None:
        super().__init__(limits=limits)
        if shard < 1:
            raise ValueError(f"shard={shard!r}: at least 1")
        self.address, self.shard = address, shard
        self._connected = False

    def __enter__(self) -> RaySandbox:
        try:
            import ray
        except ImportError:
            raise ImportError("a Ray cluster needs ray: pip install 'widen[ray]'") from None
        self._interpreter = find_interpreter(self._python, self._packages)
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, logging_level="warning")
            self._connected = True
        self._run = ray.remote(num_cpus=1, max_retries=RETRIES)(run_shard)
        return self

    def close(self) -> None:
        """Leave the cluster if this object joined it."""
        if self._connected:
            import ray

            ray.shutdown()
            self._connected = False

    def stream(self, jobs: deque[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Run `jobs` and yield each with its outcome, shard by shard as they end. The caller may add jobs meanwhile."""
        import ray

        running: dict[Any, list[Job]] = {}
        most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        while jobs or running:
            while jobs and len(running) < most:
                shard = [jobs.popleft() for _ in range(min(self.shard, len(jobs)))]
                running[self._run.remote(self.limits, [replace(job, tag=None) for job in shard])] = shard
            (done,), _ = ray.wait(list(running), num_returns=1)
            node, versions, outcomes = ray.get(done)
            if versions != self.interpreter.versions:
                raise ValueError(
                    f"node {node} has {versions}, this machine {self.interpreter.versions}: they must agree"
                )
            yield from zip(running.pop(done), outcomes, strict=True)


def run_shard(limits: Limits, jobs: list[Job]) -> tuple[str, dict[str, str], list[Outcome]]:
    """On a node: run jobs in its sandbox; return its name, its versions and the outcomes in order."""
    if limits not in _open:
        _open[limits] = Sandbox(limits=limits, workers=1).__enter__()
    sandbox = _open[limits]
    ended = dict(sandbox.stream(deque(jobs)))
    return os.uname().nodename, sandbox.interpreter.versions, [ended[job] for job in jobs]
