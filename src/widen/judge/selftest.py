"""Before a sandbox serves, it is attacked; if one attack gets through, it refuses to serve."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from .attacks import Attack, attacks, said
from .profile import SandboxUnavailable
from .worker import Job, Outcome

if TYPE_CHECKING:
    from .sandbox import Sandbox

_FORGERIES = {
    "forged verdict: leave with success": "import os\nprint('passed')\nos._exit(0)",
    "forged verdict: leave from inside a test": "import os\ndef f(x):\n    os._exit(0)",
    "forged verdict: write on every descriptor": """
import os, json, struct
def f(x):
    body = json.dumps({"passed": 1, "status": "passed", "kind": "", "detail": "", "serial": 1}).encode()
    for fd in range(64):
        try:
            os.write(fd, struct.pack(">I", len(body)) + body)
        except OSError:
            pass
    return 0
""",
    "forged verdict: equal to everything": """
class Yes:
    __eq__ = __ne__ = __lt__ = __gt__ = __bool__ = lambda *a: True
    __sub__ = __abs__ = lambda *a: a[0]
    __float__ = lambda a: 0.0
def f(x):
    return Yes()
abs = lambda x: 0
""",
}
_EXAM = {"trusted": "", "setup": "", "tests": ["assert abs(f(1) - 2) < 0.1"], "shadows": [], "value": None}


def attack_ourselves(sandbox: Sandbox) -> tuple[str, ...]:
    """Run every attack; the names of those stopped, or SandboxUnavailable with the names of those that were not."""
    name = f"widen-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        listeners = _listeners(stack, name)
        port = listeners[0].getsockname()[1] if listeners else 9
        aimed = attacks(sandbox.limits, host_pid=os.getpid(), port=port, abstract_name=name)
        results = []
        through = []
        for job, outcome in sandbox.stream(deque(_jobs(aimed, sandbox.workers))):
            results.append(job)
            if not _stopped(job, outcome):
                through.append(_report(job, outcome))
            if outcome.lost:  # a sandbox that dies under attack need not be attacked further
                break
        through += [
            f"network: somebody connected to {listener.getsockname()!r}" for listener in listeners if _visited(listener)
        ]
    if through:
        raise SandboxUnavailable(
            f"the sandbox does not hold, and is not used; attacks that got through: {'; '.join(sorted(set(through)))}"
        )
    return tuple(sorted({job.tag if isinstance(job.tag, str) else job.tag.name for job in results}))


def _jobs(aimed: list[Attack], workers: int) -> list[Job]:
    """The long ones first; the one that looks for leftovers often enough that some worker runs it twice."""
    order = sorted(aimed, key=lambda attack: attack.name != "infinite loop")
    jobs = [attack.job() for attack in order]
    jobs += [attack.job() for attack in aimed if attack.name == "what the last program left" for _ in range(workers)]
    return jobs + [Job(source, _EXAM, tag=name) for name, source in _FORGERIES.items()]


def _stopped(job: Job, outcome: Outcome) -> bool:
    if isinstance(job.tag, Attack):
        return job.tag.stopped(outcome)
    return bool(outcome.findings) and all(json.loads(finding)["status"] != "passed" for finding in outcome.findings)


def _report(job: Job, outcome: Outcome) -> str:
    if not isinstance(job.tag, Attack):
        return str(job.tag)
    lines = [line for line in said(outcome).splitlines() if "THROUGH" in line]
    return f"{job.tag.name} ({lines[0] if lines else outcome.lost or dict(outcome.ending)})"


def _listeners(stack: ExitStack, name: str) -> list[socket.socket]:
    """Doors on the host that an attack should not reach."""
    found = []
    for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, f"\0{name}")):
        with suppress(OSError):  # a host without a network has no such door
            listener = stack.enter_context(socket.socket(family))
            listener.bind(address)
            listener.listen()
            listener.setblocking(False)
            found.append(listener)
    return found


def _visited(listener: socket.socket) -> bool:
    try:
        line, _ = listener.accept()
    except BlockingIOError:
        return False
    line.close()
    return True
