"""Fine-tune a model on your data (--model), or train a small model on the paper's integer task.

The result is a run folder. Settings come from a config file, from flags, or from both. Flags
override the file.

a real model (--model takes a folder, or a name on the hub):
  widen train --model ./my-model --data mine.jsonl --loss nll
  widen train --model ./my-model --data mine.jsonl --loss truncr:drop=0.1 --lora 16
  widen train --model allenai/OLMo-1B-hf --task mathqa_python --data train.jsonl \\
      --loss cdiv:alpha=1.4 --after-nll-epochs 1 --epochs 3

many GPUs:
  torchrun --nproc-per-node 4 -m widen.cli train config.json            a copy on each GPU (DDP)
  torchrun --nproc-per-node 8 -m widen.cli train config.json --fsdp     one model over all GPUs
  accelerate launch -m widen.cli train config.json                      as `accelerate config` says

the integer task (the paper's a x b mod 97):
  widen train --loss cdiv:alpha=1.25 --steps 2000 --out runs
  widen train config.json --set model.train.optimizer.lr=0.0005 --set model.seed=3

a config file with every key and its default, to edit (for a real model, add --model NAME):
  widen train --print > config.json

If the command is killed, the same command continues the run.

losses (--loss):
  of the paper    nll, gold, cdiv:alpha=1.4, tailr:gamma=1e-5, lambda_pr:lam=0.9,gamma=0.1,
                  trunc:drop=0.1, truncr:drop=0.1
  of others       dft, gem:beta=0.7, tofu, focal, smooth, entropy, eaft, dco:n=16
  near a model    with --reference MODEL: asft:kl=0.1, anchor:kl=0.1
  your own        module:Class(...)
  combined        A * B multiplies two weights; `nll:steps=1000 then A` trains with NLL first

data (--task, --data):
  jsonl           the default: records with "prompt" and "completion", with "text", or conversations
                  ("messages", "conversations", or lists as "prompt" and "completion").
                  Conversations use the chat template.
  other tasks     writing_prompts, mathqa_python, codecontests, alpaca, mbpp, humaneval, e2e; each
                  has its own prompt format
  loss_weights    an optional field of every record: one number, or one per target token (the tokens
                  of the completion). It multiplies the weights of any loss. The sum is divided by
                  the number of target tokens, not by these weights.

defaults for a real model:
  learning rate   1e-4 x sqrt(135M / parameters), at most 1e-3: 1.3e-5 for 8B, 4.4e-6 for 70B. With
                  --lora, ten times that.
  warm-up         3% of the steps. A warm-up longer than the run is refused.
  gradient norm   clipped to 1 (--set max_grad_norm=0 turns it off). Without it, c-Div above
                  alpha = 1 is unstable on the integer task.
  cap of c-Div    for alpha > 1, no weight exceeds 10; cap=inf is the paper's loss.
  window          Trunc and TruncR compare each sequence with the last 10,000. A run of fewer than
                  40,000 sequences has a smaller window (window=N sets it). They start to drop after
                  an eighth of the run at the latest.
  --paper         the paper's settings: learning rate 1e-6, 1,000 steps of warm-up, 3 epochs,
                  batches of 8. They train nothing on a few hundred examples.

At the end the command prints how far the weights moved, relative to their norm, and the first and
last NLL. It warns if the weights moved by less than 1e-4.

On real models, losses have gained little over NLL: at most .025 coverage, on one of three tasks.
Compare with --loss nll at several temperatures before you keep another loss.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from .show import bars

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
    (
        "completion-field",
        "train.completion_field",
        str,
        "NAME",
        "field or column of the completion (default: completion)",
    ),
    ("split", "train.split", str, "NAME", "split of a data set (default: train)"),
    ("limit", "train.limit", int, "N", "only the first N records"),
    ("distinct", "train.distinct", bool, "", "learn each distinct example once; leave out its repeats"),
    ("eval", "evaluate.path", str, "FILE", "held-out data; its NLL is printed and logged after every epoch"),
    ("eval-steps", "eval_steps", int, "N", "evaluate every N steps instead of every epoch"),
    ("patience", "patience", int, "N", "stop after N evaluations without a lower NLL, and keep the best model"),
    ("report-to", "report_to", str, "WHERE", "send the log to wandb, trackio or tensorboard (default: none)"),
    (
        "save-dtype",
        "save_dtype",
        str,
        "D",
        "dtype to save: auto (the original one), trained, bfloat16, float16, float32",
    ),
    ("lora", "lora.rank", int, "R", "train an adapter of this rank (default: all weights)"),
    ("load-in-4bit", "load_in_4bit", bool, "", "with --lora: hold the frozen weights in 4 bits (QLoRA)"),
    ("precision", "precision", str, "P", "bf16, fp16, fp32 or pure_bf16 (default: bf16 on a GPU, fp32 on a CPU)"),
    ("epochs", "epochs", float, "N", "passes over the data (default: 1; --steps overrides it)"),
    ("batch-size", "batch_size", int, "N", "sequences per step, over all devices (default: 8)"),
    ("micro-batch", "micro_batch", int, "N", "sequences per device at a time (default: at most 8)"),
    ("lr", "lr", float, "LR", "learning rate (default: by the size of the model, see above)"),
    ("schedule", "schedule", str, "S", "constant_with_warmup (default), constant, linear, cosine, cosine_with_min_lr"),
    ("warmup-steps", "warmup_steps", int, "N", "linear warm-up, shorter than the run (default: 3%% of the steps)"),
    ("max-length", "max_length", int, "N", "longest example in tokens; longer ones are cut (default: 1024)"),
    ("packing", "packing", bool, "", "join sequences without padding"),
    ("group-by-length", "group_by_length", bool, "", "batch examples of similar length: less padding, another order"),
    ("gradient-checkpointing", "gradient_checkpointing", bool, "", "less memory, a third more time"),
    ("reference", "reference", str, "NAME", "the reference model of the losses asft and anchor"),
    ("fsdp", "fsdp", bool, "", "under torchrun: shard the model over all GPUs"),
)
"""Flags of real models: name, the key of `FineTune` that it sets, type, metavar, help."""
REAL = {flag.replace("-", "_"): key for flag, key, *_ in FLAGS}
SHARED = {"ema": "ema", "loss": "loss", "steps": "max_steps", "seed": "seed", "save_every": "save_steps"}
"""Flags of both kinds of models, and the keys of `FineTune` that they set."""
SMALL = {
    "loss": "model.loss",
    "steps": "model.train.steps",
    "seed": "model.seed",
    "ema": "model.train.ema",
    "b": "model.data.under_representation",
    "start": "start",
    "name": "name",
}
"""Flags of small models, and the keys of `Experiment` that they set."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.set_defaults(show_help=parser.print_help)
    add = parser.add_argument
    add("config", nargs="?", type=Path, help="JSON or YAML file; missing keys take their defaults")
    add("--loss", help="the loss, such as cdiv:alpha=1.4 (default: nll)")
    add("--steps", type=int, help="number of optimizer steps")
    add("--seed", type=int, help="seed of the initial weights and of the data order")
    add("--ema", type=float, metavar="DECAY", help="keep an average of the weights in checkpoint/average; try 0.999")
    add("--name", help="name of the run in tables")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the config, such as lora.alpha=64")
    add("--out", type=Path, default=Path("runs"), help="folder in which the run folder is made (default: runs)")
    add("--device", help="cpu or cuda (default: cpu; for a real model, cuda if available)")
    add("--save-every", type=int, metavar="N", help="steps between checkpoints (default: 500)")
    add("--print", action="store_true", help="print the whole experiment as JSON and stop")
    integers = parser.add_argument_group("the integer task")
    integers.add_argument("--b", type=float, help="share of the training lines whose a begins with 0-4")
    integers.add_argument("--start", help="checkpoint folder to start from")
    real = parser.add_argument_group("a real model")
    for name, _, kind, metavar, text in FLAGS:
        if kind is bool:
            real.add_argument(f"--{name}", help=text, action="store_const", const=True)
        else:
            real.add_argument(f"--{name}", help=text, type=kind, metavar=metavar)
    real.add_argument("--skip-bad", action="store_true", help="skip bad records and count them")
    real.add_argument("--paper", action="store_true", help="the paper's settings (see above); flags override them")
    real.add_argument("--after-nll-epochs", type=float, metavar="N", help="train N epochs with NLL first")


