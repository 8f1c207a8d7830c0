"""The part of ``widen train`` that fine-tunes real models. Prints data counts, progress and the output path."""

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

KEYS = {
    "model": "model",
    "task": "train.task",
    "data": "train.path",
    "split": "train.split",
    "limit": "train.limit",
    "eval": "evaluate.path",
    "lora": "lora.rank",
    "precision": "precision",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "micro_batch": "micro_batch",
    "lr": "lr",
    "schedule": "schedule",
    "warmup_steps": "warmup_steps",
    "max_length": "max_length",
    "packing": "packing",
    "group_by_length": "group_by_length",
    "gradient_checkpointing": "gradient_checkpointing",
    "fsdp": "fsdp",
    "reference": "reference",
}
"""Flags of real models alone, and the keys of a `FineTune` that they set; --paper, --after-nll-epochs and --skip-bad come on top."""
SHARED = {"ema": "ema", "loss": "loss", "steps": "max_steps", "seed": "seed", "save_every": "save_steps"}


def add_arguments(group: Any) -> None:
    """Flags of the verb for real models."""
    group.add_argument("--model", metavar="NAME", help="folder or hub name of the model to fine-tune, or a run folder")
    group.add_argument("--task", help="what a record is, and the format of its prompt (default: jsonl)")
    group.add_argument(
        "--data",
        metavar="FILE",
        help=".jsonl, .json, .csv, or a data set's folder or hub name (default: the task's own)",
    )
    group.add_argument("--split", help="of a data set (default: train)")
    group.add_argument("--limit", type=int, metavar="N", help="only the first N records")
    group.add_argument("--eval", metavar="FILE", help="held-out data, whose NLL is taken after every epoch")
    group.add_argument(
        "--reference",
        metavar="NAME",
        help="folder or hub name of the model that asft and anchor compare with; it reads the data once, before training",
    )
    group.add_argument("--skip-bad", action="store_true", help="leave out records that cannot be used, and count them")
    group.add_argument("--lora", type=int, metavar="R", help="train an adapter of this rank (default: all weights)")
    group.add_argument("--precision", help="bf16, fp16, fp32 or pure_bf16 (default: bf16)")
    group.add_argument(
        "--paper",
        action="store_true",
        help="the paper's training: 3 epochs, batches of 8, a constant learning rate of 1e-6 after 1,000 steps of warm-up; other flags "
        "still count. Meant for runs of many thousand steps",
    )
    group.add_argument("--epochs", type=float, help="passes over the data (default: 1; --steps overrides it)")
    group.add_argument(
        "--after-nll-epochs",
        type=float,
        metavar="N",
        help="N epochs of NLL first, trained once for all losses (paper: 1)",
    )
    group.add_argument("--batch-size", type=int, metavar="N", help="sequences per step, over all devices (default: 8)")
    group.add_argument("--micro-batch", type=int, metavar="N", help="sequences per device at once (default: 8 or less)")
    group.add_argument(
        "--lr",
        type=float,
        help="learning rate (default: 1e-4 x sqrt(135M / number of parameters), at most 1e-3; ten times that with --lora)",
    )
    group.add_argument(
        "--schedule",
        help="of the learning rate: constant_with_warmup (default), constant, linear, cosine, cosine_with_min_lr",
    )
    group.add_argument(
        "--warmup-steps",
        type=int,
        metavar="N",
        help="of linear warm-up; must end inside the run (default: 3%% of the steps)",
    )
    group.add_argument("--max-length", type=int, metavar="N", help="tokens of an example at most (default: 1024)")
    for flag, text in (
        ("--packing", "sequences end to end without padding"),
        ("--group-by-length", "batches of similar length: another order, less padding"),
        ("--gradient-checkpointing", "less memory, a third more time"),
        ("--fsdp", "under torchrun: the model spread over all GPUs"),
    ):
        group.add_argument(flag, action="store_const", const=True, help=text)


