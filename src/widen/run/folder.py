"""The run folder: one trained model and everything made from it.

    config.json env.json log.jsonl checkpoint/ samples/<decoding>.jsonl scores/<name>.json

Links that lead out of the folder are refused: the folder may come from a stranger. Every JSON file carries ``schema`` and a checksum.
Writes are atomic.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from widen.disk.inside import inside, tree_inside
from widen.disk.json_file import read_json, write_sealed

SCHEMA = 1
"""Version of the files written here. Scores have their own (`widen.run.record`)."""

StageProgress = Callable[[str, int, int], None]
"""Called with (what, done, total)."""
Say = Callable[[str], None]
"""Called with a sentence."""


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def config(self) -> Path:
        """The experiment, as JSON."""
        return inside(self.path, self.path / "config.json")

    @property
    def log(self) -> Path:
        """One JSON line per logged step."""
        return inside(self.path, self.path / "log.jsonl")

    @property
    def checkpoint(self) -> Path:
        """The trained model: safetensors and JSON."""
        return tree_inside(self.path, self.path / "checkpoint")

    @property
    def is_trained(self) -> bool:
        """Whether the model is finished; its config.json is written last."""
        return (self.path / "checkpoint" / "config.json").exists()

    def samples(self, name: str) -> Path:
        """Samples drawn with one set of decoding settings."""
        return inside(self.path, self.path / "samples" / f"{name}.jsonl")

    def scores(self, name: str) -> Path:
        """The records of one score."""
        return inside(self.path, self.path / "scores" / f"{name}.json")

    def claim(self, experiment: dict[str, Any], env: dict[str, Any]) -> None:
        """Write config.json and env.json; refuse a folder with another model."""
        if not self.config.exists():
            self.write(self.config, {"experiment": experiment})
            self.write(self.path / "env.json", env)
        elif experiment["model"] != self.read(self.config)["experiment"].get("model"):
            raise ValueError(f"{self.path} holds another model; choose another folder, or remove it")

    def write(self, path: Path, content: dict[str, Any], *, schema: int = SCHEMA) -> None:
        """Write one JSON file with its checksum, atomically."""
        write_sealed(inside(self.path, path), {"schema": schema, **content})

    def read(self, path: Path, *, schema: int = SCHEMA) -> dict[str, Any]:
        """Read one JSON file and check its checksum and schema."""
        try:
            content = read_json(inside(self.path, path))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} is not there: is {self.path} a run folder, and has that stage run?"
            ) from None
        found = content.get("schema") if isinstance(content, dict) else None
        if not isinstance(content, dict) or found != schema:
            raise ValueError(f"{path} has schema {found!r}; this version of widen reads schema {schema}")
        return content


def folder_of(root: str | Path, owner: Any) -> RunFolder:
    """The run folder of an experiment or a fine-tuning, by its ``folder_name``."""
    return RunFolder(Path(root) / owner.folder_name)
