"""The process that runs the judged program. Treat it as hostile once the program has started.

It receives the program and, for a contest, the inputs. It never receives a test, an expected answer or a pipe for
verdicts. It sends values of the program's functions and bytes of its output; the comparison happens elsewhere. A
program that takes over this process gains nothing: it could choose its answers anyway.
"""

from __future__ import annotations

import atexit
import operator
import os
import sys
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TextIO

from . import wire

_DETAIL = 400


def serve(channel: wire.Channel, source: str) -> None:
    """Run the program once, then answer the examiner's requests until the pipe closes."""
    module = _module("program")
    failure = _attempt(lambda: exec(_compiled(source), module.__dict__), may_exit=False)
    if failure is not None:
        channel.send(["failed", failure])
        return
    channel.send(["ready"])
    objects = Objects(channel, module.__dict__)
    while True:
        request = channel.receive()
        try:
            channel.send(objects.answer(request))
        except wire.WireError as error:
            channel.send(["raised", ["OverflowError", str(error)], -1])


def converse(channel: wire.Channel, source: str, inputs: list[str], stdin: int) -> None:
    """Run the program once per input, each time when the examiner says so.

    `stdin` is the descriptor of an anonymous file, so input(), sys.stdin.buffer, open(0) and os.read(0) all work.
    """
    for text in inputs:
        channel.receive()
        channel.send(["done", _run_once(source, text.encode("utf-8", "surrogatepass"), stdin)])


@lru_cache(maxsize=1)
def _compiled(source: str) -> types.CodeType:
    return compile(source, "<program>", "exec", dont_inherit=True)


def _run_once(source: str, text: bytes, stdin: int) -> list[str] | None:
    os.ftruncate(stdin, 0)
    os.lseek(stdin, 0, os.SEEK_SET)
    while text:
        text = text[os.write(stdin, text) :]
    os.lseek(stdin, 0, os.SEEK_SET)
    os.dup2(stdin, 0)
    theirs = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115 - the program's own
    ours = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    for name, stream in (("stdin", theirs), ("__stdin__", theirs), ("stdout", ours), ("__stdout__", ours)):
        setattr(sys, name, stream)
    module = _module("__main__")
    failure = _attempt(lambda: exec(_compiled(source), module.__dict__))
    return failure or _attempt(lambda: _finish(ours))


def _finish(stdout: TextIO) -> None:
    """Do what the interpreter does at exit, in its order: join threads, call exit functions, flush."""
    threading: Any = sys.modules.get("threading")  # not imported here: every fork would copy it
    for thread in threading.enumerate() if threading is not None else ():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, stdout):
        if not getattr(stream, "closed", False):
            stream.flush()


def _module(name: str) -> types.ModuleType:
    """Register a fresh module: dataclasses and typing look up their module in sys.modules."""
    module = sys.modules[name] = types.ModuleType(name)
    return module


def _attempt(action: Callable[[], object], *, may_exit: bool = True) -> list[str] | None:
    """Run `action`; return None, or a description of what it raised.

    With `may_exit`, sys.exit() with success is not a failure: a contest program may end that way.
    """
    try:
        action()
    except SystemExit as leave:
        return None if may_exit and leave.code in (None, 0) else ["SystemExit", f"exit status {leave.code}"[:_DETAIL]]
    except wire.Closed:
        raise
    except BaseException as error:
        return _describe(error)
    return None


def _describe(error: BaseException) -> list[str]:
    """Return [type, message with the program's line], even if `__str__` or `__name__` raises."""
    try:
        line, trace = None, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<program>":
                line = trace.tb_lineno
            trace = trace.tb_next
        where = f" (line {line})" if line is not None else ""
        return [type(error).__name__[:_DETAIL], str(error)[:_DETAIL] + where]
    except BaseException:
        return ["Exception", "an exception that cannot be described"]


class Objects:
    """The table of objects behind the examiner's stand-ins, and the operations that it may request on them."""

    def __init__(self, channel: wire.Channel, namespace: dict[str, Any]) -> None:
        self.channel, self.namespace = channel, namespace
        self.table: list[Any] = []
        self.known: dict[int, int] = {}

    def answer(self, request: list[Any]) -> list[Any]:
        """Apply the verb; return ["value", v, changed arguments] or ["raised", [type, message], class handle]."""
        try:
            verb, raw_args, raw_kwargs = request
            args = [self.decode(item) for item in raw_args]
            kwargs = {key: self.decode(item) for key, item in raw_kwargs.items()}
            result = self.encode(self._names(*args) if verb == "names" else OPERATIONS[verb](*args, **kwargs))
            # A function may change an argument in place: send the changed ones back, by position.
            mutable = [i for i, arg in enumerate(args) if type(arg) in _MUTABLE]
            return ["value", result, [[i, now] for i in mutable if (now := self.encode(args[i])) != raw_args[i]]]
        except wire.Closed:
            raise
        except BaseException as error:
            return ["raised", _describe(error), self._handle(type(error))["x"][0]]

    def _names(self, wanted: list[str]) -> dict[str, Any]:
        return {name: self.namespace[name] for name in wanted if name in self.namespace}

    def encode(self, value: Any) -> Any:
        """Encode plain values as data, everything else as a handle."""
        return wire.encode(value, self._handle)

    def decode(self, data: Any) -> Any:
        """Decode an argument: a plain value, a handle of our object, or a function of the test."""
        return wire.decode(data, self._resolve)

    def _handle(self, value: Any) -> dict[str, Any]:
        number = self.known.get(id(value))
        if number is None:
            number = self.known[id(value)] = len(self.table)
            self.table.append(value)
        if isinstance(value, types.ModuleType):
            return {"module": [number, value.__name__]}
        if isinstance(value, type) and issubclass(value, BaseException):
            return {"x": [number, value.__name__, [base.__name__ for base in value.__mro__]]}
        return {"h": number}

    def _resolve(self, tag: str, body: Any) -> Any:
        if tag == "h":
            return self.table[body]
        if tag == "it":
            return iter([self.decode(item) for item in body])
        if tag == "k":
            return lambda *args, **kwargs: self._call_back(body, args, kwargs)
        raise wire.WireError(f"no value of kind {tag!r}")

    def _call_back(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.channel.send(
            ["callback", number, [self.encode(a) for a in args], {k: self.encode(v) for k, v in kwargs.items()}]
        )
        while True:
            reply = self.channel.receive()
            if reply[0] == "returned":
                return self.decode(reply[1])
            if reply[0] == "threw":
                raise RuntimeError(f"the test's function raised {reply[1]}")
            self.channel.send(self.answer(reply))


_MUTABLE = frozenset([list, dict, set, bytearray])
_BITWISE = ("and_", "or_", "xor", "lshift", "rshift")
ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", *_BITWISE)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OTHERS = ("neg", "pos", "invert", "index", "getitem", "setitem", "delitem")
_CASTS = (str, repr, bool, int, float, complex, bytes, format, hash, dir)
_BUILTINS = (*_CASTS, setattr, delattr, len, abs, round, reversed, isinstance, iter, next)
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in (*ARITHMETIC, *COMPARISONS, *_OTHERS)},
    **{function.__name__: function for function in _BUILTINS},
    "attr": getattr,
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "plain": wire.base_value,
}
