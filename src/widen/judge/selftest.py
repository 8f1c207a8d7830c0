"""Attack a sandbox before it serves; if one attack gets through, the sandbox refuses to serve."""

from __future__ import annotations

import json
import os
import resource
import secrets
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from .attacks import ATTACK_SECONDS, Attack, attacks, said
from .profile import SandboxUnavailable
from .worker import Job, Outcome

if TYPE_CHECKING:
    from .sandbox import Sandbox

_MANY = 300  # files that a busy judge may have open
_TEST = "assert abs(f(1) - 2) < 0.1"  # the test of every forgery that names no other
_FORGERIES: dict[str, tuple[str, str]] = {
    "forged verdict: leave with success": ("import os\nprint('passed')\nos._exit(0)", _TEST),
    "forged verdict: leave from inside a test": ("import os\ndef f(x):\n    os._exit(0)", _TEST),
    "forged verdict: write on every descriptor": (
        """
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
        _TEST,
    ),
    "forged verdict: equal to everything": (
        """
class Yes:
    __eq__ = __ne__ = __lt__ = __gt__ = __bool__ = lambda *a: True
    __sub__ = __abs__ = lambda *a: a[0]
    __float__ = lambda a: 0.0
def f(x):
    return Yes()
abs = lambda x: 0
""",
        _TEST,
    ),
    "forged verdict: names that were not asked for": (
        """
import sys
Objects = sys.modules["inside.program"].Objects
honest = Objects.answer
def answer(self, namespace, request):
    reply = honest(self, namespace, request)
    if request[0] == "names":
        reply[1]["abs"] = self.encode(lambda x: 0)
    return reply
Objects.answer = answer
def f(x):
    return 7
""",
        _TEST,
    ),
    "forged verdict: an array at any address": (
        """
class Array:
    __array_interface__ = {"version": 3, "shape": (8,), "typestr": "|u1", "data": (1 << 22, True)}
def f(x):
    return Array()
""",
        "assert hasattr(f(1), '__array_interface__')",
    ),
    "forged verdict: malformed messages": (
        """
import os, struct
def f(x):
    for body in (b"[" * 900 + b"]" * 900, b'["value", {"F": []}, 7]', b'["raised", 1, []]', b'["value"]'):
        os.write(4, struct.pack(">I", len(body)) + body)
    os._exit(0)
""",
        _TEST,
    ),
}


@contextmanager
def many_open_files() -> Iterator[None]:
    """Keep many files open, so that the workers' pipes get large numbers, as in a judge that runs for long."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        for _ in range(min(_MANY, soft // 4)):
            stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        yield


def attack_ourselves(sandbox: Sandbox) -> tuple[str, ...]:
    """Run every attack and return the names; raise SandboxUnavailable if one gets through."""
    name = f"widen-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        listeners = _listeners(stack, name)
        port = listeners[0].getsockname()[1] if listeners else 9
        aimed = attacks(
            sandbox.limits, host_pid=os.getpid(), port=port, abstract_name=name, packages=sandbox.interpreter.packages
        )
        results = []
        through = []
        for job, outcome in sandbox.stream(deque(_jobs(aimed, sandbox.workers))):
            results.append(job)
            if not _stopped(job, outcome):
                through.append(_report(job, outcome))
            if outcome.lost:  # the sandbox died: no need to attack it further
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
    """Return the longest attack first, and the search for leftovers often enough that some worker runs it twice."""
    order = sorted(aimed, key=lambda attack: attack.name != "infinite loop")
    jobs = [attack.job() for attack in order]
    jobs += [attack.job() for attack in aimed if attack.name == "what the last program left" for _ in range(workers)]
    empty: dict[str, object] = {"trusted": "", "setup": "", "shadows": [], "value": None}
    return jobs + [
        Job(source, {**empty, "tests": [test]}, wall_seconds=ATTACK_SECONDS, tag=name)
        for name, (source, test) in _FORGERIES.items()
    ]


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
    """Open sockets on the host that no attack should reach."""
    found = []
    for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, f"\0{name}")):
        with suppress(OSError):  # the host may have no network
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
