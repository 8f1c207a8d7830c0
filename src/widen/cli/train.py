"""Train one model of the integer task, from a config file and flags, into a run folder.

  widen train --loss cdiv:alpha=1.25 --steps 2000 --out runs
  widen train config.json --set model.train.optimizer.lr=0.0005 --set model.seed=3
  widen train --print > config.json                  every key with its default, to edit

A loss is a spec: nll, gold, dft, cdiv:alpha=1.4, tailr:gamma=1e-5, lambda_pr:lam=0.9,gamma=0.1, trunc:drop=0.1, truncr:drop=0.1; products
with *, and `nll:steps=1000 then cdiv:alpha=1.4`. Killed at any moment, the same command goes on and ends with the same bits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from .show import bars


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("config", nargs="?", type=Path, help="JSON of an experiment; missing keys take their defaults")
    parser.add_argument("--loss", help="spec of the loss")
    parser.add_argument("--steps", type=int, help="optimizer steps")
    parser.add_argument("--seed", type=int, help="of the initial weights and of the order of the data")
    parser.add_argument("--b", type=float, help="training proportion of leading digits 0-4 (the paper's b)")
    parser.add_argument("--start", help="folder of a checkpoint to fine-tune")
    parser.add_argument("--name", help="what the run is called in tables")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any other key, dotted: model.train.ema=0.999"
    )
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of run folders (default: runs)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--save-every", type=int, default=500, metavar="N", help="steps between checkpoints (default: 500)"
    )
    parser.add_argument("--print", action="store_true", help="print the whole experiment as JSON and stop")


def main(options: argparse.Namespace) -> int:
    """Build the experiment, train it, say where it is."""
    from widen.run.experiment import Experiment, load, with_changes
    from widen.run.training import is_trained, train_all
    from widen.run.value import to_json

    experiment = load(options.config) if options.config else Experiment(name="run")
    experiment = with_changes(experiment, _changes(options))
    if options.name is None and experiment.name == "run":
        experiment = with_changes(experiment, {"name": json.dumps(str(experiment.model.loss))})
    if options.print:
        print(json.dumps(to_json(experiment), indent=2))
        return 0
    console = Console()
    with bars() as (on_training, _):
        ((folder, _),) = train_all(
            [experiment], options.out, device=options.device, progress=on_training, save_every=options.save_every
        )
    assert is_trained(folder)
    console.print(f"run folder: {folder.path}", soft_wrap=True)
    console.print(f"next: widen score {folder.path}", soft_wrap=True)
    return 0


def _changes(options: argparse.Namespace) -> dict[str, str]:
    """Flags as dotted keys of an experiment."""
    short = {
        "model.loss": options.loss,
        "model.train.steps": options.steps,
        "model.seed": options.seed,
        "model.data.under_representation": options.b,
        "start": options.start,
        "name": options.name,
    }
    changes = {key: json.dumps(value) for key, value in short.items() if value is not None}
    for pair in options.set:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair}: write KEY=VALUE, as in --set model.train.ema=0.999")
        changes[key] = value
    return changes
