"""What a sentence-transformers folder says about itself: which model, how to pool, whether to normalise. No library needed to read it.

``modules.json`` lists the stages, each with a folder and a type; a stage that we do not do is refused, never skipped.
"""

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
    """How a folder wants its features made.

    Args:
      model: the folder of the transformer itself.
      pooling: ``mean`` of the tokens, the ``last`` or the ``first`` one.
      normalise: whether rows are scaled to length 1.
      max_tokens: where texts are cut, or None for the model's own limit.
      lowercase: whether texts are lower-cased first.
    """

    model: Path
    pooling: Pooling
    normalise: bool
    max_tokens: int | None
    lowercase: bool


def read_recipe(folder: Path) -> FolderRecipe | None:
    """The recipe of a sentence-transformers folder; None for a folder without ``modules.json``."""
    listed = folder / "modules.json"
    if not listed.is_file():
        return None
    stages = sorted(json.loads(listed.read_text()), key=lambda stage: stage["idx"])
    kinds = [str(stage["type"]).rsplit(".", 1)[-1] for stage in stages]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(f"{listed}: stages must be Transformer, Pooling and perhaps Normalize, got {', '.join(kinds)}")
    inner = folder / stages[0]["path"]
    limits = read_json(inner / "sentence_bert_config.json")
    return FolderRecipe(
        model=inner,
        pooling=read_pooling(folder / stages[1]["path"] / "config.json"),
        normalise=kinds[-1] == "Normalize",
        max_tokens=limits.get("max_seq_length"),
        lowercase=bool(limits.get("do_lower_case", False)),
    )


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no file."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def read_pooling(file: Path) -> Pooling:
    """The one pooling mode that is switched on."""
    config = read_json(file)
    on = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    modes = [FLAGS.get(name, name) for name in on] or [str(config.get("pooling_mode", "none"))]
    if len(modes) != 1 or modes[0] not in MODES:
        raise ValueError(f"{file}: pooling must be one of {', '.join(get_args(Pooling))}, got {', '.join(modes)}")
    return MODES[modes[0]]
