"""The commands that make a recommended model again. Run as they are, they find what is finished."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from ..finetune.config import FineTune
from ..grow import Growth
from ..value import to_json


def train_command(config: FineTune, root: Path, *, device: str) -> str:
    """The `widen train` command of a fine-tuning."""
    flags: dict[str, object] = {
        "model": config.model,
        "task": config.train.task,
        "data": config.train.path,
        "loss": config.loss,
        "steps": config.max_steps,
        "batch-size": config.batch_size,
        "lr": config.lr,
        "lora": config.lora.rank if config.lora else None,
        "precision": config.precision,
        "schedule": config.schedule,
        "seed": config.seed,
        "eval": config.evaluate.path if config.evaluate else None,
        "eval-steps": config.eval_steps,
        "patience": config.patience,
        "device": device,
        "out": root,
    }
    return f"widen train {_written(flags)}"


def grow_command(config: Growth, out: Path, *, device: str) -> str:
    """The `widen grow` command of a growth whose data is that of its prompts."""
    flags: dict[str, object] = {
        "task": config.prompts.task,
        "prompts": config.prompts.path,
        "checker": config.checker or None,
        "rounds": config.rounds,
        "num": config.num,
        "max-tokens": config.max_tokens,
        "from": config.start,
        "seed": config.seed,
        "dtype": config.dtype,
        "device": device,
        "out": out,
    }
    training = {name: value for name, value in to_json(config.training).items() if name != "seed"}
    changes = (f"--set {shlex.quote(f'{name}={json.dumps(value)}')}" for name, value in training.items())
    chat = ["--chat"] if config.chat else []
    return " ".join(["widen grow", shlex.quote(config.model), _written(flags), *chat, *changes])


def merge_command(models: list[str], weights: list[float]) -> str:
    """The `widen merge` command of an average."""
    return f"widen merge {shlex.join(models)} --weights {' '.join(f'{one:g}' for one in weights)} --out averaged"


def _written(flags: Mapping[str, object]) -> str:
    return " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in flags.items() if value is not None)
