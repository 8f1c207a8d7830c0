"""Stand-ins, in the examiner, for objects that live in the judged program's process.

A test such as `root.left = Node(2); assert depth(root) == 2` runs here unchanged: `Node`, `root` and `depth` are
stand-ins, and every use of one is a request to the program. Two rules keep the verdict out of the program's hands:

- The examiner compares with a plain value itself. An object whose `__eq__` always says yes is not equal to 4.
  Only an operator between two of the program's own objects is answered by the program.
- The examiner takes only what it asked for, in the exact shape it asked for. Anything else is a `WireError`.
"""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

from . import wire
from .program import ARITHMETIC, COMPARISONS

_MODULES = "bisect cmath collections copy functools heapq itertools json math operator random re statistics string"
HARMLESS = frozenset(_MODULES.split())  # no call into these modules is dangerous, whatever its arguments
_MUTABLE = (list, dict, set, bytearray)
# Exceptions that cannot be built from a message alone.
_COMPLEX = {"UnicodeDecodeError", "UnicodeEncodeError", "UnicodeTranslateError", "ExceptionGroup"}
# A library may trust the special attributes of an object: numpy reads memory at the address that
# `__array_interface__` names. The program may therefore answer for these only.
_SPECIAL = ("__annotations__", "__dict__", "__enter__", "__exit__", "__name__", "__qualname__", "__wrapped__")


class ProgramFailure(Exception):
    """The program raised an exception whose class is not a builtin; `kind` is the name of that class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Link:
    """Sends requests to the program and decodes its answers."""

    def __init__(self, channel: wire.Channel) -> None:
        self.channel = channel
        self.functions: list[Callable[..., Any]] = []
        self.exceptions: dict[int, type[Exception]] = {}
        self.fault: Exception | None = None  # recorded because a bare `except:` in a test would swallow it

    def names(self, wanted: list[str]) -> dict[str, Any]:
        """Return those of the program's globals that are in `wanted`, and no others."""
        found = self.ask("names", wanted)
        if type(found) is not dict:
            self.fault = wire.WireError("names that are no dictionary")
            raise self.fault
        return {name: found[name] for name in wanted if name in found}

    def ask(self, verb: str, /, *args: Any, **kwargs: Any) -> Any:
        """Apply `verb` in the program; copy its in-place changes of mutable arguments back to `args`.

        Meanwhile serve the program's calls of the test's functions. Whatever is wrong with the answer becomes a recorded
        WireError.
        """
        request = [verb, [self.encode(arg) for arg in args], {key: self.encode(item) for key, item in kwargs.items()}]
        try:
            self.channel.send(request)
            while True:
                kind, *body = _exactly(list, self.channel.receive())
                if kind == "value":
                    return self._read(args, *body)
                if kind == "raised":
                    error = self._exception(*body)
                    break
                if kind != "callback":
                    raise wire.WireError("an answer of unknown kind")
                self._serve(*body)
        except (wire.Closed, wire.WireError) as fault:
            self.fault = fault
            raise
        except Exception as cause:
            self.fault = wire.WireError(f"an answer that cannot be read: {type(cause).__name__}")
            raise self.fault from None
        raise error

    def _read(self, args: tuple[Any, ...], result: Any, changed: Any) -> Any:
        value = self.decode(result)
        new_values = {_exactly(int, position): self.decode(data) for position, data in _exactly(list, changed)}
        for position, new in new_values.items():
            fits = 0 <= position < len(args) and type(new) in _MUTABLE and isinstance(args[position], type(new))
            if not fits:
                raise wire.WireError("a change of an argument that cannot change so")
        for position, new in new_values.items():
            _overwrite(args[position], new)
        return value

    def _serve(self, number: int, args: list[Any], kwargs: dict[str, Any]) -> None:
        try:
            function = self.functions[number]
            result = function(*[self.decode(a) for a in args], **{key: self.decode(v) for key, v in kwargs.items()})
            reply = ["returned", self.encode(result)]
        except (wire.Closed, wire.WireError):
            raise
        except Exception as error:
            reply = ["threw", type(error).__name__]
        self.channel.send(reply)

    def _exception(self, described: Any, class_handle: Any) -> Exception:
        kind, message = (_exactly(str, part) for part in described)
        known = self.exceptions.get(class_handle) or _builtin_exception(kind)
        return ProgramFailure(kind, message) if known is None else known(message)

    def encode(self, value: Any) -> Any:
        """Encode an argument for the program."""
        return wire.encode(value, self._handle)

    def decode(self, data: Any) -> Any:
        """Decode a value from the program."""
        return wire.decode(data, self._stand_in)

    def _handle(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Remote):
            return {"h": value.remote_number}
        if isinstance(value, Iterator):
            return {"it": [self.encode(item) for item in value]}
        plain = wire.base_value(value)
        if plain is not value:
            encoded: dict[str, Any] = self.encode(plain)
            return encoded
        if callable(value):
            self.functions.append(value)
            return {"k": len(self.functions) - 1}
        raise TypeError(f"an object of type {type(value).__name__} cannot be handed to the program")

    def _stand_in(self, tag: str, body: Any) -> Any:
        if tag == "h":
            return Remote(self, _exactly(int, body))
        number = _exactly(int, body[0])
        if tag == "x":
            # A local class for the program's exception class, so that `except Name:` in a test works.
            if number not in self.exceptions:
                name, bases = _exactly(str, body[1]), _exactly(list, body[2])
                base = next(filter(None, map(_builtin_exception, bases)), Exception)
                self.exceptions[number] = base if base.__name__ == name else type(name, (base,), {})
            return self.exceptions[number]
        if tag == "module":
            # The examiner's own copy of a harmless module; any other module stays in the program.
            return (sys.modules.get(body[1]) if body[1] in HARMLESS else None) or Remote(self, number)
        raise wire.WireError("a value of unknown kind")


