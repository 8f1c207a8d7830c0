"""Run a recipe: a table or figure of the paper, trained, sampled, scored and tabulated.

  widen run --list                                    every recipe
  widen run mulmod:tiny:losses --out runs             its small form: seconds on a CPU, numbers without meaning
  widen run mulmod:losses --out runs --device cuda    the real one
  widen run mulmod:losses --out runs --seeds 2        fewer seeds; run again without --seeds to add the others
  widen run my_config.json --out runs                 an experiment of your own, as JSON

Stages may run on different machines that share one --out folder. For recipes on texts the stage score needs no checkpoints:

  widen run mathqa_gain:gain --stages train,sample --device cuda --out runs
  widen run mathqa_gain:gain --stages score --out runs
  widen run codecontests:codecontests --stages sample --server http://gpu1:8000 --server http://gpu2:8000

Each model has one folder in --out, named by its content, and other recipes reuse it. Stop at any time; the same command continues.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from widen.disk.lock import hold

STAGES = "train,sample,score"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    add = parser.add_argument
    add("recipe", nargs="?", help="MODULE:FUNCTION, MODULE:tiny:FUNCTION, or a config file (.json, .yaml)")
    add("--list", action="store_true", help="print every recipe and stop")
    add("--out", type=Path, default=Path("runs"), help="folder of run folders (default: runs)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")
    add("--seeds", type=int, help="only the first N seeds of each setting", metavar="N")
    add("--stages", default=STAGES, help="of train, sample, score (default: all)")
    add = parser.add_argument_group("recipes on texts").add_argument
    add("--server", action="append", default=[], metavar="URL", help="sample from this server (repeatable)")
    add("--rows", type=int, metavar="N", help="samples drawn at a time (default: what fits into memory)")
    add("--jobs", type=int, default=1, metavar="N", help="models at a time, each in its own process (default: 1)")
    add("--drop-checkpoints", action="store_true", help="remove a model's weights after sampling or exact scoring")
    add("--skip-bad", action="store_true", help="leave out records that cannot be used")


def main(options: argparse.Namespace) -> int:
    """Find, run, print. Progress is plain lines, so that a job's log file stays readable."""
    from widen.run import recipe
    from widen.run.experiment import load
    from widen.run.progress_lines import progress_lines
    from widen.run.runner import best_path, best_settings, halves_path, run, table_path
    from widen.run.table import as_text

    if options.list:
        found = recipe.summaries("widen_recipes")
        width = max(map(len, found))
        print("\n".join(f"{name:{width}}  {text}" for name, text in found.items()))
        print(
            "\nMODULE:tiny:FUNCTION is the small form of each but the demo: seconds on a CPU, numbers without meaning."
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
    if ":tiny:" in options.recipe:
        print("the small form of a recipe: its numbers have no meaning")
    stages = [stage.strip() for stage in options.stages.split(",") if stage.strip()]
    command = f"widen run {options.recipe} --device {options.device}"
    command += f" --seeds {options.seeds}" if options.seeds else ""
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
        print(f"best settings: {best_path(options.out, name)}")
    else:
        print(as_text(rows))
    if (halves := halves_path(options.out, name)).exists():
        print(f"best settings, chosen on one half of the problems and scored on the other: {halves}")
    print(f"table: {table_path(options.out, name)}")
    return 0
