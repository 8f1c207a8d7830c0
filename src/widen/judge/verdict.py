"""The verdict on one program, and the file that keeps verdicts.

The file is append-only JSON lines: a key (a hash of everything that the verdict depends on), the verdict, a checksum.
A judge that was killed continues where it stopped: complete lines are kept, an incomplete last line is dropped.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import IO, Any, Generic, NamedTuple, TypeVar

STATUSES = ("passed", "failed", "error", "timeout", "memory", "output", "forbidden")
"""What can become of a program; only ``passed`` counts as right."""
SCHEMA = 1
Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One program's verdict.

    Args:
        status: passed; failed (a wrong answer); error (it raised, exited early, or could not be run or read);
            timeout (wall clock or processor); memory; output (it printed too much); forbidden (the sandbox refused
            an action).
        detail: one line about the first test that did not pass.
        tests_passed: tests seen to pass; after a failure some tests may not have been tried.
        tests: all tests.
        seconds: wall-clock time inside the sandbox, including repeated runs.
        apart: tests were run again separately, one process each, and the verdict rests on those runs.
    """

    status: str
    detail: str = ""
    tests_passed: int
    tests: int
    seconds: float
    apart: bool = False

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status={self.status!r}: one of {', '.join(STATUSES)}")

    @property
    def passed(self) -> bool:
        """Whether all tests passed."""
        return self.status == "passed"


class Count(NamedTuple):
    """Of one problem, n programs were judged and c passed, as `pass_at_k(n, c, k)` takes them."""

    problem: str
    n: int
    c: int


def content_key(content: Any) -> str:
    """Return a hash of JSON data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


class VerdictFile(Generic[Kept]):
    """Verdicts of one dataclass, `kind`, by key, kept on disk; a context manager that locks the file against a second writer.

    `keys` has one entry per item that needs a verdict; equal keys share one. Without a path the file is temporary.
    `progress` is called with (items that have a verdict, all items) after each new verdict.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        kind: type[Kept],
        *,
        keys: Sequence[str] = (),
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.path, self.kind, self.keys, self.progress = path and os.fspath(path), kind, keys, progress
        self.known: dict[str, Kept] = {}

    def __enter__(self) -> VerdictFile[Kept]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file: IO[bytes]
        try:
            self._file = open(os.open(self.path, flags, 0o666), "a+b") if self.path else TemporaryFile()
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise ValueError(f"verdicts_path={self.path!r}: is a symbolic link; give the file itself") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._load()
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"verdicts_path={self.path!r}: another judge is writing to it") from None
        except BaseException:
            self._file.close()
            raise
        self._repeats = Counter(self.keys)
        self._done = sum(count for key, count in self._repeats.items() if key in self.known)
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync(self._file.fileno())
        self._file.close()

    def verdicts(self) -> list[Kept]:
        """Return the verdicts in the order of `keys`."""
        return [self.known[key] for key in self.keys]

    def _load(self) -> None:
        """Read every complete record; cut off an incomplete last line, so that the next record starts a new line."""
        self._file.seek(0)
        whole, bad = 0, []
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                record = json.loads(line)
                check = record.pop("check")
                if record["v"] != SCHEMA or check != _check(record):
                    raise ValueError("a damaged record")
                self.known[record["key"]] = self.kind(**record["verdict"])
            except (ValueError, KeyError, TypeError, AttributeError):
                bad.append(number)
        self._file.truncate(whole)
        if bad:
            warnings.warn(
                f"{self.path}: {len(bad)} damaged records (first: line {bad[0]}); what they judged is judged again",
                RuntimeWarning,
                stacklevel=4,
            )

    def add(self, key: str, verdict: Kept) -> None:
        """Append one record in one write: a kill may cut it off but cannot mix it with another."""
        body = {"v": SCHEMA, "key": key, "verdict": asdict(verdict)}  # type: ignore[call-overload]  # a dataclass
        self._file.write(json.dumps({**body, "check": _check(body)}).encode() + b"\n")
        self._file.flush()
        self.known[key] = verdict
        self._done += self._repeats[key]
        if self.progress is not None:
            self.progress(self._done, len(self.keys))


def _check(body: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(body, sort_keys=True).encode()):08x}"
