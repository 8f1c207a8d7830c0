"""One JSON request to a server, by the standard library; every way in which it can fail has a name.

A failure of the connection or of the answer (refused, reset, cut off, too long, too slow, not JSON, status 500) is a `ServerFault`: the
same request may succeed later. An answer that says that the request is wrong is a `Refusal`.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import threading
import time
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

__all__ = ["LIMIT", "Lines", "Refusal", "ServerFault", "request"]

LIMIT = 16 << 20
"""Bytes that an answer may have, unless the caller expects more."""
LONGEST_PAUSE = 60.0
"""Seconds that a server may ask us to wait."""
CONNECT = 10.0
"""Seconds in which a server must accept a connection."""
TICK = 0.25
"""Seconds between two looks at whether the request was cancelled."""


class ServerFault(OSError):
    """The server, or the line to it, failed; the same request may succeed later or elsewhere.

    Args:
      wait: seconds that the server asked us to wait (Retry-After), at most `LONGEST_PAUSE`; or 0.
    """

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Refusal(ValueError):
    """The server understood the request and will not do it."""


class Lines:
    """Kept connections to servers, for one thread; a context manager that closes them.

    Args:
      timeout: seconds in which a request must be answered completely.
      cancel: once it is set, a request under way ends within `TICK` seconds, as a fault.
    """

    def __init__(self, *, timeout: float, cancel: threading.Event | None = None) -> None:
        self.timeout, self.cancel = timeout, cancel or threading.Event()
        self._open: dict[str, http.client.HTTPConnection] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for base in list(self._open):
            self._drop(base)

    def request(
        self, base: str, path: str, body: dict[str, Any] | None = None, *, limit: int = LIMIT
    ) -> dict[str, Any]:
        """GET `path`, or POST `body` to it; returns the answer's JSON object.

        Args:
          base: such as ``http://127.0.0.1:8000``; a path in it is kept.
          limit: bytes that the answer may have, headers included.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        fresh = base not in self._open
        connection = self._connect(base)
        guard = _Guard(deadline=time.monotonic() + self.timeout, limit=limit, cancel=self.cancel)
        connection.response_class = lambda sock, **options: http.client.HTTPResponse(guard.on(sock), **options)  # type: ignore
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(self.timeout)  # for the request; the guard sets its own for the answer
            connection.request("GET" if data is None else "POST", urlsplit(base).path.rstrip("/") + path, data, headers)
            with connection.getresponse() as answer:
                text = _body(answer)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._drop(base)
            # A server may close a kept connection at any time; that says nothing about its health. A new connection decides.
            if not fresh and isinstance(error, (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)):
                return self.request(base, path, body, limit=limit)
            raise ServerFault(f"{base}: {_reason(error, self.timeout)}") from None
        except BaseException:
            self._drop(base)  # interrupted in the middle: the connection cannot be used again
            raise
        if answer.will_close:
            self._drop(base)
        return _parse(base, answer, text)

    def _connect(self, base: str) -> http.client.HTTPConnection:
        if base not in self._open:
            parts = urlsplit(base)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"{base!r} is not the address of a server, such as http://127.0.0.1:8000")
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            self._open[base] = kind(parts.hostname, parts.port, timeout=min(self.timeout, CONNECT))
        return self._open[base]

    def _drop(self, base: str) -> None:
        self._open.pop(base).close()


class _Guard(io.RawIOBase):
    """The bytes that a server sends, up to a deadline, a limit and a cancellation: however slowly they drip, it ends.

    A timeout of the socket alone would start again with every byte.
    """

    def __init__(self, *, deadline: float, limit: int, cancel: threading.Event) -> None:
        self.deadline, self.limit, self.left, self.cancel = deadline, limit, limit, cancel

    def on(self, sock: socket.socket) -> _Guard:
        self.sock, self.held = sock, sock.makefile("rb", buffering=0)  # `held` keeps the socket open until we close
        return self

    def makefile(self, mode: str) -> io.BufferedReader:
        """What HTTPResponse asks a socket for."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self.cancel.is_set():
                raise ConnectionAbortedError("the request was cancelled")
            remaining = self.deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self.sock.settimeout(min(TICK, remaining))
            try:
                count = self.sock.recv_into(buffer)
            except TimeoutError:
                continue
            self.left -= count
            if self.left < 0:
                raise OSError(f"the answer has more than {self.limit / 2**20:.3g} MiB")
            return count

    def close(self) -> None:
        if not self.closed and hasattr(self, "held"):
            self.held.close()
        super().close()


def request(
    base: str, path: str, body: dict[str, Any] | None = None, *, timeout: float, limit: int = LIMIT,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One request on a connection of its own; see :meth:`Lines.request`."""
    with Lines(timeout=timeout, cancel=cancel) as lines:
        return lines.request(base, path, body, limit=limit)


def _body(answer: http.client.HTTPResponse) -> bytes:
    """The whole body, piece by piece: memory for all that a server announces is never set aside at once."""
    pieces = []
    while piece := answer.read(1 << 16):
        pieces.append(piece)
    if answer.length:
        raise http.client.IncompleteRead(b"".join(pieces), answer.length)
    return b"".join(pieces)


def _parse(base: str, answer: http.client.HTTPResponse, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        content = None
    if answer.status == 429 or answer.status >= 500:
        wait = _pause(answer.getheader("Retry-After", ""))
        raise ServerFault(f"{base}: status {answer.status} {_message(content, text)}".rstrip(), wait=wait)
    if answer.status >= 400:
        raise Refusal(f"{base} refuses the request ({answer.status}): {_message(content, text)}")
    if answer.status >= 300:
        raise ServerFault(f"{base}: status {answer.status}: it sends us elsewhere; give the final address")
    if not isinstance(content, dict):
        raise ServerFault(f"{base}: the answer is not a JSON object ({len(text)} bytes)")
    return content


def _pause(after: str) -> float:
    """Seconds of a Retry-After header, at most `LONGEST_PAUSE`; 0 if it is a date or nonsense."""
    if not (after.isascii() and after.isdecimal()):
        return 0.0
    return LONGEST_PAUSE if len(after) > 5 else min(LONGEST_PAUSE, float(after))


def _message(content: Any, text: bytes) -> str:
    """What the server says was wrong."""
    if isinstance(content, dict):
        error = content.get("error", content.get("detail", content.get("message")))
        if isinstance(error, dict):
            error = error.get("message", error)
        if error is not None:
            return str(error)[:300]
    return text[:200].decode("utf-8", "replace")


def _reason(error: BaseException, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no complete answer within {timeout:g} s"
    if isinstance(error, http.client.IncompleteRead):
        return f"the answer broke off after {len(error.partial)} bytes"
    return str(error) or type(error).__name__
