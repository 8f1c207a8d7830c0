"""The protocol between the judged program and its examiner: frames on a pipe, values as JSON.

The program controls its end of the pipe, so decoding must never run code. A frame is a length followed by JSON, and
`decode` builds plain values only: numbers, strings, containers, a few standard library types, numpy arrays of
numbers. No pickle, no marshal. Any other object travels as a *handle*, a number that means something only in the
program's own process. Whatever is wrong with a message, the reader sees `WireError` and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import select
import struct
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from importlib import import_module
from typing import Any

FRAME_LIMIT = 16 << 20
JOB_LIMIT = 64 << 20  # of what the judge sends
LENGTH = struct.Struct(">I")
_DIRECT = frozenset([type(None), bool, str, float])
_SMALL = 1 << 62  # larger integers travel as hexadecimal: decimal conversion is quadratic and stops at 4,300 digits
_DTYPE = re.compile(r"[<>|=]?[biufcSU][0-9]{1,6}", re.ASCII)  # a numpy dtype of numbers or text


class WireError(Exception):
    """The other side sent what no honest sender sends."""


class Closed(Exception):
    """The other side is gone."""


class Late(Closed):
    """The other side did not answer in time."""


class Channel:
    """Frames over two pipes, each a length followed by JSON.

    `alive` is a pidfd of the peer: its death ends every wait, even if another process holds the pipe open. `deadline`
    is the moment on the monotonic clock after which waiting for the peer raises Late. Nothing is read in advance: on the
    judge's pipes the next frame belongs to another process.
    """

    def __init__(self, reader: int, writer: int, *, alive: int | None = None) -> None:
        self.reader, self.writer, self.alive = reader, writer, alive
        self.deadline: float | None = None

    def send(self, message: Any) -> None:
        """Write one message."""
        payload = json.dumps(message).encode()
        if len(payload) > FRAME_LIMIT:
            raise WireError(f"a message of {len(payload)} bytes is over the limit of {FRAME_LIMIT}")
        rest = LENGTH.pack(len(payload)) + payload
        while rest:
            try:
                rest = rest[os.write(self.writer, rest) :]
            except BlockingIOError:
                self._wait(self.writer, select.POLLOUT)
            except BrokenPipeError:
                raise Closed from None

    def receive(self, limit: int = FRAME_LIMIT) -> Any:
        """Read one message; hostile bytes raise WireError."""
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        if length > limit:
            raise WireError(f"a frame of {length} bytes is over the limit of {limit}")
        payload = self._read(length)
        try:
            return json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise WireError(f"not a message: {type(error).__name__}") from None

    def _read(self, count: int) -> bytes:
        chunks = []
        while count:
            if self.alive is not None:
                self._wait(self.reader, select.POLLIN)
            chunk = os.read(self.reader, count)
            if not chunk:
                raise Closed
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)

    def _wait(self, fd: int, event: int) -> None:
        """Wait for the peer; raise Closed if it dies, Late if it takes too long."""
        poller = select.poll()
        poller.register(fd, event)
        if self.alive is not None:
            poller.register(self.alive, select.POLLIN)
        left = None if self.deadline is None else max(0.0, 1000 * (self.deadline - time.monotonic()))
        ready = [found for found, _ in poller.poll(left)]
        if not ready:
            raise Late
        if fd not in ready:
            raise Closed


def encode(value: Any, opaque: Callable[[Any], dict[str, Any]]) -> Any:
    """Turn a value into JSON data.

    A list becomes an array, every other non-scalar an object with one tag. `opaque` makes the handle of a value that
    is not plain.
    """
    kind = type(value)
    if kind in _DIRECT:
        return value
    if kind is int:
        return value if -_SMALL < value < _SMALL else {"i": hex(value)}
    if kind is list:
        return [encode(item, opaque) for item in value]
    tag = _TAGS.get(f"{kind.__module__}.{kind.__qualname__}")
    if tag is not None:
        return {tag: encode(_PLAIN[tag][1](value), opaque)}
    named = [name for name, known in _TYPES.items() if known is value] if kind is type else []
    if named:
        return {"type": named[0]}
    plain = kind.__module__ == "numpy" and "numpy" in sys.modules and _encode_numpy(value)
    return plain or opaque(value)


def decode(data: Any, handle: Callable[[str, Any], Any]) -> Any:
    """Rebuild the value that `encode` wrote; `handle(tag, body)` decodes tags that are not plain data.

    Every failure is a WireError: the data may come from a hostile program.
    """
    try:
        return _decode(data, handle)
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"a value that cannot be decoded: {type(error).__name__}") from None


def _decode(data: Any, handle: Callable[[str, Any], Any]) -> Any:
    kind = type(data)
    if kind is list:
        return [_decode(item, handle) for item in data]
    if kind is not dict:
        return data
    if len(data) != 1:
        raise WireError(f"an object with {len(data)} keys is no value")
    ((tag, body),) = data.items()
    if tag in _PLAIN:
        return _PLAIN[tag][2](_decode(body, handle))
    return _RAW[tag](body) if tag in _RAW else handle(tag, body)


def base_value(value: Any) -> Any:
    """Return the plain value of an instance of a plain type's subclass, e.g. a namedtuple or an IntEnum.

    Any other object is returned unchanged.
    """
    if isinstance(value, (type({}.keys()), type({}.items()))):
        return set(value)
    if isinstance(value, str) and type(value) is not str:
        return str.__str__(value)  # not str(value): an Enum of strings prints as its name
    kinds: tuple[Any, ...] = (int, float, complex, bytes, tuple, list, set, frozenset, dict)
    return next((kind(value) for kind in kinds if isinstance(value, kind) and type(value) is not kind), value)


# Types that a test may pass or receive. No builtin function travels by name: a test that received `eval` could run
# what the program returned.
_TYPES = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, range, object, type(None))
}


def _pairs(value: Any) -> list[Any]:
    return [[key, item] for key, item in value.items()]


def _latin(text: Any) -> bytes:
    return str.encode(text, "latin-1")


# Plain values other than JSON's own: tag, class, what to encode in its place, how to rebuild it from that.
_PLAIN: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "t": ("builtins.tuple", list, tuple),
    "d": ("builtins.dict", _pairs, dict),
    "s": ("builtins.set", list, set),
    "f": ("builtins.frozenset", list, frozenset),
    "b": ("builtins.bytes", lambda v: v.decode("latin-1"), _latin),
    "B": ("builtins.bytearray", lambda v: v.decode("latin-1"), lambda b: bytearray(_latin(b))),
    "c": ("builtins.complex", lambda v: [v.real, v.imag], lambda b: complex(*b)),
    "r": ("builtins.range", lambda v: [v.start, v.stop, v.step], lambda b: range(*b)),
    "q": ("collections.deque", lambda v: [list(v), v.maxlen], lambda b: deque(b[0], b[1])),
    "C": ("collections.Counter", _pairs, lambda b: Counter(dict(b))),
    "o": ("collections.OrderedDict", _pairs, OrderedDict),
    "D": ("decimal.Decimal", str, lambda b: import_module("decimal").Decimal(b)),
    "F": (
        "fractions.Fraction",
        lambda v: [v.numerator, v.denominator],
        lambda b: import_module("fractions").Fraction(b[0], b[1]),
    ),
    "day": ("datetime.date", lambda v: v.isoformat(), lambda b: import_module("datetime").date.fromisoformat(b)),
    "time": (
        "datetime.datetime",
        lambda v: v.isoformat(),
        lambda b: import_module("datetime").datetime.fromisoformat(b),
    ),
    "span": (
        "datetime.timedelta",
        lambda v: [v.days, v.seconds, v.microseconds],
        lambda b: import_module("datetime").timedelta(*b),
    ),
}
_TAGS = {name: tag for tag, (name, _, _) in _PLAIN.items()}
# Tags whose body is read as it is.
_RAW: dict[str, Callable[[Any], Any]] = {
    "i": lambda b: int(b, 16),
    "type": lambda b: _TYPES[b],
    "n": lambda b: _decode_numpy(b),
}


def _encode_numpy(value: Any) -> dict[str, Any] | None:
    import numpy

    array = numpy.asarray(value)
    if not isinstance(value, (numpy.ndarray, numpy.generic)) or array.dtype.kind not in "biufcSU":
        return None
    is_array = isinstance(value, numpy.ndarray)
    return {"n": [array.dtype.str, list(array.shape), array.tobytes().decode("latin-1"), is_array]}


def _decode_numpy(body: Any) -> Any:
    import numpy

    name, shape, raw, is_array = body
    if not _DTYPE.fullmatch(name):
        raise WireError("a numpy array of another type")
    array = numpy.frombuffer(raw.encode("latin-1"), dtype=name).reshape([int(n) for n in shape]).copy()
    return array if is_array else array[()]
