"""Appends to a samples file: one writer at a time, incomplete lines repaired, a full disk survived.

Each batch of lines is one unbuffered system call, so a killed process leaves a prefix of what it wrote. Data is synced to the disk once a
second and at the end.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .decoding import Settings
from .engine import Identity, Sample
from .prompts import Prompt, digest
from .samples_file import SCHEMA, encode, scan


class SamplesWriter:
    """One samples file, open for appending; a context manager.

    Args:
      path: the file; created with its folders if needed.
      settings: must be those of the file.
      identity: must name the model of the file.
      prompts: all that will be sampled; an id that the file knows with another content is refused.
    """

    def __init__(self, path: Path, *, settings: Settings, identity: Identity, prompts: Iterable[Prompt]) -> None:
        self.path, self.settings = path, settings
        self.repaired = 0  # bytes of an incomplete line that were cut off on opening
        self._prompts = {prompt.id: prompt for prompt in prompts}
        self._written: set[str] = set()
        self._have: defaultdict[str, set[int]] = defaultdict(set)
        self._end, self._synced = 0, time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            raise ValueError(f"{path} is a symbolic link; widen does not write through links: remove it first")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            self._open(identity)
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> SamplesWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Sync to the disk and close the file."""
        try:
            os.fsync(self._fd)
        finally:
            os.close(self._fd)

    @property
    def count(self) -> int:
        """Samples in the file."""
        return sum(map(len, self._have.values()))

    def has(self, prompt: str, index: int) -> bool:
        """Whether this sample is in the file."""
        return index in self._have[prompt]

    def append(self, samples: Iterable[Sample]) -> int:
        """Write the samples that are not in the file yet; returns their number."""
        fresh = {(s.prompt, s.index): s for s in samples if not self.has(s.prompt, s.index)}
        prompts = dict.fromkeys(prompt for prompt, _ in fresh if prompt not in self._written)
        if fresh:
            records = [*(_prompt(self._prompts[prompt]) for prompt in prompts), *map(self._sample, fresh.values())]
            self._write(b"".join(map(encode, records)))
            self._written.update(prompts)
            for prompt, index in fresh:
                self._have[prompt].add(index)
        return len(fresh)

    def _open(self, identity: Identity) -> None:
        """Lock the file, read it, check that it may be continued, and cut off an incomplete line."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{self.path} is being written by another process: wait for it, or stop it") from None
        records, self._end, self.repaired = scan(self.path)
        for record in records:
            self._recall(record, identity)
        if self.repaired:
            os.ftruncate(self._fd, self._end)
        if not records:
            header = {"kind": "header", "schema": SCHEMA, "settings": self.settings.to_json()}
            self._write(encode(header | asdict(identity)))

    def _sample(self, sample: Sample) -> dict[str, Any]:
        """The record of a sample; unknown values are left out."""
        record = {"kind": "sample", "settings": self.settings.hash, "seed": self.settings.seed}
        return record | {name: value for name, value in vars(sample).items() if value is not None}

    def _recall(self, record: dict[str, Any], identity: Identity) -> None:
        if record["kind"] == "sample":
            self._have[record["prompt"]].add(record["index"])
        elif record["kind"] == "prompt":
            self._written.add(record["id"])
            mine = self._prompts.get(record["id"])
            if mine is not None and digest(mine) != record["digest"]:
                raise ValueError(
                    f"{self.path}: prompt {record['id']!r} had another text there; give the new one another id"
                )
        elif record["settings"]["hash"] != self.settings.hash:
            raise ValueError(
                f"{self.path} was drawn with other settings: {record['settings']}, not {self.settings.to_json()}"
            )
        elif record["model"] != identity.model:
            raise ValueError(
                f"{self.path} holds samples of another model: {record['model']}, not {identity.model}; choose another folder"
            )

    def _write(self, data: bytes) -> None:
        """Write all of it or nothing: a failed write is undone, so that the file always ends with a whole line."""
        start, left = self._end, memoryview(data)
        try:
            while left:
                count = os.pwrite(self._fd, left, self._end)
                self._end += count
                left = left[count:]
            if time.monotonic() - self._synced > 1.0:
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


def _prompt(prompt: Prompt) -> dict[str, Any]:
    """The record of a prompt; what it does not have is left out."""
    optional = {"without": prompt.without, "ids": prompt.ids, "messages": prompt.messages or None}
    record = {"kind": "prompt", "id": prompt.id, "digest": digest(prompt), "text": prompt.text}
    return record | {name: value for name, value in optional.items() if value is not None}
