"""Spreads requests over servers: each goes to the least loaded healthy one, and a server that keeps failing is dropped.

A failing server gets no requests for a pause, then a single trial. The pause doubles with each failed trial, up to a minute. Failures of
requests that were under way together count once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .http import ServerFault

Notice = Callable[[str], None]


class AllServersDown(OSError):
    """No server is left."""


@dataclass
class Server:
    """One base URL and its state."""

    url: str
    in_flight: int = 0
    served: int = 0
    failures: int = 0
    last_failure: float = -1.0
    retry_at: float = 0.0
    dropped: str = ""


class Pool:
    """The servers of one engine; safe to use from many threads.

    Args:
      max_failures: failures in a row after which a server is dropped.
      back_off: seconds before the first new trial; doubled each time, at most 60.
      notice: called with a sentence when a server is dropped.
    """

    def __init__(
        self, urls: Sequence[str], *, max_failures: int = 6, back_off: float = 0.5, notice: Notice | None = None
    ) -> None:
        if not urls:
            raise ValueError("no server: give at least one base URL, such as http://127.0.0.1:8000")
        if len(set(urls)) != len(urls):
            raise ValueError(f"a server is named twice among {', '.join(urls)}")
        self.servers = [Server(url.rstrip("/").removesuffix("/v1")) for url in urls]
        self.max_failures, self.back_off, self.notice = max_failures, back_off, notice
        self._changed = threading.Condition()
        self._stopped = False

    @property
    def alive(self) -> list[Server]:
        """Servers that have not been dropped."""
        return [server for server in self.servers if not server.dropped]

    def check(self) -> None:
        """Raise an error that says why each server was dropped, if none is left."""
        if not self.alive:
            raise AllServersDown("; ".join(f"{s.url} was dropped ({s.dropped})" for s in self.servers))

    def run(self, on: bool) -> None:
        """Hand out servers, or wake all who wait for one with `AllServersDown`."""
        with self._changed:
            self._stopped = not on
            self._changed.notify_all()

    @contextmanager
    def lease(self) -> Iterator[Server]:
        """A server to send one request to. A ServerFault raised inside counts against the server."""
        server, begun = self._take(), time.monotonic()
        try:
            yield server
            server.failures = 0
        except ServerFault as fault:
            with self._changed:
                if begun > server.last_failure:
                    server.failures += 1
                    server.last_failure = time.monotonic()
                    pause = min(60.0, self.back_off * 2 ** (server.failures - 1))
                    server.retry_at = server.last_failure + max(pause, fault.wait)
            if server.failures >= self.max_failures:
                self.drop(server, f"{server.failures} failures in a row, the last: {fault}")
            raise
        finally:
            with self._changed:
                server.in_flight -= 1
                self._changed.notify_all()

    def drop(self, server: Server, reason: str) -> None:
        """Send this server nothing more."""
        with self._changed:
            if server.dropped:
                return
            server.dropped = reason
            left = len(self.alive)
        if self.notice is not None:
            rest = f"its work goes to the other {left}" if left else "no server is left"
            self.notice(f"{server.url} is dropped ({reason}); {rest}")

    def _take(self) -> Server:
        with self._changed:
            while True:
                if self._stopped:
                    raise AllServersDown("stopped")
                self.check()
                now = time.monotonic()
                # A failing server gets one request at a time, and only after its pause.
                ready = [s for s in self.alive if s.failures == 0 or (s.retry_at <= now and s.in_flight == 0)]
                if ready:
                    server = min(ready, key=lambda s: (s.in_flight, s.served))
                    server.in_flight += 1
                    server.served += 1
                    return server
                wake = min((s.retry_at for s in self.alive if s.in_flight == 0), default=now + 1.0)
                self._changed.wait(max(0.01, wake - now))
