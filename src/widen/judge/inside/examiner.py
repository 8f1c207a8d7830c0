"""The process that examines one program: it alone holds the tests, and it alone writes what was seen to the judge
outside.

It runs no line of the judged program. What the program sends is decoded as plain data (`wire`), and a message that no
honest program sends ends the examination.
"""

from __future__ import annotations

import builtins
import json
import os
import struct
import types
from functools import lru_cache
from importlib import import_module
from typing import Any

from . import wire
from .remote import HARMLESS, Link, ProgramFailure

# A program that defines its own `abs` or `math` must not lend it to the test that checks it.
PROTECTED = frozenset(dir(builtins)) | HARMLESS
_DETAIL = 600
_BEGIN = struct.Struct(">II")
# Words to the zygote: the program has its job; then the last one: ready for the next program, better replaced, or the
# pipes to the judge may be out of step.
STARTED, FIT, WORN, LOST = b"s", b"f", b"w", b"l"


def attend(
    reader: int, writer: int, stdout: int, begin: int, done: int, exams: int, findings: int, *, limit: int
) -> None:
    """Examine program after program, as the zygote announces them by process and mode."""
    report = wire.Channel(-1, findings)
    while len(announced := os.read(begin, _BEGIN.size)) == _BEGIN.size:
        pid, converse = _BEGIN.unpack(announced)
        alive = os.pidfd_open(pid)
        exam = wire.read_frame(exams)
        channel = wire.Channel(reader, writer, alive=alive)
        try:
            channel.receive()  # "here": the program's process has read its job
            os.write(done, STARTED)
            fit = listen(channel, stdout, exam, limit, report) if converse else examine(channel, exam, report)
            word = FIT if fit else WORN
        except wire.Closed:
            word = LOST
        os.close(alive)
        os.write(done, word)


def examine(channel: wire.Channel, tests: dict[str, Any], report: wire.Channel) -> bool:
    """Run the tests in order until one fails; report how many held and why the next did not. True if nothing odd
    happened to this process.

    `tests`: {"trusted": code of the problem, whose names are never the program's; "setup": code before the tests;
    "tests": [code, ...]; "shadows": names of builtins that the tests mean as the program's; "value": a global's name
    or None}. With "value" no test runs here: the global is passed on, as data.
    """
    seen: dict[str, Any] = {"passed": 0, "status": "passed", "kind": "", "detail": "", "serial": tests["serial"]}
    try:
        hello = channel.receive()
        if hello[0] == "failed":
            seen.update(status="raised", kind=str(hello[1][0]), detail=str(hello[1][1])[:_DETAIL])
        elif tests["value"] is not None:
            seen["value"] = _fetch(channel, tests["value"])
        else:
            _run_tests(Link(channel), tests, seen)
    except wire.Closed:
        seen["status"] = "gone"
    except Exception as error:  # whatever a hostile message can provoke, the examination ends without a pass
        seen.update(status="broken", kind=type(error).__name__, detail=str(error)[:_DETAIL])
    report.send(seen)
    return seen["status"] != "broken" and seen["kind"] not in ("MemoryError", "RecursionError")


def _fetch(channel: wire.Channel, name: str) -> Any:
    """A global of the program as the data it sent; None where there is none."""
    channel.send(["names", [name]])
    reply = channel.receive()
    if reply[0] == "raised":
        return None
    return reply[1].get(name)


def _run_tests(link: Link, exam: dict[str, Any], seen: dict[str, Any]) -> None:
    pieces = [_compiled(exam["setup"]), *[_compiled(code) for code in exam["tests"]]]
    namespace: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}
    try:
        exec(_compiled(exam["trusted"]), namespace)
        wanted = set().union(*[_names(piece) for piece in pieces]) - namespace.keys()
        ours = wanted & PROTECTED - set(exam["shadows"])
        namespace.update({name: import_module(name) for name in ours & HARMLESS})
        namespace.update(link.names(sorted(wanted - ours)))
        for passed, piece in enumerate(pieces):
            exec(piece, namespace)
            if link.fault is not None:
                raise link.fault
            seen["passed"] = passed
    except (wire.Closed, wire.WireError):
        raise
    except AssertionError as error:
        seen.update(status="failed", kind="AssertionError", detail=str(error)[:_DETAIL])
    except ProgramFailure as error:
        seen.update(status="raised", kind=error.kind, detail=str(error)[:_DETAIL])
    except BaseException as error:
        seen.update(status="raised", kind=type(error).__name__, detail=str(error)[:_DETAIL])


@lru_cache(maxsize=128)  # the samples of one problem come one after the other, with the same tests
def _compiled(code: str) -> types.CodeType:
    return compile(code, "<test>", "exec", dont_inherit=True)


def _names(code: types.CodeType) -> set[str]:
    """Every global name that the code may look up, its inner functions included."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*[_names(const) for const in inner])


def listen(channel: wire.Channel, stdout: int, exam: dict[str, Any], limit: int, report: wire.Channel) -> bool:
    """Let the program run once an input and pass on, for each, what it wrote: a JSON header and the bytes.

    The program waits for our word between two inputs, so whatever lies in the pipe when it says "done" belongs to the
    input before.
    """
    for index in range(exam["rounds"]):
        try:
            channel.send(["go"])
            output, done = _collect(channel, stdout, limit)
            header = {"index": index, "over": len(output) > limit, **done}
        except wire.Closed:
            output, header = b"", {"index": index, "over": False, "done": False, "failure": None}
        except Exception as error:
            output, header = (
                b"",
                {"index": index, "over": False, "done": False, "failure": ["broken", str(error)[:_DETAIL]]},
            )
        report.send_bytes(json.dumps({**header, "serial": exam["serial"]}).encode() + b"\n" + output[: limit + 1])
        if header["over"] or not header["done"]:
            return False
    return True


def _collect(channel: wire.Channel, stdout: int, limit: int) -> tuple[bytes, dict[str, Any]]:
    """Output until the program says "done", dies, or has written more than `limit` bytes."""
    assert channel.alive is not None
    output = bytearray()
    sources = [stdout, channel.reader, channel.alive]
    while len(output) <= limit:
        ready = wire.wait_readable(*sources)
        if stdout in ready:
            chunk = os.read(stdout, 65536)
            output += chunk
            if not chunk:  # the program closed its stdout: polling it further would spin
                sources.remove(stdout)
        elif channel.reader in ready:
            ending = _ending(channel)
            return bytes(_drain(stdout, output, limit)), ending
        else:
            return bytes(_drain(stdout, output, limit)), {"done": False, "failure": None}
    return bytes(output), {"done": False, "failure": None}


def _ending(channel: wire.Channel) -> dict[str, Any]:
    try:
        failure = channel.receive()[1]
    except wire.Closed:
        return {"done": False, "failure": None}
    return {"done": True, "failure": None if failure is None else [str(part)[:_DETAIL] for part in failure[:2]]}


def _drain(stdout: int, output: bytearray, limit: int) -> bytearray:
    """What was written before the last word and not yet read: the pipe's two ends are polled one after the other."""
    os.set_blocking(stdout, False)
    try:
        while len(output) <= limit and (chunk := os.read(stdout, 65536)):
            output += chunk
    except BlockingIOError:
        pass
    os.set_blocking(stdout, True)
    return output
