"""Stand-ins, in the examiner, for objects that live in the judged program's process.

A test such as `root.left = Node(2); assert depth(root) == 2` runs here unchanged: `Node`, `root` and `depth` are
stand-ins whose every use is a request. One rule keeps the verdict out of the program's hands: **a comparison with a
plain value is made here, on plain values**. An object whose `__eq__` says yes to everything is not equal to 4.
Operators between two of the program's own objects are the program's own business, and go to it.
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
HARMLESS = frozenset(_MODULES.split())  # modules in which no call is dangerous, whatever its arguments


class ProgramFailure(Exception):
    """The program raised something that has no built-in class; `kind` is its name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Link:
    """Requests to the program, and what its answers mean."""

    def __init__(self, channel: wire.Channel) -> None:
        self.channel = channel
        self.functions: list[Callable[..., Any]] = []
        self.exceptions: dict[int, type[BaseException]] = {}
        self.fault: Exception | None = None  # kept, because a test's own `except:` may swallow it when it is raised

    def names(self, wanted: list[str]) -> dict[str, Any]:
        """The program's globals among `wanted`, plain ones by value, the rest as stand-ins."""
        found = self.ask(["names", wanted])[0]
        if type(found) is not dict:
            raise wire.WireError("names came back as something else")
        return {str(name): self.decode(data) for name, data in found.items()}

    def operate(self, verb: str, *args: Any, target: int = -1, **kwargs: Any) -> Any:
        """Apply `verb` in the program; containers that it changed in place are changed here too."""
        raw = [self.encode(arg) for arg in args]
        result, changed = self.ask([verb, target, raw, {key: self.encode(item) for key, item in kwargs.items()}])
        for position, data in changed:
            _overwrite(args[position], self.decode(data))
        return self.decode(result)

    def plain(self, number: int) -> Any:
        """The plain value of one of the program's objects (a namedtuple's tuple, say), or a stand-in again."""
        return self.decode(self.ask(["plain", number])[0])

    def ask(self, request: list[Any]) -> list[Any]:
        """One request, one answer; calls that the program makes into the test's own functions are served in between."""
        try:
            return self._ask(request)
        except (wire.Closed, wire.WireError) as fault:
            self.fault = fault
            raise

    def _ask(self, request: list[Any]) -> list[Any]:
        self.channel.send(request)
        while True:
            reply = self.channel.receive()
            if type(reply) is not list or not reply:
                raise wire.WireError("an answer that is no answer")
            if reply[0] == "value" and len(reply) == 3:
                return reply[1:]
            if reply[0] == "raised" and len(reply) == 3:
                raise self._exception(*reply[1:])
            if reply[0] != "callback" or len(reply) != 4:
                raise wire.WireError("an answer of unknown kind")
            self._serve(*reply[1:])

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

    def _exception(self, described: list[str], class_handle: int) -> BaseException:
        kind, message = (str(part) for part in described)
        known = self.exceptions.get(class_handle)
        if known is not None:
            return known(message)
        built_in = getattr(builtins, kind, None)
        if isinstance(built_in, type) and issubclass(built_in, Exception) and not issubclass(built_in, UnicodeError):
            return built_in(message)
        return ProgramFailure(kind, message)

    def encode(self, value: Any) -> Any:
        """Arguments for the program."""
        return wire.encode(value, self._handle)

    def decode(self, data: Any) -> Any:
        """A value from the program."""
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
            return Remote(self, int(body[0]))
        if tag == "x":
            return self._exception_class(int(body[0]), str(body[1]), body[2])
        if tag == "module":
            # The examiner's own copy, of modules in which no call is dangerous; any other module stays where it is,
            # behind a stand-in.
            return (sys.modules.get(body[1]) if body[1] in HARMLESS else None) or Remote(self, int(body[0]))
        raise wire.WireError(f"no value of kind {tag!r}")

    def _exception_class(self, number: int, name: str, bases: list[str]) -> type[BaseException]:
        """A local class for the program's exception class, so that `except Name:` in a test works."""
        if number not in self.exceptions:
            found = [getattr(builtins, str(base), None) for base in bases]
            base = next((b for b in found if isinstance(b, type) and issubclass(b, Exception)), Exception)
            self.exceptions[number] = base if base.__name__ == name else type(name, (base,), {})
        return self.exceptions[number]


