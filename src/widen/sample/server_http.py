"""One JSON request to a server, by the standard library; every way in which it can fail has a name.

Whatever is wrong with the line or the answer (refused, reset, cut in mid-body, not JSON, a
status of 500) is a `ServerFault`, worth another try; an answer that says the request is wrong is a `Refusal`, and is not.
"""

from __future__ import annotations

import http.client
import json
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Lines", "Refusal", "ServerFault", "request"]


class ServerFault(OSError):
    """The server, or the line to it, failed; the same request may succeed later or elsewhere.

    Args:
      wait: seconds that the server asked us to wait (Retry-After), or 0.
    """

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Refusal(ValueError):
    """The server understood the request and will not do it."""


class Lines:
    """Kept connections to servers, for one thread; a context manager that closes them.

    Args:
      timeout: seconds without a byte after which an answer is given up.
    """

    def __init__(self, *, timeout: float) -> None:
        self.timeout = timeout
        self._open: dict[str, http.client.HTTPConnection] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for base in list(self._open):
            self._drop(base)

    def request(self, base: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """GET `path`, or POST `body` to it; the answer's JSON object.

        Args:
          base: such as ``http://127.0.0.1:8000``; a path in it is kept.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        fresh = base not in self._open
        connection = self._connect(base)
        try:
            connection.request("GET" if data is None else "POST", urlsplit(base).path.rstrip("/") + path, data, headers)
            with connection.getresponse() as answer:
                text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._drop(base)
            # A server closes a kept connection when it likes; that says nothing about its health. A new one decides.
            if not fresh and isinstance(error, (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)):
                return self.request(base, path, body)
            raise ServerFault(f"{base}: {_reason(error, self.timeout)}") from None
        if answer.will_close:
            self._drop(base)
        return _parse(base, answer, text)

    def _connect(self, base: str) -> http.client.HTTPConnection:
        if base not in self._open:
            parts = urlsplit(base)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"{base!r} is not the address of a server, such as http://127.0.0.1:8000")
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            self._open[base] = kind(parts.hostname, parts.port, timeout=self.timeout)
        return self._open[base]

    def _drop(self, base: str) -> None:
        self._open.pop(base).close()


def request(base: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> dict[str, Any]:
    """One request on a connection of its own; see :meth:`Lines.request`."""
    with Lines(timeout=timeout) as lines:
        return lines.request(base, path, body)


def _parse(base: str, answer: http.client.HTTPResponse, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text) if text else {}
    except ValueError:
        content = None
    if answer.status == 429 or answer.status >= 500:
        after = answer.getheader("Retry-After", "")
        wait = float(after) if after.isdigit() else 0.0
        raise ServerFault(f"{base}: status {answer.status} {_message(content, text)}".rstrip(), wait=wait)
    if answer.status >= 400:
        raise Refusal(f"{base} refuses the request ({answer.status}): {_message(content, text)}")
    if not isinstance(content, dict):
        raise ServerFault(f"{base}: the answer is not a JSON object ({len(text)} bytes)")
    return content


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
        return f"no answer within {timeout:g} s"
    if isinstance(error, http.client.IncompleteRead):
        return f"the answer broke off after {len(error.partial)} bytes"
    return str(error) or type(error).__name__