def _exactly(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise wire.WireError(f"{type(value).__name__} where {kind.__name__} was expected")
    return value


def _builtin_exception(name: Any) -> type[Exception] | None:
    found = None if name in _COMPLEX else getattr(builtins, _exactly(str, name), None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


class Remote:
    """Stands for one object of the program."""

    __slots__ = ("remote_link", "remote_number")  # long names, because they hide the program's attributes

    def __init__(self, link: Link, number: int) -> None:
        object.__setattr__(self, "remote_link", link)
        object.__setattr__(self, "remote_number", number)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the program's object."""
        return self.remote_link.ask("call", self, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _SPECIAL:
            raise AttributeError(f"{name!r} of a program's object is not available to tests")
        return self.remote_link.ask("attr", self, name)

    def __instancecheck__(self, other: Any) -> bool:
        return isinstance(other, Remote) and bool(self.remote_link.ask("isinstance", other, self))

    def __enter__(self) -> Any:
        return self.__getattr__("__enter__")()

    def __exit__(self, *_: Any) -> None:
        self.__getattr__("__exit__")(None, None, None)


def _forward(verb: str, cast: Callable[[Any], Any] = lambda value: value) -> Callable[..., Any]:
    def method(self: Remote, *args: Any) -> Any:
        return cast(self.remote_link.ask(verb, self, *args))

    return method


def _overwrite(target: Any, value: Any) -> None:
    """Give a mutable argument the content that the program left in its copy."""
    if isinstance(target, (list, bytearray)):
        target[:] = value
    else:
        target.clear()
        target.update(value)


def _operator(name: str, *, reflected: bool = False) -> Callable[[Remote, Any], Any]:
    """Compute in the program if both operands are its objects; otherwise here, on plain values.

    `abs(f(x) - 3.5) < 1e-6` would otherwise hand 3.5 to the program and believe the difference that it returns.
    """
    compute = getattr(operator, name)

    def method(self: Remote, other: Any) -> Any:
        if isinstance(other, Remote):
            answer = self.remote_link.ask(name, self, other)  # Python tries the left operand first: never reflected
            return bool(answer) if name in COMPARISONS else answer
        plain = self.remote_link.ask("plain", self)
        if isinstance(plain, Remote):
            return NotImplemented
        return compute(other, plain) if reflected else compute(plain, other)

    return method


def _install() -> None:
    casts: dict[str, Callable[[Any], Any]] = {"len": int, "str": str, "repr": str, "hash": int, "bool": bool}
    casts |= {"int": int, "float": float, "complex": complex, "bytes": bytes, "index": int, "format": str, "dir": list}
    same = ("next", "abs", "round", "reversed", "neg", "pos", "invert", "getitem", "setitem", "delitem")
    for verb in (*casts, *same, "iter", "setattr", "delattr"):
        setattr(Remote, f"__{verb}__", _forward(verb, casts.get(verb, lambda value: value)))
    for verb in ARITHMETIC:
        setattr(Remote, f"__{verb.rstrip('_')}__", _operator(verb))
        setattr(Remote, f"__r{verb.rstrip('_')}__", _operator(verb, reflected=True))
    for name in COMPARISONS:
        setattr(Remote, f"__{name}__", _operator(name))


_install()