def main(options: argparse.Namespace) -> int:
    """Build the experiment, train it, print where it is."""
    if all(value in (None, False, []) for name, value in vars(options).items() if name not in ("out", "show_help")):
        options.show_help()
        return 2
    return (_train_real if _is_real(options) else _train_small)(options)


def _is_real(options: argparse.Namespace) -> bool:
    """Whether a real model is named, by the flag or by the config file."""
    from widen.run.finetune.config import is_finetune
    from widen.run.value import read_config

    try:
        return options.model is not None or (bool(options.config) and is_finetune(read_config(options.config)))
    except (OSError, ValueError):
        return False  # reading the config says what is wrong with it


def _train_small(options: argparse.Namespace) -> int:
    from widen.run.experiment import Experiment, load, with_changes
    from widen.run.folder import folder_of
    from widen.run.train_small import train_small
    from widen.run.value import to_json

    for name in (*REAL, "skip_bad", "paper", "after_nll_epochs"):
        if getattr(options, name) not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')} is for real models: name one with --model")
    experiment = load(options.config) if options.config else Experiment(name="run")
    experiment = with_changes(experiment, changes(options, SMALL, example="model.train.ema=0.999"))
    if options.name is None and experiment.name == "run":
        experiment = replace(experiment, name=experiment.loss)
    if options.print:
        print(json.dumps(to_json(experiment), indent=2))
        return 0
    with bars() as progress:
        every, device = 500 if options.save_every is None else options.save_every, options.device or "cpu"
        train_small([experiment], options.out, device=device, progress=progress, save_every=every)
    path = folder_of(options.out, experiment).path
    Console(soft_wrap=True).print(f"run folder: {path}\nnext: widen score {path}")
    return 0


