"""The process that examines programs. Only it holds the tests, and only it reports to the judge outside.

It runs no line of the judged program. It decodes what the program sends as plain data (`wire`), and a message that
no honest program sends ends the examination. A report has a fixed shape, whatever the program sent:

    {"passed": tests passed in a row, "status": ..., "kind": ..., "detail": ...}

status is "passed"; "failed", "output" or "raised" for the next test; "gone" if the program died; "broken" if it sent a
malformed message.
"""

from __future__ import annotations

import builtins
import math
import os
import reprlib
import struct
import time
import types
from functools import lru_cache
from importlib import import_module
from numbers import Number
from typing import Any

from . import compare, wire
from .remote import HARMLESS, Link, ProgramFailure, Remote

# Names that a test never takes from the program, even if the program defines its own `abs` or `math`.
PROTECTED = frozenset(dir(builtins)) | HARMLESS
_EXHAUSTED = ("MemoryError", "RecursionError")
_KIND, _DETAIL, _KEY = 100, 600, 10_000  # longest texts in a report
BEGIN = struct.Struct(">I")  # from the zygote: the process id of the next program
# Words to the zygote: the program has read its job; done, and fit for the next program; done, replace me.
STARTED, FIT, WORN = b"s", b"f", b"w"
_TERM = 64  # programs per examiner


class Wrong(Exception):
    """A test that failed: the report's status and detail."""


def attend(
    reader: int, writer: int, stdout: int, begin: int, words: int, exams: int, reports: int, *, limit: int
) -> None:
    """Examine one program after the other; the zygote announces each by its process id.

    `reader` and `writer` are pipes from and to the program, `stdout` is the file of its output, `begin` and `words` are
    pipes from and to the zygote, `exams` and `reports` from and to the judge. `limit` bounds the output for one input.
    """
    os.set_blocking(writer, False)
    for number in range(1, _TERM + 1):
        alive = os.pidfd_open(*BEGIN.unpack(os.read(begin, BEGIN.size)))
        channel = wire.Channel(reader, writer, alive=alive)
        channel.receive()  # "here": the program's process has read its job, so the judge's next frame is the exam
        exam = wire.Channel(exams, -1).receive(wire.JOB_LIMIT)
        os.write(words, STARTED)  # the clock starts now: a busy judge costs the program no time
        seen = examine(channel, stdout, exam, limit)
        wire.Channel(-1, reports).send(seen)
        os.close(alive)
        healthy = seen["status"] in ("passed", "failed", "raised") and seen["kind"] not in _EXHAUSTED
        os.write(words, FIT if healthy and number < _TERM else WORN)


def examine(channel: wire.Channel, stdout: int, exam: dict[str, Any], limit: int) -> dict[str, Any]:
    """Examine one program and return the report.

    `exam` has one of these shapes:

        {"value": name of a global, "reference": number, "tolerance": ...}
        {"tests": [code, ...], "setup": code, "trusted": code whose names are never the program's, "shadows": builtin
         names that the tests mean as the program's}
        {"outputs": [expected text, ...], "tolerance": ..., "ignore_case": ...}
        {"pairs": [[prompt, answer], ...], "function": name, "seconds": time for one pair}
    """
    seen: dict[str, Any] = {"passed": 0, "status": "passed", "kind": "", "detail": ""}
    try:
        if "outputs" in exam:
            _compare_outputs(channel, stdout, exam, limit, seen)
        else:
            if "seconds" in exam:
                channel.deadline = time.monotonic() + exam["seconds"]
            _loaded(channel)
            if "value" in exam:
                _check_value(Link(channel), exam)
                seen["passed"] = 1
            elif "pairs" in exam:
                _check_pairs(Link(channel), exam, seen)
            else:
                _run_tests(Link(channel), exam, seen)
    except Wrong as wrong:
        seen["status"], seen["detail"] = wrong.args
    except ProgramFailure as error:
        seen.update(status="raised", kind=error.kind, detail=str(error))
    except wire.Closed:
        seen["status"] = "gone"
    except Exception as error:  # no message may end this process, and no malformed message may pass
        seen.update(status="broken", kind=type(error).__name__, detail=str(error))
    seen.update(kind=seen["kind"][:_KIND], detail=seen["detail"][:_DETAIL])
    return seen


def _loaded(channel: wire.Channel) -> None:
    word, *failure = channel.receive()
    if word == "failed":
        raise _failure(*failure)
    if word != "ready":
        raise wire.WireError("a message of unknown kind")


def _failure(described: Any) -> ProgramFailure:
    """Check a description of an exception: its class and its message."""
    kind, message = described
    if type(kind) is not str or type(message) is not str:
        raise wire.WireError("an exception that is not described by two texts")
    return ProgramFailure(kind[:_KIND], message[:_DETAIL])


# The value of a variable.


