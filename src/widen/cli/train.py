"""Fine-tune a model on your data (--model), or train a small model on the paper's integer task. The result is a run folder.

Settings come from a config file, from flags, or from both. Flags override the file.

a real model (--model takes a folder, or a name on the hub):
  widen train --model allenai/OLMo-1B-hf --task mathqa_python --data train.jsonl --loss cdiv:alpha=1.4 --after-nll-epochs 1 --epochs 3
  widen train --model ./my-model --data mine.jsonl --loss truncr:drop=0.1 --lora 16 --batch-size 32 --micro-batch 8
  torchrun --nproc-per-node 4 -m widen.cli train --model meta-llama/Llama-3.1-8B --task alpaca --packing --gradient-checkpointing
  torchrun --nproc-per-node 8 -m widen.cli train finetune.json --fsdp     a model that is too large for one GPU
  accelerate launch -m widen.cli train finetune.json            DDP or FSDP, as `accelerate config` says

the integer task (the paper's a x b mod 97):
  widen train --loss cdiv:alpha=1.25 --steps 2000 --out runs
  widen train config.json --set model.train.optimizer.lr=0.0005 --set model.seed=3

  widen train --print > config.json                  writes every key with its default; for a real model, add --model NAME

If the command is killed, the same command continues the run.

losses (--loss):
  of the paper    nll, gold, cdiv:alpha=1.4, tailr:gamma=1e-5, lambda_pr:lam=0.9,gamma=0.1, trunc:drop=0.1, truncr:drop=0.1
  of others       dft, gem:beta=0.7, tofu, focal, smooth, entropy, eaft, dco:n=16
  near a model    with --reference MODEL: asft:kl=0.1, anchor:kl=0.1
  your own        module:Class(...)
  combined        A * B multiplies two weights; `nll:steps=1000 then cdiv:alpha=1.4` trains with NLL first

data (--task, --data):
  jsonl           the default: records with "prompt" and "completion" (--prompt-field and --completion-field rename them), with "text", or
                  conversations ("messages", "conversations", or lists as "prompt" and "completion"), which use the chat template
  other tasks     writing_prompts, mathqa_python, codecontests, alpaca, mbpp, humaneval, e2e; each has its own prompt format
  loss_weights    an optional field of every record: one number, or one per target token. It multiplies the weights of any loss. The sum
                  is divided by the number of target tokens, not by these weights.

defaults for a real model:
  learning rate   1e-4 x sqrt(135M / parameters), at most 1e-3: 1.3e-5 for 8B, 4.4e-6 for 70B. With --lora, ten times that.
  warm-up         3% of the steps. A warm-up longer than the run is refused.
  gradient norm   clipped to 1 (--set max_grad_norm=0 turns it off). Without it, c-Div above alpha = 1 is unstable on the integer task.
  cap of c-Div    for alpha > 1, no weight exceeds 10; cap=inf is the paper's loss.
  window          Trunc and TruncR compare each sequence with earlier ones: a quarter of the run's sequences, at most 10,000 (window=N sets
                  it). They start to drop after an eighth of the run at the latest.
  --paper         the paper's settings: learning rate 1e-6, 1,000 steps of warm-up, 3 epochs, batches of 8. They train nothing on a few
                  hundred examples.
At the end the command prints how far the weights moved, relative to their norm (it warns below 1e-4), and the first and last NLL.

On real models no loss has beaten NLL yet: compare with --loss nll at several temperatures before you keep another loss.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from . import train_model
from .show import bars


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
    integers.add_argument("--b", type=float, help="share of training data whose factor a begins with 0-4")
    integers.add_argument("--start", help="checkpoint folder to start from")
    train_model.add_arguments(parser.add_argument_group("a real model"))


def main(options: argparse.Namespace) -> int:
    """Build the experiment, train it, print where it is."""
    if all(value in (None, False, []) for name, value in vars(options).items() if name not in ("out", "show_help")):
        options.show_help()
        return 2
    if train_model.is_asked_for(options):
        return train_model.main(options)
    train_model.refuse_flags(options)
    from widen.run.experiment import Experiment, load, with_changes
    from widen.run.folder import folder_of
    from widen.run.train_small import train_small
    from widen.run.value import to_json

    experiment = load(options.config) if options.config else Experiment(name="run")
    experiment = with_changes(experiment, _changes(options))
    if options.name is None and experiment.name == "run":
        experiment = with_changes(experiment, {"name": json.dumps(experiment.loss)})
    if options.print:
        print(json.dumps(to_json(experiment), indent=2))
        return 0
    console = Console()
    with bars() as progress:
        every, device = 500 if options.save_every is None else options.save_every, options.device or "cpu"
        train_small([experiment], options.out, device=device, progress=progress, save_every=every)
    folder = folder_of(options.out, experiment)
    console.print(f"run folder: {folder.path}", soft_wrap=True)
    console.print(f"next: widen score {folder.path}", soft_wrap=True)
    return 0


def _changes(options: argparse.Namespace) -> dict[str, str]:
    """Flags as dotted keys of an experiment."""
    short = {
        "model.loss": options.loss,
        "model.train.steps": options.steps,
        "model.seed": options.seed,
        "model.train.ema": options.ema,
        "model.data.under_representation": options.b,
        "start": options.start,
        "name": options.name,
    }
    changes = {key: json.dumps(value) for key, value in short.items() if value is not None}
    return changes | train_model.pairs(options.set, example="model.train.ema=0.999")