def _train_real(options: argparse.Namespace) -> int:
    from torch import OutOfMemoryError

    from widen.run.finetune import fine_tune
    from widen.run.folder import folder_of, silent
    from widen.run.value import to_json

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
    from widen.run.finetune.defaults import PAPER, precision_for
    from widen.run.value import from_json, set_key, to_json

    for flag in ("b", "start"):
        if getattr(options, flag) is not None:
            hint = " (--model takes the folder to start from)" if flag == "start" else ""
            raise ValueError(f"--{flag} is for the integer task{hint}")
    data: dict[str, Any] = {"train": {}, "save_dtype": "auto"}
    if options.config:
        data = to_json(load_finetune(options.config))
    data |= PAPER if options.paper else {}
    changed = changes(options, REAL | SHARED, example="lora.alpha=64")
    for key, text in changed.items():
        set_key(data, key, text)
    data.setdefault("precision", precision_for(options.device))
    size, most = data.get("batch_size", 8), data.get("micro_batch", 8)
    if "micro_batch" not in changed and isinstance(size, int) and isinstance(most, int) and min(size, most) >= 1:
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


def changes(options: argparse.Namespace, keys: Mapping[str, str], *, example: str) -> dict[str, str]:
    """The flags that are given and --set, as dotted keys with JSON values; ``keys`` has the key of each flag."""
    for pair in options.set:
        if "=" not in pair:
            raise ValueError(f"--set {pair}: write KEY=VALUE, as in --set {example}")
    flags = {key: json.dumps(value) for name, key in keys.items() if (value := getattr(options, name)) is not None}
    return flags | dict(pair.split("=", 1) for pair in options.set)
