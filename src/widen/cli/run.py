"""Run a recipe: a table or figure of the paper, trained, scored and tabulated.

  widen run --list                                    every recipe
  widen run mulmod:tiny:losses --out runs             the shape of it, in seconds on a CPU
  widen run mulmod:losses --out runs --device cuda    the real one
  widen run mulmod:losses --out runs --seeds 2        fewer seeds; run again without it to add the others
  widen run my_config.json --out runs                 an experiment of your own, as JSON

Models are kept in --out, one folder each, named by what they are: a second recipe, or a second run, takes up what is there. Stop at any
moment and run the same command again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from widen.run.table import Row

from .show import bars, frontier_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("recipe", nargs="?", help="MODULE:FUNCTION, MODULE:tiny:FUNCTION, or a config file (.json)")
    parser.add_argument("--list", action="store_true", help="print every recipe and stop")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of run folders (default: runs)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--seeds", type=int, help="only the first so many seeds of each setting")


def main(options: argparse.Namespace) -> int:
    """Find, run, print."""
    from widen.run import recipe
    from widen.run.experiment import load

    if options.list:
        print("\n".join(recipe.names("widen_recipes")))
        return 0
    if options.recipe is None:
        raise ValueError("name a recipe, or --list them")
    if options.seeds is not None and options.seeds < 1:
        raise ValueError(f"--seeds {options.seeds}: at least 1")
    if options.recipe.endswith(".json"):
        name, experiments = Path(options.recipe).stem, [load(options.recipe)]
    else:
        name, experiments = options.recipe, recipe.find("widen_recipes", options.recipe)
    command = f"widen run {options.recipe} --device {options.device}" + (
        f" --seeds {options.seeds}" if options.seeds else ""
    )
    with bars() as (on_training, on_score):
        rows = recipe.run(
            name,
            experiments,
            options.out,
            command=command,
            device=options.device,
            seeds=options.seeds,
            on_training=on_training,
            on_score=on_score,
        )
    _print(rows, name, options.out)
    return 0


def _print(rows: Sequence[Row], name: str, out: Path) -> None:
    console = Console()
    console.print(frontier_table(rows, title=f"{name} at t = 1, and the best recall at a precision of .9"))
    console.print(f"table: {out / (name.replace(':', '_') + '.csv')}", soft_wrap=True)
