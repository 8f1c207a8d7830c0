"""Average the weights of several trained models into one.

  widen merge runs/NLL runs/CDIV --weights .5 .5 --out runs/half  two runs
  widen merge ./base runs/NLL --weights .3 .7 --out ./wise        before and after training: WiSE-FT
  widen merge runs/A runs/B runs/C --out runs/soup                equal weights (a soup)
  widen merge runs --out soup                                     every trained run in a folder

A model is a run folder, a folder of transformers or PEFT, or a name on the hub. All models must
have the same architecture and size. Fine-tuned versions of one model average best. If every model
is a run folder, so is the result, with the settings of the first one. Otherwise the result is a
model folder. Tokenizer and config come from the first model. `widen sample` and `widen score` take
both.

The running average of one training (--ema in `widen train`) is in RUN/checkpoint/average, which is
a model folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .show import trained_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help="run folders, model folders or names on the hub, two or more")
    add("--weights", nargs="+", type=float, metavar="W", help="one per model, adding up to 1 (default: equal)")
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the result; must not exist")


def main(options: argparse.Namespace) -> int:
    """Average, write, print where it is."""
    from widen.disk.atomic_folder import write_folder
    from widen.disk.json_file import read_json
    from widen.run.environment import environment
    from widen.run.finetune.average import average_models
    from widen.run.finetune.model_files import is_run, resolved
    from widen.run.folder import RunFolder

    models = trained_models(options.models)
    if options.out.exists():
        raise FileExistsError(f"--out {options.out} exists: name a new folder, or remove it")
    weights = options.weights or [1 / len(models)] * len(models)
    found, runs = [resolved(model) for model in models], all(map(is_run, models))
    target = options.out / "checkpoint" if runs else options.out
    write_folder(target, lambda folder: average_models(found, weights, folder))
    if runs:
        made = {"of": models, "weights": weights}
        experiment = read_json(Path(models[0]) / "config.json")["experiment"]
        folder = RunFolder(options.out)
        folder.write(folder.path / "env.json", environment())
        folder.write(folder.config, {"experiment": experiment | {"name": f"average of {len(models)}"}, "merged": made})
    print(f"{'run' if runs else 'model'} folder: {options.out}")
    return 0
