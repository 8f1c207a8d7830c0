"""The part of ``widen train`` that fine-tunes real models."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widen.run.finetune import FineTune

FLAGS: tuple[tuple[str, str, type, str, str], ...] = (
    ("model", "model", str, "NAME", "model to fine-tune: a folder, a name on the hub, or a run folder"),
    ("task", "train.task", str, "NAME", "format of the records (default: jsonl)"),
    (
        "data",
        "train.path",
        str,
        "FILE",
        ".jsonl, .json, .csv, .tsv, .txt, .parquet, or a data set (folder or name on the hub)",
    ),
    ("prompt-field", "train.prompt_field", str, "NAME", "field or column of the prompt (default: prompt)"),
    ("completion-field", "train.completion_field", str, "NAME", "that of the completion (default: completion)"),
    ("split", "train.split", str, "NAME", "split of a data set (default: train)"),
    ("limit", "train.limit", int, "N", "only the first N records"),
    ("eval", "evaluate.path", str, "FILE", "held-out data; its NLL is printed and logged after every epoch"),
    ("eval-steps", "eval_steps", int, "N", "evaluate every N steps instead of every epoch"),
    ("patience", "patience", int, "N", "stop after N evaluations without a lower NLL, and keep the best model"),
    ("report-to", "report_to", str, "WHERE", "send the log to wandb, trackio or tensorboard (default: none)"),
    ("save-dtype", "save_dtype", str, "D", "dtype to save: auto (as it was), trained, bfloat16, float16, float32"),
    ("lora", "lora.rank", int, "R", "train an adapter of this rank (default: all weights)"),
    ("load-in-4bit", "load_in_4bit", bool, "", "with --lora: hold the frozen weights in 4 bits (QLoRA)"),
    ("precision", "precision", str, "P", "bf16, fp16, fp32 or pure_bf16 (default: bf16)"),
    ("epochs", "epochs", float, "N", "passes over the data (default: 1; --steps overrides it)"),
    ("batch-size", "batch_size", int, "N", "sequences per step, over all devices (default: 8)"),
    ("micro-batch", "micro_batch", int, "N", "sequences per device at a time (default: at most 8)"),
    ("lr", "lr", float, "LR", "learning rate (default: by the size of the model, see above)"),
    ("schedule", "schedule", str, "S", "constant_with_warmup (default), constant, linear, cosine, cosine_with_min_lr"),
    ("warmup-steps", "warmup_steps", int, "N", "linear warm-up, shorter than the run (default: 3%% of the steps)"),
    ("max-length", "max_length", int, "N", "longest example in tokens; longer ones are cut (default: 1024)"),
    ("packing", "packing", bool, "", "join sequences without padding"),
    ("group-by-length", "group_by_length", bool, "", "batch examples of similar length: less padding, another order"),
    ("gradient-checkpointing", "gradient_checkpointing", bool, "", "use less memory and a third more time"),
    ("reference", "reference", str, "NAME", "the reference model of the losses asft and anchor"),
    ("fsdp", "fsdp", bool, "", "under torchrun: shard the model over all GPUs"),
)
"""Flags of real models: name, the key of `FineTune` that it sets, type, metavar, help."""
SHARED = {"ema": "ema", "loss": "loss", "steps": "max_steps", "seed": "seed", "save_every": "save_steps"}
OTHERS = ("skip_bad", "paper", "after_nll_epochs")


def add_arguments(group: Any) -> None:
    """Flags of the verb for real models."""
    for name, _, kind, metavar, text in FLAGS:
        if kind is bool:
            group.add_argument(f"--{name}", help=text, action="store_const", const=True)
        else:
            group.add_argument(f"--{name}", help=text, type=kind, metavar=metavar)
    group.add_argument("--skip-bad", action="store_true", help="skip bad records and count them")
    group.add_argument("--paper", action="store_true", help="the paper's settings (see above); flags override them")
    group.add_argument("--after-nll-epochs", type=float, metavar="N", help="train N epochs with NLL first")


def is_asked_for(options: argparse.Namespace) -> bool:
    """Whether a real model is named, by the flag or by the config file."""
    from widen.run.finetune.config import is_finetune
    from widen.run.value import read_config

    if options.model is not None:
        return True
    try:
        return options.config is not None and is_finetune(read_config(options.config))
    except (OSError, ValueError):
        return False  # reading the config says what is wrong with it


def refuse_flags(options: argparse.Namespace) -> None:
    """Refuse a flag of real models when no model is named."""
    for name in (*(flag[0].replace("-", "_") for flag in FLAGS), *OTHERS):
        if getattr(options, name) not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')} is for real models: name one with --model")


def main(options: argparse.Namespace) -> int:
    """Build the fine-tuning, train it, print where it is."""
    from rich.console import Console
    from torch import OutOfMemoryError

    from widen.run.finetune import fine_tune
    from widen.run.folder import folder_of, silent
    from widen.run.value import to_json

    from .show import bars

    config = make_config(options)
    if options.print:
        print(json.dumps(to_json(config), indent=2))
        return 0
    before = folder_of(options.out, config).is_trained
    first = int(os.environ.get("RANK", 0)) == 0
    say = Console(quiet=not first, soft_wrap=True, highlight=False, markup=False).print
    with bars() if first else nullcontext(silent) as progress:
        try:
            folder = fine_tune(
                config,
                options.out,
                device=options.device,
                skip_bad=options.skip_bad,
                progress=progress,
                say=say,
                about={"name": options.name} if options.name else None,
            )
        except (OutOfMemoryError, ArithmeticError) as error:
            text = str(error)
            if isinstance(error, OutOfMemoryError):
                text = (
                    f"out of GPU memory with micro_batch={config.micro_batch} and max_length={config.max_length}: take a smaller "
                    f"--micro-batch (the step stays the same), --gradient-checkpointing, or --lora 16 ({text.split('. ')[0]})"
                )
            print(f"widen train: {text}", file=sys.stderr)
            return 1
    if before:
        say("trained before: nothing is left to do")
    path = folder.path
    say(f"run folder: {path}")
    say(f"next: widen sample {path} --prompts FILE, widen score --checker FILE.py:check {path}, widen report {path}")
    return 0


def make_config(options: argparse.Namespace) -> FineTune:
    """The config file, if there is one; then --paper; then the flags."""
    from widen.data.tasks.source_files import ENDINGS
    from widen.run.finetune.config import FineTune, load_finetune, micro_batch_for
    from widen.run.finetune.defaults import PAPER
    from widen.run.value import from_json, set_key, to_json

    for flag in ("b", "start"):
        if getattr(options, flag) is not None:
            hint = " (--model takes the folder to start from)" if flag == "start" else ""
            raise ValueError(f"--{flag} is for the integer task{hint}")
    data: dict[str, Any] = {"train": {}, "save_dtype": "auto"}
    if options.config:
        data = to_json(load_finetune(options.config))
    data |= PAPER if options.paper else {}
    keys = {name.replace("-", "_"): key for name, key, *_ in FLAGS} | SHARED
    flags = {
        key: json.dumps(getattr(options, name)) for name, key in keys.items() if getattr(options, name) is not None
    }
    changes = flags | pairs(options.set, example="lora.alpha=64")
    for key, text in changes.items():
        set_key(data, key, text)
    size, most = data.get("batch_size", 8), data.get("micro_batch", 8)
    if "micro_batch" not in changes and isinstance(size, int) and isinstance(most, int) and min(size, most) >= 1:
        data["micro_batch"] = micro_batch_for(size, most=most)
    if options.eval is not None:
        same = {key: value for key, value in data["train"].items() if key.endswith("_field")}
        task = data["train"].get("task", "jsonl")
        data["evaluate"] = {"task": task, "split": "validation", **same, **data["evaluate"]}
    config = from_json(FineTune, data)
    if options.split is not None and Path(config.train.path).suffix.lower() in ENDINGS:
        raise ValueError(
            f"--split {options.split}: {config.train.path} is a file, which is read whole; give the file of that split"
        )
    if options.fsdp:
        config = _spread(config)
    if options.after_nll_epochs is not None:
        nll = replace(config, loss="nll", epochs=options.after_nll_epochs, max_steps=-1, weight_scale="raw")
        nll = replace(nll, eval_steps=None, patience=None, save_dtype="trained", reference=None, ema=0.0)
        config = replace(config, after=nll)
    return config


def _spread(config: FineTune) -> FineTune:
    """Use FSDP for the first training too: its model is as large."""
    return replace(config, fsdp=True, after=_spread(config.after) if config.after else None)


def pairs(given: list[str], *, example: str) -> dict[str, str]:
    """``KEY=VALUE`` of --set."""
    for pair in given:
        if "=" not in pair:
            raise ValueError(f"--set {pair}: write KEY=VALUE, as in --set {example}")
    return {key: value for key, _, value in (pair.partition("=") for pair in given)}
