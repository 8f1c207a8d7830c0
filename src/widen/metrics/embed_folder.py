"""Read what a sentence-transformers folder says about itself: model, pooling, normalisation, token limit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

Pooling = Literal["mean", "last", "first"]

MODES: dict[str, Pooling] = {"mean": "mean", "lasttoken": "last", "cls": "first"}
FLAGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "lasttoken", "pooling_mode_cls_token": "cls"}


@dataclass(frozen=True)
class FolderRecipe:
    """How a folder's features are made: the transformer's folder, and the settings of `widen.metrics.Embedder`."""

    model: Path
    pooling: Pooling
    normalise: bool
    max_tokens: int | None
    lowercase: bool


def read_recipe(folder: Path) -> FolderRecipe | None:
    """The recipe of a sentence-transformers folder; None without ``modules.json``. An unknown stage or pooling is an error."""
    listed = folder / "modules.json"
    if not listed.is_file():
        return None
    stages = sorted(json.loads(listed.read_text()), key=lambda stage: stage["idx"])
    kinds = [str(stage["type"]).rsplit(".", 1)[-1] for stage in stages]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(f"{listed}: stages must be Transformer, Pooling and perhaps Normalize, got {', '.join(kinds)}")
    limits = _read(folder / stages[0]["path"] / "sentence_bert_config.json")
    pooling_file = folder / stages[1]["path"] / "config.json"
    pooling = _read(pooling_file)
    on = [name for name, value in pooling.items() if name.startswith("pooling_mode_") and value is True]
    modes = [FLAGS.get(name, name) for name in on] or [str(pooling.get("pooling_mode", "none"))]
    if len(modes) != 1 or modes[0] not in MODES:
        legal = ", ".join(get_args(Pooling))
        raise ValueError(f"{pooling_file}: pooling must be one of {legal}, got {', '.join(modes)}")
    return FolderRecipe(
        model=folder / stages[0]["path"],
        pooling=MODES[modes[0]],
        normalise=kinds[-1] == "Normalize",
        max_tokens=limits.get("max_seq_length"),
        lowercase=bool(limits.get("do_lower_case", False)),
    )


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found