def is_asked_for(options: argparse.Namespace) -> bool:
    """Whether a real model is named, by the flag or by the config file."""
    from widen.run.finetune.config import is_finetune

    if options.model is not None:
        return True
    try:
        return options.config is not None and is_finetune(json.loads(options.config.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False  # whoever reads the file later says what is wrong with it


def refuse_flags(options: argparse.Namespace) -> None:
    """Refuse a flag of real models when no model is named: it would be ignored."""
    given = [name for name in (*KEYS, "after_nll_epochs") if getattr(options, name) is not None]
    given += [name for name in ("skip_bad", "paper") if getattr(options, name)]
    if given:
        flag = "--" + given[0].replace("_", "-")
        raise ValueError(f"{flag} is for real models: name one with --model")


def main(options: argparse.Namespace) -> int:
    """Build the fine-tuning, train it, print where it is."""
    from rich.console import Console
    from torch import OutOfMemoryError

    from widen.run.finetune import fine_tune
    from widen.run.folder import folder_of
    from widen.run.value import to_json

    from .show import bars

    config = make_config(options)
    if options.print:
        print(json.dumps(to_json(config), indent=2))
        return 0
    before = folder_of(options.out, config).is_trained
    first = int(os.environ.get("RANK", 0)) == 0
    console = Console(quiet=not first)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    with bars() if first else nullcontext(None) as progress:
        try:
            folder = fine_tune(
                config,
                options.out,
                device=options.device,
                skip_bad=options.skip_bad,
                progress=progress,
                on_data=lambda what, facts: say(f"{what}: {facts}"),
                say=say,
                about={"name": options.name} if options.name else None,
            )
        except (OutOfMemoryError, ArithmeticError) as error:
            print(f"widen train: {_sentence(config, error)}", file=sys.stderr)
            return 1
    if before:
        console.print("trained before: nothing is left to do")
    console.print(f"run folder: {folder.path}", soft_wrap=True)
    console.print(
        f"next: widen sample {folder.path} --prompts FILE, widen score REFERENCE {folder.path}, widen report {folder.path}",
        soft_wrap=True,
    )
    return 0


def make_config(options: argparse.Namespace) -> FineTune:
    """The config file, if there is one; then --paper; then the flags."""
    from widen.data.tasks.source_files import ENDINGS
    from widen.run.finetune.config import FineTune, load_finetune
    from widen.run.finetune.defaults import PAPER
    from widen.run.value import from_json, set_key, to_json

    for flag in ("b", "start"):
        if getattr(options, flag) is not None:
            hint = " (--model takes the folder to start from)" if flag == "start" else ""
            raise ValueError(f"--{flag} is for the integer task{hint}")
    data = to_json(load_finetune(options.config)) if options.config else {"train": {}}
    data |= PAPER if options.paper else {}
    flags = {key: getattr(options, name) for name, key in (KEYS | SHARED).items()}
    changes = {key: json.dumps(value) for key, value in flags.items() if value is not None}
    for key, text in (changes | pairs(options.set, example="lora.alpha=64")).items():
        set_key(data, key, text)
    _set_micro_batch(options, data)
    if options.eval is not None:
        data["evaluate"] = {"task": data["train"].get("task", "jsonl"), "split": "validation", **data["evaluate"]}
    config = from_json(FineTune, data)
    if options.split is not None and Path(config.train.path).suffix.lower() in ENDINGS:
        raise ValueError(
            f"--split {options.split}: {config.train.path} is a file, which is read whole; give the file of that split"
        )
    if options.fsdp:
        config = _spread(config)
    if options.after_nll_epochs is not None:
        # it does not depend on the loss, so the runs of all losses share it
        before = replace(
            config, loss="nll", epochs=options.after_nll_epochs, max_steps=-1, weight_scale="raw", after=config.after,
            reference=None, ema=0.0,
        )  # fmt: skip
        config = replace(config, after=before)
    return config


def _spread(config: FineTune) -> FineTune:
    """Use FSDP for the first training too: its model is as large."""
    return replace(config, fsdp=True, after=_spread(config.after) if config.after else None)


def _set_micro_batch(options: argparse.Namespace, data: dict[str, Any]) -> None:
    """Unless a micro-batch is given, take the largest one up to the default that divides the batch size."""
    given = options.micro_batch is not None or any(pair.startswith("micro_batch=") for pair in options.set)
    size, most = data.get("batch_size", 8), data.get("micro_batch", 8)
    if not given and isinstance(size, int) and isinstance(most, int) and size >= 1 and most >= 1:
        data["micro_batch"] = next(micro for micro in range(min(most, size), 0, -1) if size % micro == 0)


def pairs(given: list[str], *, example: str) -> dict[str, str]:
    """``KEY=VALUE`` of --set."""
    found = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair}: write KEY=VALUE, as in --set {example}")
        found[key] = value
    return found


def _sentence(config: FineTune, error: Exception) -> str:
    """The error as a sentence; running out of memory gets a hint."""
    if isinstance(error, ArithmeticError):
        return str(error)
    return (
        f"out of GPU memory with micro_batch={config.micro_batch} and max_length={config.max_length}: take a smaller "
        f"--micro-batch (the step stays the same), --gradient-checkpointing, or --lora 16 ({str(error).split('. ')[0]})"
    )


__all__ = ["add_arguments", "is_asked_for", "main", "make_config", "pairs", "refuse_flags"]
