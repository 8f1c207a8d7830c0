"""The run folder: one trained model and everything made from it.

    config.json env.json log.jsonl checkpoint/ samples/<settings>.jsonl scores/<settings>.json report.html

A link that leads out of the folder is refused, for the folder may come from a stranger. Every JSON file carries ``schema`` and the
checksum of its content. Writes are atomic: neither a reader nor a killed run leaves or sees half a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from widen.disk.inside import inside, tree_inside
from widen.disk.json_file import read_json, write_sealed

SCHEMA = 1
"""Version of every file written here; a change in meaning raises it."""


class RunFolder:
    """Paths and files of one run. It holds no state of its own: what is on disk is the state."""

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

    def samples(self, settings: str) -> Path:
        """Samples drawn with one set of decoding settings."""
        return inside(self.path, self.path / "samples" / f"{settings}.jsonl")

    def scores(self, settings: str) -> Path:
        """Scores of one kind."""
        return inside(self.path, self.path / "scores" / f"{settings}.json")

    def claim(self, config: dict[str, Any], env: dict[str, Any], *, decides: tuple[str, ...]) -> None:
        """Make the folder this experiment's; a folder that already belongs to another one is refused, and left as it is.

        Args:
          decides: the keys of ``config`` that must agree; the others (a name, what the paper printed) may differ between recipes
            that share a model.
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

    def write(self, path: Path, content: dict[str, Any]) -> None:
        """Write one JSON file, with its checksum, in one move."""
        write_sealed(inside(self.path, path), {"schema": SCHEMA, **content})

    def read(self, path: Path) -> dict[str, Any]:
        """Read one JSON file and check its checksum and schema."""
        try:
            content = read_json(inside(self.path, path))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} is not there: is {self.path} a run folder, and has that stage run?"
            ) from None
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            found = content.get("schema") if isinstance(content, dict) else None
            raise ValueError(f"{path} has schema {found!r}; this version of widen reads schema {SCHEMA}")
        return content
