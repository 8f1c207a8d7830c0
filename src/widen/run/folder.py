"""The run folder: one trained model and everything made from it.

    config.json env.json log.jsonl checkpoint/ samples/<decoding>.jsonl scores/<name>.json

Every JSON file carries ``schema``. Writes are atomic: a reader, or a run that was killed, never sees half a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

SCHEMA = 1
"""Version of the files written here; raised when their meaning changes. Scores have their own (`widen.run.record`)."""

StageProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


class RunFolder:
    """Paths and files of one run. It holds no state of its own: the files are the state."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def config(self) -> Path:
        """The experiment, as JSON."""
        return self.path / "config.json"

    @property
    def log(self) -> Path:
        """One JSON line per logged step."""
        return self.path / "log.jsonl"

    @property
    def checkpoint(self) -> Path:
        """The trained model: safetensors and JSON."""
        return self.path / "checkpoint"

    @property
    def is_trained(self) -> bool:
        """Whether the finished model is there; its config.json is written last."""
        return (self.checkpoint / "config.json").exists()

    def samples(self, name: str) -> Path:
        """Samples drawn with one set of decoding settings."""
        return self.path / "samples" / f"{name}.jsonl"

    def scores(self, name: str) -> Path:
        """The records of one score."""
        return self.path / "scores" / f"{name}.json"

    def claim(self, config: dict[str, Any], env: dict[str, Any], *, decides: tuple[str, ...]) -> None:
        """Make the folder this experiment's. A folder that belongs to another experiment is refused and left as it is.

        Args:
          decides: the keys of ``config`` that must agree; others, such as a name, may differ between recipes that share a model.
        """
        if self.config.exists():
            theirs = self.read(self.config)["experiment"]
            differs = [key for key in decides if config.get(key) != theirs.get(key)]
            if differs:
                raise ValueError(
                    f"{self.path} holds another experiment (they differ in {', '.join(differs)}); choose another folder, or remove it"
                )
            return
        self.write(self.config, {"experiment": config})
        self.write(self.path / "env.json", env)

    def write(self, path: Path, content: dict[str, Any], *, schema: int = SCHEMA) -> None:
        """Write one JSON file in one move."""
        write_text(path, json.dumps({"schema": schema, **content}, indent=1))

    def read(self, path: Path, *, schema: int = SCHEMA) -> dict[str, Any]:
        """Read one JSON file and check its schema."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} is not there: is {self.path} a run folder, and has that stage run?"
            ) from None
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not JSON: {error}") from None
        found = content.get("schema") if isinstance(content, dict) else None
        if not isinstance(content, dict) or found != schema:
            raise ValueError(f"{path} has schema {found!r}; this version of widen reads schema {schema}")
        return content


def write_text(path: Path, text: str) -> None:
    """Write one text file in one move, so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


@runtime_checkable
class Named(Protocol):
    """Whatever has a run folder: an experiment, or a fine-tuning."""

    @property
    def folder_name(self) -> str:
        """The folder's name."""
        ...


def folder_of(root: str | Path, owner: Named) -> RunFolder:
    """The run folder of an experiment or a fine-tuning: one per trained model, whoever asks for it."""
    return RunFolder(Path(root) / owner.folder_name)