class Remote:
    """One object of the program."""

    __slots__ = (
        "remote_link",
        "remote_number",
    )  # long names: a program's own attribute of the same name would be hidden

    def __init__(self, link: Link, number: int) -> None:
        object.__setattr__(self, "remote_link", link)
        object.__setattr__(self, "remote_number", number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program's object."""
        return self.remote_link.operate("call", *args, target=self.remote_number, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return self.remote_link.operate("attr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.remote_link.operate("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self.remote_link.operate("delattr", self, name)

    def __iter__(self) -> Any:
        return self.remote_link.operate("iter", self)

    def __instancecheck__(self, other: Any) -> bool:
        return isinstance(other, Remote) and bool(self.remote_link.operate("isinstance", other, self))

    def __enter__(self) -> Any:
        return self.__getattr__("__enter__")()

    def __exit__(self, *error: Any) -> None:
        self.__getattr__("__exit__")(None, None, None)


def _forward(verb: str, cast: Callable[[Any], Any] = lambda value: value) -> Callable[..., Any]:
    def method(self: Remote, *args: Any) -> Any:
        return cast(self.remote_link.operate(verb, self, *args))

    return method


def _comparison(name: str) -> Callable[[Remote, Any], Any]:
    def method(self: Remote, other: Any) -> Any:
        if isinstance(other, Remote):
            return bool(self.remote_link.operate(name, self, other))
        plain = self.remote_link.plain(self.remote_number)
        return NotImplemented if isinstance(plain, Remote) else getattr(operator, name)(plain, other)

    return method


def _overwrite(target: Any, value: Any) -> None:
    """Give a mutable argument the content that the program left in its copy."""
    if type(target) is not type(value):
        raise wire.WireError("an argument came back as another type")
    if isinstance(target, (list, bytearray)):
        target[:] = value
    else:
        target.clear()
        target.update(value)


def _arithmetic(name: str, *, reflected: bool) -> Callable[[Remote, Any], Any]:
    """Between two objects of the program, in the program; with a plain value, here, on plain values.

    `abs(f(x) - 3.5) < 1e-6` would otherwise hand 3.5 to the program, and take its word for the difference.
    """

    def method(self: Remote, other: Any) -> Any:
        if isinstance(other, Remote):
            return self.remote_link.operate(f"r{name}" if reflected else name, self, other)
        plain = self.remote_link.plain(self.remote_number)
        if isinstance(plain, Remote):
            return NotImplemented
        return getattr(operator, name)(other, plain) if reflected else getattr(operator, name)(plain, other)

    return method


def _install() -> None:
    casts: dict[str, Callable[[Any], Any]] = {"len": int, "str": str, "repr": str, "hash": int, "bool": bool}
    casts |= {"int": int, "float": float, "complex": complex, "bytes": bytes, "index": int, "format": str, "dir": list}
    same = ("next", "abs", "round", "reversed", "neg", "pos", "invert", "getitem", "setitem", "delitem")
    for verb in (*casts, *same):
        setattr(Remote, f"__{verb}__", _forward(verb, casts.get(verb, lambda value: value)))
    for verb in ARITHMETIC:
        setattr(Remote, f"__{verb.rstrip('_')}__", _arithmetic(verb, reflected=False))
        setattr(Remote, f"__r{verb.rstrip('_')}__", _arithmetic(verb, reflected=True))
    for name in COMPARISONS:
        setattr(Remote, f"__{name}__", _comparison(name))


_install()
