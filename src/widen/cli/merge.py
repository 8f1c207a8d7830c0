"""Average the weights of several trained models into one.

  widen merge runs/NLL runs/CDIV --weights .5 .5 --out runs/half  two runs
  widen merge ./base runs/NLL --weights .3 .7 --out ./wise        before and after training: WiSE-FT
  widen merge runs/A runs/B runs/C --out runs/soup                equal weights (a soup)
  widen merge runs --out soup                                     every trained run in a folder

A model is a run folder, or a folder of transformers or PEFT with .safetensors. All models must have
the same architecture and size. Fine-tuned versions of one model average best. If every model is a
run folder, so is the result, with the settings of the first one. Otherwise the result is a model
folder. Tokenizer and config come from the first model. `widen sample` and `widen score` take both.

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
    add("models", nargs="+", metavar="MODEL", help="run folders or model folders, two or more")
    add("--weights", nargs="+", type=float, metavar="W", help="one per model, adding up to 1 (default: equal)")
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the result; must not exist")


def main(options: argparse.Namespace) -> int:
    """Average, write, print where it is."""
    from widen.disk.atomic_folder import write_folder
    from widen.disk.json_file import read_json
    from widen.models.average import average_folders
    from widen.run.environment import environment
    from widen.run.finetune.model_files import resolved
    from widen.run.folder import RunFolder

    models = [Path(model) for model in trained_models(options.models)]
    for model in models:
        if not model.is_dir():
            raise FileNotFoundError(f"{model}: there is no such folder")
    if options.out.exists():
        raise FileExistsError(f"--out {options.out} exists: name a new folder, or remove it")
    weights = options.weights or [1 / len(models)] * len(models)
    folders = [Path(resolved(str(model))) for model in models]
    runs = all(folder != model for folder, model in zip(folders, models, strict=True))
    target = options.out / "checkpoint" if runs else options.out
    write_folder(target, lambda folder: average_folders(folders, weights, folder))
    if runs:
        made = {"of": [str(model) for model in models], "weights": weights}
        experiment = read_json(models[0] / "config.json")["experiment"]
        folder = RunFolder(options.out)
        folder.write(folder.path / "env.json", environment())
        folder.write(folder.config, {"experiment": experiment | {"name": f"average of {len(models)}"}, "merged": made})
    print(f"{'run' if runs else 'model'} folder: {options.out}")
    return 0
