"""The run folder: one trained model and everything made from it.

    config.json env.json log.jsonl checkpoint/ samples/<decoding>.jsonl scores/<name>.json

A link that leads out of the folder is refused, for the folder may come from a stranger. Every JSON file carries ``schema`` and the
checksum of its content. Writes are atomic: neither a reader nor a killed run leaves or sees half a file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from widen.disk.inside import inside, tree_inside
from widen.disk.json_file import read_json, write_sealed

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
        """Whether the finished model is there; its config.json is written last."""
        return (self.path / "checkpoint" / "config.json").exists()

    def samples(self, name: str) -> Path:
        """Samples drawn with one set of decoding settings."""
        return inside(self.path, self.path / "samples" / f"{name}.jsonl")

    def scores(self, name: str) -> Path:
        """The records of one score."""
        return inside(self.path, self.path / "scores" / f"{name}.json")

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
        """Write one JSON file, with its checksum, in one move."""
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
    """The run folder of an experiment or a fine-tuning, by its ``folder_name``: one per trained model, whoever asks for it."""
    return RunFolder(Path(root) / owner.folder_name)