def _check_value(link: Link, exam: dict[str, Any]) -> None:
    name, reference = exam["value"], exam["reference"]
    try:
        found = link.names([name])
    except (wire.Closed, wire.WireError):
        raise
    except Exception as error:  # e.g. a list nested too deeply to be sent
        raise Wrong("failed", f"{name}: {_words(error)}") from None
    if name not in found:
        raise Wrong("failed", f"{name} is not defined, reference {reference!r}")
    number = as_number(found[name])
    if number is None or not compare.same_answer(reference, number, tolerance=exam["tolerance"]):
        shown = _shown(found[name]) if number is None else number
        raise Wrong("failed", f"{name} = {shown}, reference {reference!r}")


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
    if isinstance(value, Remote):
        return "an object"
    try:
        return reprlib.repr(value)
    except Exception:  # e.g. an integer of more than 4,300 digits
        return f"a value of type {type(value).__name__}"


def _words(error: Exception) -> str:
    kind = error.kind if isinstance(error, ProgramFailure) else type(error).__name__
    text = str(error.args[0] if error.args else "")[:_DETAIL]
    return text if text.startswith(kind) else f"{kind}: {text}"


# Assertions.


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
    except (wire.Closed, wire.WireError, ProgramFailure):
        raise
    except AssertionError as error:
        raise Wrong("failed", str(error) or "an assertion failed") from None
    except BaseException as error:
        seen.update(status="raised", kind=type(error).__name__, detail=str(error))


@lru_cache(maxsize=128)  # the samples of one problem come one after the other, with the same tests
def _compiled(code: str) -> types.CodeType:
    return compile(code, "<test>", "exec", dont_inherit=True)


def _names(code: types.CodeType) -> set[str]:
    """Return every global name that the code or one of its inner functions may look up."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*[_names(const) for const in inner])


# Input and output.


def _compare_outputs(
    channel: wire.Channel, stdout: int, exam: dict[str, Any], limit: int, seen: dict[str, Any]
) -> None:
    """Let the program run once per input until an output is wrong.

    The program waits for "go" before each input, and `stdout` is a file. So when the program says "done", the file
    holds what it printed for this input.
    """
    for expected in exam["outputs"]:
        os.ftruncate(stdout, 0)
        os.lseek(stdout, 0, os.SEEK_SET)  # the program shares the offset
        channel.send(["go"])
        try:
            word, failure = channel.receive()
        except wire.Closed:
            word, failure = "gone", None
        output = os.pread(stdout, min(os.fstat(stdout).st_size, limit + 1), 0)
        if len(output) > limit:
            raise Wrong("output", f"more than {limit} bytes")
        if failure is not None:
            raise _failure(failure)
        printed = output.decode("utf-8", "replace")
        right = compare.same_output(expected, printed, tolerance=exam["tolerance"], ignore_case=exam["ignore_case"])
        if word == "gone":  # a program may end by os._exit(0): the judge outside knows its exit status
            raise Wrong("gone", "right" if right else "")
        if word != "done":
            raise wire.WireError("a message of unknown kind")
        if not right:
            raise Wrong("failed", f"printed {printed[:100]!r}, expected {expected[:100]!r}")
        seen["passed"] += 1


# A checker: the user's own function, called with texts.


def _check_pairs(link: Link, exam: dict[str, Any], seen: dict[str, Any]) -> None:
    """Call the checker once per pair; `seen["results"]` gets [status, score, key, detail] for each.

    The first pair that ends the checker's process or its time ends the list; the judge sends the rest again.
    """
    seen["results"] = results = []
    name = exam["function"]
    found = link.names([name, "key"])
    if name not in found:
        raise Wrong("missing", "")
    for prompt, answer in exam["pairs"]:
        link.channel.deadline = time.monotonic() + exam["seconds"]
        try:
            score = found[name](prompt, answer)
            if type(score).__module__ == "numpy":
                score = score.tolist()
            if type(score) not in (bool, int, float) or not 0 <= score <= 1:
                raise Wrong(
                    "wrong type", f"returned {_shown(score)[:_DETAIL]}; a bool, or a number from 0 to 1, is legal"
                )
            key = found["key"](answer) if "key" in found else None
            if "key" in found and (type(key) is not str or len(key) > _KEY):
                raise Wrong(
                    "wrong type", f"key returned {_shown(key)[:_DETAIL]}; a text of at most {_KEY} letters is legal"
                )
            results.append(["scored", float(score), key, ""])
        except wire.Late:
            results.append(["timeout", None, None, f"over {exam['seconds']:g} s"])
            raise
        except wire.Closed:
            results.append(["died", None, None, ""])
            raise
        except wire.WireError:
            raise
        except Wrong as wrong:
            results.append([wrong.args[0], None, None, wrong.args[1]])
        except Exception as error:
            results.append(["error", None, None, _words(error)])
