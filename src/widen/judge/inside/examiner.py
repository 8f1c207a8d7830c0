"""The process that examines programs. Only it holds the tests, and only it reports to the judge outside.

It runs no line of the judged program. It decodes what the program sends as plain data (`wire`), and a message that
no honest program sends ends the examination. A report is short and has a fixed shape, whatever the program sent.
"""

from __future__ import annotations

import builtins
import json
import math
import os
import reprlib
import struct
import types
from functools import lru_cache
from importlib import import_module
from numbers import Number
from typing import Any

from . import wire
from .remote import HARMLESS, Link, ProgramFailure

# Names that a test never takes from the program, even if the program defines its own `abs` or `math`.
PROTECTED = frozenset(dir(builtins)) | HARMLESS
_KIND, _DETAIL = 100, 600  # longest texts in a report
_TOTAL = 64 << 20  # most output for all inputs of one run: the judge keeps it in memory
_BEGIN = struct.Struct(">II")
# Words to the zygote. First: the program has read its job. Last: this examiner is fit for the next program, should be
# replaced, or lost step with the judge's pipes.
STARTED, FIT, WORN, LOST = b"s", b"f", b"w", b"l"


def attend(
    reader: int, writer: int, stdout: int, begin: int, done: int, exams: int, findings: int, *, limit: int
) -> None:
    """Examine one program after the other; the zygote announces each by process id and mode."""
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


def examine(channel: wire.Channel, exam: dict[str, Any], report: wire.Channel) -> bool:
    """Run the tests in order until one fails; report how many passed and why the next one did not.

    `exam`: {"trusted": code of the problem, whose names are never the program's; "setup": code that runs before the
    tests; "tests": [code, ...]; "shadows": builtin names that the tests mean as the program's; "value": a global's name
    or None}. With "value" no test runs here: the report holds that global as a number.

    Returns whether this process is fit to examine another program.
    """
    seen: dict[str, Any] = {"serial": exam["serial"], "passed": 0, "status": "passed", "kind": "", "detail": ""}
    try:
        word, *failure = channel.receive()
        if word == "failed":
            seen["status"], (seen["kind"], seen["detail"]) = "raised", _texts(*failure)
        elif word != "ready":
            raise wire.WireError("a message of unknown kind")
        elif exam["value"] is not None:
            seen["number"], seen["detail"] = _fetch(channel, exam["value"])
        else:
            _run_tests(Link(channel), exam, seen)
    except wire.Closed:
        seen["status"] = "gone"
    except Exception as error:  # no message may end this process, and no malformed message may pass
        seen.update(status="broken", kind=type(error).__name__, detail=str(error))
    seen.update(kind=seen["kind"][:_KIND], detail=seen["detail"][:_DETAIL])
    report.send(seen)
    return seen["status"] != "broken" and seen["kind"] not in ("MemoryError", "RecursionError")


def _texts(described: Any) -> tuple[str, str]:
    """Check a description of an exception: its class and its message."""
    kind, message = described
    if type(kind) is not str or type(message) is not str:
        raise wire.WireError("an exception that is not described by two texts")
    return kind[:_KIND], message[:_DETAIL]


def _fetch(channel: wire.Channel, name: str) -> tuple[float | None, str]:
    """Ask for a global; return it as a number, or None and a short text that says what it is instead."""
    channel.send(["names", [name]])
    kind, found, *_ = channel.receive()
    if kind == "raised":
        return None, ": ".join(_texts(found))
    if type(found) is not dict or kind != "value":
        raise wire.WireError("an answer of unknown kind")
    if name not in found:
        return None, "not defined"
    value = wire.decode(found[name], lambda tag, body: _Object())
    number = as_number(value)
    return number, _shown(value) if number is None else ""


class _Object:
    """Stands for an object that is not plain data."""

    def __repr__(self) -> str:
        return "an object"


def as_number(value: Any) -> float | None:
    """Convert a finite real number of any type to a float; return None for everything else."""
    if not isinstance(value, Number) or getattr(value, "imag", 0) != 0:
        return None
    try:
        number = float(getattr(value, "real", value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _shown(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except Exception:  # e.g. an integer of more than 4,300 digits
        return f"a value of type {type(value).__name__}"


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
        seen.update(status="failed", kind="AssertionError", detail=str(error))
    except ProgramFailure as error:
        seen.update(status="raised", kind=error.kind, detail=str(error))
    except BaseException as error:
        seen.update(status="raised", kind=type(error).__name__, detail=str(error))


@lru_cache(maxsize=128)  # the samples of one problem come one after the other, with the same tests
def _compiled(code: str) -> types.CodeType:
    return compile(code, "<test>", "exec", dont_inherit=True)


def _names(code: types.CodeType) -> set[str]:
    """Return every global name that the code or one of its inner functions may look up."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*[_names(const) for const in inner])


def listen(channel: wire.Channel, stdout: int, exam: dict[str, Any], limit: int, report: wire.Channel) -> bool:
    """Let the program run once per input; report each time a JSON header and the bytes that it wrote.

    The program waits for "go" before each input. So when it says "done", everything in the pipe belongs to this input.
    """
    left = _TOTAL
    for index in range(exam["rounds"]):
        output, done, failure = b"", False, None
        most = min(limit, left)
        try:
            channel.send(["go"])
            output, done, failure = _collect(channel, stdout, most)
        except wire.Closed:
            pass
        except Exception as error:
            failure = ("broken", str(error)[:_DETAIL])
        over = len(output) > most
        left -= len(output)
        header = {"serial": exam["serial"], "index": index, "over": over, "done": done, "failure": failure}
        report.send_bytes(json.dumps(header).encode() + b"\n" + output[: most + 1])
        if over or not done:
            return False
    return True


def _collect(channel: wire.Channel, stdout: int, limit: int) -> tuple[bytes, bool, tuple[str, str] | None]:
    """Read output until the program says "done", dies, or has written more than `limit` bytes.

    Returns the output, whether the program said "done", and the exception that it named.
    """
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
            done, failure = _ending(channel)
            return bytes(_drain(stdout, output, limit)), done, failure
        else:
            return bytes(_drain(stdout, output, limit)), False, None
    return bytes(output), False, None


def _ending(channel: wire.Channel) -> tuple[bool, tuple[str, str] | None]:
    try:
        word, failure = channel.receive()
    except wire.Closed:
        return False, None
    if word != "done":
        raise wire.WireError("a message of unknown kind")
    return True, None if failure is None else _texts(failure)


def _drain(stdout: int, output: bytearray, limit: int) -> bytearray:
    """Read what was written before the last message: the two pipes are polled one after the other."""
    os.set_blocking(stdout, False)
    try:
        while len(output) <= limit and (chunk := os.read(stdout, 65536)):
            output += chunk
    except BlockingIOError:
        pass
    os.set_blocking(stdout, True)
    return output
