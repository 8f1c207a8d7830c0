"""Appends to a samples file: one writer at a time, torn ends repaired, a full disk survived.

Lines are written with one system call a batch and no buffer, so that a killed process leaves a prefix of what it wrote. They are pushed
to the disk itself once a second and at the end: a killed process loses nothing, a lost machine at most that second.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from .decoding import Settings
from .engine import Identity, Sample
from .prompts import Prompt, digest
from .samples_file import encode, header_record, prompt_record, sample_record, scan

__all__ = ["SamplesWriter"]


class SamplesWriter:
    """One samples file, open for appending; a context manager.

    Args:
      path: the file; made, with its folders, if it is not there.
      settings: must be those of the file, if it has any samples.
      identity: must name the model of the file.
      prompts: all that will be sampled; an id that the file knows with another content is refused.
    """

    def __init__(self, path: Path, *, settings: Settings, identity: Identity, prompts: Iterable[Prompt]) -> None:
        self.path, self.settings = path, settings
        self.repaired = 0
        """Bytes of a torn line that were cut off on opening."""
        self._prompts = {prompt.id: prompt for prompt in prompts}
        self._written: set[str] = set()
        self._have: dict[str, set[int]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            raise ValueError(f"{path} is a symbolic link; widen does not write through links: remove it first")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            self._lock()
            self._end = self._recover(identity)
        except BaseException:
            os.close(self._fd)
            raise
        self._synced = time.monotonic()

    def __enter__(self) -> SamplesWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Push everything to the disk and let go of the file."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    @property
    def count(self) -> int:
        """Samples in the file."""
        return sum(map(len, self._have.values()))

    def has(self, prompt: str, index: int) -> bool:
        """Whether this sample is in the file."""
        return index in self._have.get(prompt, ())

    def append(self, samples: Iterable[Sample]) -> int:
        """Write the samples that are not there yet; returns how many those were."""
        lines: list[bytes] = []
        fresh: list[Sample] = []
        prompts: list[str] = []
        seen: set[tuple[str, int]] = set()
        for sample in samples:
            at = (sample.prompt, sample.index)
            if self.has(*at) or at in seen:
                continue
            seen.add(at)
            if sample.prompt not in self._written and sample.prompt not in prompts:
                prompts.append(sample.prompt)
                lines.append(encode(prompt_record(self._prompts[sample.prompt])))
            lines.append(encode(sample_record(sample, self.settings)))
            fresh.append(sample)
        if lines:
            self._write(b"".join(lines))
            self._written.update(prompts)
            for sample in fresh:
                self._have.setdefault(sample.prompt, set()).add(sample.index)
        return len(fresh)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{self.path} is being written by another process: wait for it, or stop it") from None

    def _recover(self, identity: Identity) -> int:
        """Read what is there, check that it is ours to continue, cut off a torn end; returns where to write."""
        lines, self.repaired = scan(self.path)
        end = lines[-1].end if lines else 0
        if lines:
            self._check(lines[0].record, identity)
        for record, _ in lines[1:]:
            if record["kind"] == "sample":
                self._have.setdefault(record["prompt"], set()).add(record["index"])
            elif record["kind"] == "prompt":
                self._written.add(record["id"])
                mine = self._prompts.get(record["id"])
                if mine is not None and digest(mine) != record["digest"]:
                    raise ValueError(
                        f"{self.path}: prompt {record['id']!r} had another text there; give the new one another id"
                    )
        if self.repaired:
            os.ftruncate(self._fd, end)
        if not lines:
            self._end = 0
            self._write(encode(header_record(self.settings, identity)))
            return self._end
        return end

    def _check(self, header: dict[str, object], identity: Identity) -> None:
        if header["settings"]["hash"] != self.settings.hash:  # type: ignore[index]
            raise ValueError(
                f"{self.path} was drawn with other settings: {header['settings']}, not {self.settings.to_json()}"
            )
        if header["model"] != identity.model:
            raise ValueError(
                f"{self.path} holds samples of another model: {header['model']}, not {identity.model}; choose another folder"
            )

    def _write(self, data: bytes) -> None:
        """All of it, or none: a failed write is taken back, so that the file always ends with a whole line."""
        start, left = self._end, memoryview(data)
        try:
            while left:
                count = os.pwrite(self._fd, left, self._end)
                self._end += count
                left = left[count:]
            if time.monotonic() - getattr(self, "_synced", 0.0) > 1.0:
                os.fsync(self._fd)
                self._synced = time.monotonic()
        except OSError as error:
            self._end = start
            os.ftruncate(self._fd, start)
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise OSError(
                    error.errno,
                    f"no room left to write; the {self.count} samples in the file are whole: make room and run the same command again",
                    str(self.path),
                ) from error
            raise
