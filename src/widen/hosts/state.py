"""The loss's state in the host's checkpoints: ``widen_loss.safetensors`` and ``widen_loss.json``; nothing is pickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from safetensors.torch import save

from widen.disk.atomic import write_bytes
from widen.disk.digest import file_digest
from widen.disk.json_file import read_json, write_sealed
from widen.losses import Trunc, Weight, parse
from widen.losses.compose import with_parts
from widen.losses.fit import truncs
from widen.models.checkpoint import load_tensors, state_from, state_tensors

if TYPE_CHECKING:
    from widen.train.objective import Objective

SCHEMA = 1
"""Version of ``widen_loss.json``; a change in meaning raises it."""

_TENSORS, _FACTS = "widen_loss.safetensors", "widen_loss.json"


def save_state(folder: str | Path, objective: Objective, *, step: int) -> None:
    """Write both files into the checkpoint folder, the tensors first; each in one move."""
    folder = Path(folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state_tensors(objective.state).items()}
    data = save(tensors)
    write_bytes(folder / _TENSORS, data)
    facts = {
        "schema": SCHEMA,
        "step": step,
        "loss": name_of(objective.asked),
        "fitted": [str(Trunc(drop=one.drop, window=one.window, start=one.start)) for one in truncs(objective.weight)],
        "weight_scale": objective.weight_scale,
        "mean_weight": objective.mean_weight,
        "tensors": hashlib.sha256(data).hexdigest(),
    }
    write_sealed(folder / _FACTS, facts)


def load_state(folder: str | Path, objective: Objective) -> None:
    """Put a checkpoint's state into ``objective``; refused where it belongs to another loss, or is missing though the loss has one."""
    folder = Path(folder)
    if not (folder / _FACTS).exists():
        if objective.weight_scale == "raw" and not state_tensors(objective.weight.init()):
            return
        raise ValueError(
            f"{folder} has no {_FACTS}: it was not written by a trainer with `loss`, and {objective.weight} (weight_scale="
            f"{objective.weight_scale!r}) cannot go on without its state. To start from these weights, load them as the model instead"
        )
    facts = read_json(folder / _FACTS)
    if not isinstance(facts, dict):
        raise ValueError(f"{folder / _FACTS} holds {type(facts).__name__}, not an object")
    if facts.get("schema") != SCHEMA:
        raise ValueError(
            f"{folder / _FACTS} has schema {facts.get('schema')!r}; this version of widen reads schema {SCHEMA}"
        )
    for name, here in (("loss", name_of(objective.asked)), ("weight_scale", objective.weight_scale)):
        if facts[name] != here:
            raise ValueError(
                f"{folder} was trained with {name}={facts[name]!r} and is resumed with {name}={here!r}; give the same, or load its weights "
                "as the model of a new run"
            )
    if "tensors" in facts and file_digest(folder / _TENSORS) != facts["tensors"]:
        raise ValueError(f"{folder / _TENSORS} does not match its checksum in {_FACTS}: it is damaged; restore it")
    if facts.get("fitted"):  # the windows that the run began with, whatever its new number of steps
        fitted = map(parse, facts["fitted"])
        objective.weight = with_parts(objective.asked, lambda one: _as_fitted(one, fitted))
    objective.state = state_from(objective.weight.init(), load_tensors(folder / _TENSORS))
    objective.mean_weight = float(facts["mean_weight"])


def _as_fitted(one: Weight, fitted: Iterator[Weight]) -> Weight:
    """A Trunc or TruncR, or your own subclass of them, with the next window and start; any other loss unchanged."""
    if not isinstance(one, Trunc):
        return one
    found = cast(Trunc, next(fitted))
    return replace(one, window=found.window, start=found.start)


def newest_finished(folder: str | Path) -> tuple[Path | None, list[Path]]:
    """The newest checkpoint of an output folder that the host finished, and those after it that a kill left half written.

    ``trainer_state.json`` is what the host writes last.
    """
    steps = {path: path.name.rpartition("-")[2] for path in Path(folder).glob("checkpoint-*") if path.is_dir()}
    broken = []
    for path in sorted((path for path, step in steps.items() if step.isdecimal()), key=lambda path: -int(steps[path])):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            broken.append(path)
        else:
            return path, broken
    return None, broken


def name_of(weight: Weight) -> str:
    """Its spec string; the name of its class where it has none (an object's own address would differ in every process)."""
    kind = type(weight)
    shown = kind.__str__ is not object.__str__ or kind.__repr__ is not object.__repr__
    return str(weight) if shown else f"{kind.__module__}.{kind.__qualname__}"
