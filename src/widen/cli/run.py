"""Run a recipe: a table or figure of the paper, trained, sampled, scored and tabulated.

  widen run --list                                    every recipe
  widen run mulmod:tiny:losses --out runs             the shape of it, in seconds on a CPU
  widen run mulmod:losses --out runs --device cuda    the real one
  widen run mulmod:losses --out runs --seeds 2        fewer seeds; run again without it to add the others
  widen run my_config.json --out runs                 an experiment of your own, as JSON

Stages may run on different machines that share one --out folder; for recipes on texts the last one needs no checkpoints:

  widen run mathqa_gain:gain --stages train,sample --device cuda --out runs
  widen run mathqa_gain:gain --stages score --out runs
  widen run codecontests:codecontests --stages sample --server http://gpu1:8000 --server http://gpu2:8000

Models are kept in --out, one folder each, named by their content: a second recipe, or a second run, reuses them. Stop at any moment and
run the same command again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from widen.disk.lock import hold

if TYPE_CHECKING:
    from widen.run.best_setting import MethodBest
    from widen.run.table import Row


STAGES = "train,sample,score"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("recipe", nargs="?", help="MODULE:FUNCTION, MODULE:tiny:FUNCTION, or a config file (.json)")
    parser.add_argument("--list", action="store_true", help="print every recipe and stop")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of run folders (default: runs)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--seeds", type=int, help="only the first N seeds of each setting", metavar="N")
    parser.add_argument("--stages", default=STAGES, help="of train, sample, score (default: all)")
    texts = parser.add_argument_group("recipes on texts")
    texts.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="URL",
        help="sample from servers; each model from those that serve it",
    )
    texts.add_argument("--rows", type=int, metavar="N", help="samples drawn at a time (default: what fits into memory)")
    texts.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="models made at a time, each in its own process (default: 1)"
    )
    texts.add_argument(
        "--drop-checkpoints", action="store_true", help="remove a model's weights once its samples are on disk"
    )
    texts.add_argument("--skip-bad", action="store_true", help="leave out records that cannot be used")


def main(options: argparse.Namespace) -> int:
    """Find, run, print. Progress is plain lines: the machine with the GPU need not have a terminal, nor rich."""
    from widen.run import recipe
    from widen.run.experiment import load
    from widen.run.runner import best_path, best_settings, run, table_path

    if options.list:
        found = recipe.summaries("widen_recipes")
        width = max(map(len, found))
        print("\n".join(f"{name:{width}}  {text}" for name, text in found.items()))
        print(
            "\nMODULE:tiny:FUNCTION is the small form of each but the demo: seconds on a CPU, numbers that mean nothing."
        )
        return 0
    if options.recipe is None:
        raise ValueError("name a recipe, or --list them")
    if options.seeds is not None and options.seeds < 1:
        raise ValueError(f"--seeds {options.seeds}: at least 1")
    if options.jobs < 1:
        raise ValueError(f"--jobs {options.jobs}: at least 1")
    if options.recipe.endswith(".json"):
        name, experiments = Path(options.recipe).stem, [load(options.recipe)]
    else:
        name, experiments = options.recipe, recipe.find("widen_recipes", options.recipe)
    if ":tiny:" in options.recipe:
        print("the small form of a recipe: its shape is real, its numbers mean nothing")
    stages = [stage.strip() for stage in options.stages.split(",") if stage.strip()]
    with hold(options.out):
        rows = run(
            name,
            experiments,
            options.out,
            command=_command(options),
            device=options.device,
            stages=stages,
            seeds=options.seeds,
            servers=options.server,
            rows=options.rows,
            jobs=options.jobs,
            drop_checkpoints=options.drop_checkpoints,
            skip_bad=options.skip_bad,
            progress=_lines(),
            notice=lambda text: print(f"note: {text}", flush=True),
        )
    if rows:
        if best := best_settings(name, experiments, options.out, seeds=options.seeds):
            _print_best(best, name)
            print(f"best settings: {best_path(options.out, name)}")
        else:
            _print(rows, name)
        print(f"table: {table_path(options.out, name)}")
    else:
        print(f"{', '.join(stages)}: done, in {options.out}; next: widen run {name} --stages score --out {options.out}")
    return 0


def _command(options: argparse.Namespace) -> str:
    """What made the table, for its first line."""
    seeds = f" --seeds {options.seeds}" if options.seeds else ""
    stages = f" --stages {options.stages}" if options.stages != STAGES else ""
    return f"widen run {options.recipe} --device {options.device}{seeds}{stages}"


def _print(rows: Sequence[Row], name: str) -> None:
    """Exact scores have many temperatures: the table shows t = 1 and the best of the rest. Others are printed whole."""
    from widen.run.table import as_text

    if any(row.num_samples is None for row in rows):
        print(as_text(rows))
        return
    from rich.console import Console

    from .show import frontier_table

    Console().print(frontier_table(rows, title=f"{name} at t = 1, and the best recall at a precision of .9"))


def _print_best(best: Sequence[MethodBest], name: str) -> None:
    """The best setting of each method, and what came from the decoding and what from the loss."""
    from rich.console import Console

    from widen.run.best_setting import what_helped

    from .show import best_table

    console = Console()
    console.print(best_table(best, title=f"{name}: the best recall at a required precision"))
    for level in dict.fromkeys(row.level for row in best):
        console.print(what_helped(best, level=level), highlight=False)


def _lines(every: float = 5.0, clock: Callable[[], float] = time.monotonic) -> Callable[[str, int, int], None]:
    """Progress as lines with the time left: when something starts and ends, and every few seconds."""
    first: dict[str, tuple[float, int]] = {}
    last: dict[str, float] = {}

    def at(what: str, done: int, total: int) -> None:
        now = clock()
        began, had = first.setdefault(what, (now, done))
        if what not in last or done == total or now - last[what] > every:
            last[what] = now
            left = f", {_minutes((now - began) * (total - done) / (done - had))} left" if had < done < total else ""
            print(f"{what}: {done:,} of {total:,}{left}", flush=True)

    return at


def _minutes(seconds: float) -> str:
    """As minutes and seconds.

    >>> _minutes(125.2), _minutes(4000)
    ('2:05', '1:06:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
