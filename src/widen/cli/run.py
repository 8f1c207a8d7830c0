"""Run a recipe (an experiment of the paper or one of ours), or an experiment of your own.

It trains, samples, scores and prints a table.

  widen run --list                                    every recipe
  widen run mulmod:tiny:losses --out runs             tiny version: seconds; numbers mean nothing
  widen run mulmod:losses --out runs --device cuda    the recipe itself
  widen run mulmod:losses --out runs --seeds 2        fewer seeds; without --seeds, adds the others
  widen run study:coverageqa --only NLL --only "GEM 0.7"     these settings of the recipe only
  widen run my_config.json --out runs                 your own experiment, as JSON

The stages train, sample and score may run on different machines that share one --out folder. For
recipes on texts, the stage score needs no checkpoints:

  widen run mathqa_gain:gain --stages train,sample --device cuda --out runs
  widen run mathqa_gain:gain --stages score --out runs
  widen run codecontests:codecontests --stages sample --server http://gpu1:8000 --out runs

Each model has one folder in --out, which other recipes reuse. You can stop at any time; the same
command continues.
"""

from __future__ import annotations

import argparse
import shlex
from functools import partial
from pathlib import Path

from widen.disk.lock import hold

STAGES = "train,sample,score"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    add = parser.add_argument
    add("recipe", nargs="?", help="MODULE:FUNCTION, MODULE:tiny:FUNCTION, or a config file (.json, .yaml)")
    add("--list", action="store_true", help="print every recipe and stop")
    add("--out", type=Path, default=Path("runs"), help="folder for models, samples, scores and tables (default: runs)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")
    add("--seeds", type=int, help="only the first N seeds of each setting", metavar="N")
    add("--only", action="append", default=[], metavar="NAME", help="only the settings with this name (repeatable)")
    add("--stages", default=STAGES, help="which stages to run, joined by commas (default: train,sample,score)")
    add = parser.add_argument_group("recipes on texts").add_argument
    add("--server", action="append", default=[], metavar="URL", help="sample from this server (repeatable)")
    add("--rows", type=int, metavar="N", help="draw N samples at a time (default: as many as fit into memory)")
    add("--jobs", type=int, default=1, metavar="N", help="models at a time, each in its own process (default: 1)")
    add("--drop-checkpoints", action="store_true", help="remove a model's weights after sampling or exact scoring")
    add("--skip-bad", action="store_true", help="skip bad records")


def main(options: argparse.Namespace) -> int:
    """Find, run, print. Progress is plain lines, so that a job's log file stays readable."""
    from widen.run import recipe
    from widen.run.experiment import load
    from widen.run.progress_lines import progress_lines
    from widen.run.runner import best_settings, run, table_path
    from widen.run.table import as_text
    from widen_recipes.study.make_grown import made_by

    if options.list:
        found = recipe.summaries("widen_recipes")
        width = max(map(len, found))
        print("\n".join(f"{name:{width}}  {text}" for name, text in found.items()))
        print(
            "\nMODULE:tiny:FUNCTION is the tiny version of a recipe (the demo has none): seconds on a CPU; its numbers mean nothing."
        )
        return 0
    if options.recipe is None:
        raise ValueError("name a recipe, or --list them")
    if options.seeds is not None and options.seeds < 1:
        raise ValueError(f"--seeds {options.seeds}: at least 1")
    if options.jobs < 1:
        raise ValueError(f"--jobs {options.jobs}: at least 1")
    if options.recipe.endswith((".json", ".yaml", ".yml")):
        name, experiments = Path(options.recipe).stem, [load(options.recipe)]
    else:
        name, experiments = options.recipe, recipe.find("widen_recipes", options.recipe)
    names = list(dict.fromkeys(one.name for one in experiments))
    if unknown := [one for one in options.only if one not in names]:
        raise ValueError(f"--only {', '.join(unknown)}: {name} has {', '.join(names)}")
    experiments = [one for one in experiments if not options.only or one.name in options.only]
    if ":tiny:" in options.recipe:
        print("the tiny version of a recipe: its numbers mean nothing")
    stages = [stage.strip() for stage in options.stages.split(",") if stage.strip()]
    command = f"widen run {options.recipe} --device {options.device}"
    command += f" --seeds {options.seeds}" if options.seeds else ""
    command += "".join(f" --only {shlex.quote(one)}" for one in options.only)
    command += f" --stages {options.stages}" if options.stages != STAGES else ""
    with hold(options.out):
        rows = run(
            name,
            experiments,
            options.out,
            command=command,
            device=options.device,
            stages=stages,
            seeds=options.seeds,
            servers=options.server,
            rows=options.rows,
            jobs=options.jobs,
            drop_checkpoints=options.drop_checkpoints,
            skip_bad=options.skip_bad,
            made_by=partial(made_by, root=options.out),
            progress=progress_lines(),
            notice=lambda text: print(f"note: {text}", flush=True),
        )
    if not rows:
        print(f"{', '.join(stages)}: done, in {options.out}; next: widen run {name} --stages score --out {options.out}")
        return 0
    if best := best_settings(name, experiments, options.out, seeds=options.seeds):
        from rich.console import Console

        from widen.run.best_setting import LEVELS, what_helped

        from .show import best_table

        console = Console()
        console.print(best_table(best, title=f"{name}: the best recall at a required precision"))
        for level in LEVELS if best[0].tried > best[0].tried_alone else ():
            console.print(what_helped(best, level=level), highlight=False)
        print(f"best settings: {table_path(options.out, name, 'best')}")
    else:
        print(as_text(rows))
    if (halves := table_path(options.out, name, "halves")).exists():
        print(f"best settings, chosen on one half of the problems and scored on the other: {halves}")
    print(f"table: {table_path(options.out, name)}")
    return 0
