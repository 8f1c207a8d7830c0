"""Run a recipe: a table or figure of the paper, trained, sampled, scored and tabulated.

  widen run --list                                    every recipe
  widen run mulmod:tiny:losses --out runs             the shape of it, in seconds on a CPU
  widen run mulmod:losses --out runs --device cuda    the real one
  widen run mulmod:losses --out runs --seeds 2        fewer seeds; run again without it to add the others
  widen run my_config.json --out runs                 an experiment of your own, as JSON

Recipes on texts have stages that may run on different machines, on one --out folder; the last one needs no checkpoints:

  widen run mathqa_gain:gain --stages train,sample --device cuda --out runs
  widen run mathqa_gain:gain --stages score --out runs
  widen run codecontests:codecontests --stages sample --server http://gpu1:8000 --server http://gpu2:8000

Models are kept in --out, one folder each, named by what they are: a second recipe, or a second run, takes up what is there. Stop at any
moment and run the same command again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widen.disk.lock import hold

if TYPE_CHECKING:
    from widen.run.table import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("recipe", nargs="?", help="MODULE:FUNCTION, MODULE:tiny:FUNCTION, or a config file (.json)")
    parser.add_argument("--list", action="store_true", help="print every recipe and stop")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of run folders (default: runs)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--seeds", type=int, help="only the first so many seeds of each setting")
    texts = parser.add_argument_group("recipes on texts")
    texts.add_argument("--stages", default="train,sample,score", help="of train, sample, score (default: all)")
    texts.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="URL",
        help="sample from servers; each model from those that serve it",
    )
    texts.add_argument("--rows", type=int, metavar="N", help="samples drawn at a time (default: what fits into memory)")
    texts.add_argument(
        "--drop-checkpoints", action="store_true", help="remove a model's weights once its samples are on disk"
    )
    texts.add_argument("--skip-bad", action="store_true", help="leave out records that cannot be used")


def main(options: argparse.Namespace) -> int:
    """Find, run, print."""
    from widen.run import recipe

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
    if options.recipe.endswith(".json"):
        name, experiments = Path(options.recipe).stem, [_load(options.recipe)]
    else:
        name, experiments = options.recipe, recipe.find("widen_recipes", options.recipe)
    command = f"widen run {options.recipe} --device {options.device}" + (
        f" --seeds {options.seeds}" if options.seeds else ""
    )
    if ":tiny:" in options.recipe:
        print("the small form of a recipe: its shape is real, its numbers mean nothing")
    texts = recipe.on_texts(experiments)
    with hold(options.out):
        if texts is None:
            return _integers(name, experiments, command, options)
        return _texts(name, texts, command, options)


def _load(path: str) -> Any:
    """An experiment of either kind."""
    from widen.run.experiment import load
    from widen.run.text_experiment import is_text_experiment, load_text
    from widen.run.value import read_config

    return load_text(path) if is_text_experiment(read_config(path)) else load(path)


def _integers(name: str, experiments: Sequence[Any], command: str, options: argparse.Namespace) -> int:
    from widen.run import recipe

    from .show import bars

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
    from rich.console import Console

    from .show import frontier_table

    console = Console()
    console.print(frontier_table(rows, title=f"{name} at t = 1, and the best recall at a precision of .9"))
    console.print(f"table: {out / (name.replace(':', '_') + '.csv')}", soft_wrap=True)


def _texts(name: str, experiments: Sequence[Any], command: str, options: argparse.Namespace) -> int:
    """Stages of a recipe on texts. Plain lines: the machine with the GPU need not have a terminal, nor rich."""
    from widen.run.text_stages import run_texts
    from widen.run.text_table import as_text

    stages = [stage.strip() for stage in options.stages.split(",") if stage.strip()]
    rows = run_texts(
        name,
        experiments,
        options.out,
        command=f"{command} --stages {options.stages}",
        device=options.device,
        stages=stages,
        seeds=options.seeds,
        servers=options.server,
        rows=options.rows,
        drop_checkpoints=options.drop_checkpoints,
        skip_bad=options.skip_bad,
        progress=_lines(),
        notice=lambda text: print(f"note: {text}", flush=True),
    )
    if rows:
        print(as_text(rows))
        print(f"table: {options.out / (name.replace(':', '_') + '.csv')}")
    else:
        print(f"{', '.join(stages)}: done, in {options.out}; next: widen run {name} --stages score --out {options.out}")
    return 0


def _lines(every: float = 5.0, clock: Callable[[], float] = time.monotonic) -> Callable[[str, int, int], None]:
    """Progress as lines with the time left: when something starts, ends, and every few seconds between."""
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
