"""One JSON request to a server.

If the connection or the answer fails (refused, reset, incomplete, too long, too slow, not JSON, status 500), `ServerFault` is raised: the
same request may succeed later. If the server says that the request is wrong, `Refusal` is raised.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

LIMIT = 16 << 20  # bytes of an answer
LONGEST_PAUSE = 60.0  # seconds that a server may ask us to wait
CONNECT = 10.0  # seconds in which a server must accept a connection


class ServerFault(OSError):
    """The server or the connection failed; the same request may succeed later or elsewhere.

    Args:
      wait: seconds that the server asked us to wait (Retry-After), at most `LONGEST_PAUSE`; or 0.
    """

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Refusal(ValueError):
    """The server understood the request and will not do it."""


class Client:
    """Sends requests from any number of threads; each must be answered completely within `timeout` seconds."""

    def __init__(self, *, timeout: float) -> None:
        self.timeout = timeout
        self._open: set[socket.socket] = set()
        self._aborted = False

    def abort(self) -> None:
        """End all requests under way, and all later ones, with a `ServerFault`."""
        self._aborted = True
        for sock in list(self._open):
            _hang_up(sock)

    def request(
        self, base: str, path: str, body: dict[str, Any] | None = None, *, limit: int = LIMIT
    ) -> dict[str, Any]:
        """GET `path`, or POST `body` to it; returns the answer's JSON object.

        Args:
          base: such as ``http://127.0.0.1:8000``; a path in it is kept.
          limit: bytes that the answer may have.
        """
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{base!r} is not the address of a server, such as http://127.0.0.1:8000")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=min(self.timeout, CONNECT))
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        began = time.monotonic()
        try:
            connection.connect()
            sock = connection.sock
            sock.settimeout(self.timeout)
            # A socket's own timeout starts again with every byte, so a server that drips bytes would never reach it.
            deadline = threading.Timer(self.timeout, _hang_up, (sock,))
            deadline.daemon = True
            deadline.start()
            self._open.add(sock)
            try:
                if not self._aborted:
                    connection.request("GET" if data is None else "POST", parts.path.rstrip("/") + path, data, headers)
                    with connection.getresponse() as answer:
                        text = answer.read(limit + 1)
                if time.monotonic() - began >= self.timeout or self._aborted:
                    raise ConnectionAbortedError("the request was cancelled")  # what was read ends where we hung up
            finally:
                self._open.discard(sock)
                deadline.cancel()
            if len(text) > limit:
                raise OSError(f"the answer has more than {limit / 2**20:.3g} MiB")
            if answer.length:
                raise OSError(f"the answer broke off after {len(text)} bytes")
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = time.monotonic() - began >= self.timeout
            reason = f"no complete answer within {self.timeout:g} s" if late else str(error) or type(error).__name__
            raise ServerFault(f"{base}: {reason}") from None
        finally:
            connection.close()
        return _parse(base, answer, text)


def _hang_up(sock: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # a TLS socket's own method would close it under its reader


def _parse(base: str, answer: http.client.HTTPResponse, text: bytes) -> dict[str, Any]:
    said = text[:300].decode("utf-8", "replace")
    if answer.status == 429 or answer.status >= 500:
        after = answer.getheader("Retry-After", "")
        wait = min(LONGEST_PAUSE, float(after[:6])) if after.isascii() and after.isdecimal() else 0.0
        raise ServerFault(f"{base}: status {answer.status} {said}".rstrip(), wait=wait)
    if answer.status >= 400:
        raise Refusal(f"{base} refuses the request ({answer.status}): {said}")
    if answer.status >= 300:
        raise ServerFault(f"{base}: status {answer.status}: a redirect; give the final address")
    content = None
    with suppress(ValueError, RecursionError):
        content = json.loads(text or b"{}")
    if not isinstance(content, dict):
        raise ServerFault(f"{base}: the answer is not a JSON object ({len(text)} bytes)")
    return content
