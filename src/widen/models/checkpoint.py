"""Checkpoints as safetensors and JSON, written atomically and without pickle.

A checkpoint is a folder ``step-<n>`` with ``checkpoint.json`` and one ``.safetensors`` file per group of tensors (weights, optimizer,
loss state, random state).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from widen.disk.atomic import write_json
from widen.disk.atomic_folder import write_folder
from widen.disk.checksums import check_files
from widen.disk.inside import tree_inside
from widen.disk.json_file import read_json

SCHEMA = 1
"""Version of ``checkpoint.json``."""


@dataclass(frozen=True)
class Checkpoint:
    """The number of optimizer steps done, groups of named tensors, and plain numbers."""

    step: int
    groups: Mapping[str, Mapping[str, Tensor]]
    numbers: Mapping[str, Any]


def save(folder: str | Path, checkpoint: Checkpoint) -> Path:
    """Write ``folder/step-<n>`` in one move, then remove older ones."""

    def fill(part: Path) -> None:
        for name, tensors in checkpoint.groups.items():
            plain = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
            save_file(plain, part / f"{name}.safetensors")
        about = {"step": checkpoint.step, "groups": sorted(checkpoint.groups), "numbers": checkpoint.numbers}
        write_json(part / "checkpoint.json", {"schema": SCHEMA, **about})

    target = write_folder(Path(folder) / f"step-{checkpoint.step:09d}", fill)
    for other in _all(Path(folder)):
        if other != target:
            shutil.rmtree(other)
    return target


def latest(folder: str | Path) -> Path | None:
    """The newest complete checkpoint under `folder`, or None."""
    return max(_all(Path(folder)), default=None)


def load(path: str | Path) -> Checkpoint:
    """Read a checkpoint folder; an error names the damaged file."""
    path = Path(path)
    tree_inside(path.parent, path)
    check_files(path)
    content = read_json(path / "checkpoint.json")
    if content.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {content.get('schema')!r}; this version of widen reads schema {SCHEMA}")
    groups = {name: load_tensors(path / f"{name}.safetensors") for name in content["groups"]}
    return Checkpoint(content["step"], groups, content["numbers"])


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read a safetensors file; an error names the file."""
    try:
        return load_file(path)  # type: ignore[no-any-return]
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None


def state_tensors(state: tuple[Any, ...], *, prefix: str = "") -> dict[str, Tensor]:
    """A loss state, nested tuples of tensors, as named tensors.

    Examples:
      >>> sorted(state_tensors((torch.zeros(2), (torch.ones(1), ()))))
      ['0', '1.0']
    """
    named: dict[str, Tensor] = {}
    for i, part in enumerate(state):
        if isinstance(part, Tensor):
            named[f"{prefix}{i}"] = part
        else:
            named |= state_tensors(part, prefix=f"{prefix}{i}.")
    return named


def state_from(template: tuple[Any, ...], tensors: Mapping[str, Tensor], *, prefix: str = "") -> tuple[Any, ...]:
    """The inverse of `state_tensors`; `template` (`weight.init()`) has the nesting and the types."""
    parts = [
        tensors[f"{prefix}{i}"] if isinstance(part, Tensor) else state_from(part, tensors, prefix=f"{prefix}{i}.")
        for i, part in enumerate(template)
    ]
    return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)


def random_state() -> dict[str, Tensor]:
    """The state of torch's global generators, as bytes."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def restore_random_state(states: Mapping[str, Tensor]) -> None:
    """Restore them on the devices that are present."""
    torch.set_rng_state(states["cpu"].cpu())
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"cuda.{i}" in states:
            torch.cuda.set_rng_state(states[f"cuda.{i}"].cpu(), i)


def _all(folder: Path) -> list[Path]:
    return list(folder.glob("step-" + 9 * "[0-9]"))
