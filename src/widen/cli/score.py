"""Precision and recall: exactly for a run of the integer task, from embeddings for texts, by running them for programs.

  widen score runs/nll-seed0-...                                   a run folder of the integer task, or several
  widen score runs/*/ --temperatures 0.5 1 2 --num-samples 20000
  widen score reference.txt generated.jsonl --embedder PATH        texts against texts (.txt, .jsonl, .csv, files of widen sample)
  widen score reference.txt runs/NAME --embedder PATH              all samples of a run; widen report shows the scores
  widen score --task mbpp test.jsonl runs/NAME                     programs drawn by widen sample --task mbpp --prompts test.jsonl

For a run: exact at every temperature from one pass, no sampling; recall is the expectation of the paper's unique count over N samples.
For texts: k-NN precision, recall, density and coverage on embeddings, MAUVE, PRD, n-gram diversity and Vendi, with intervals and the
reference-against-itself ceiling. For programs: pass@k, every program run in a sandbox; what was judged before is not run again. Prints
a table and writes JSON.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from widen.disk.lock import hold

from .show import bars


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument(
        "paths", nargs="+", type=Path, help="run folders; or REFERENCE and what was generated: text files or runs"
    )
    runs = parser.add_argument_group("runs")
    runs.add_argument("--temperatures", type=float, nargs="+", metavar="T", help="default: those of the run's config")
    runs.add_argument("--num-samples", type=int, metavar="N", help="N of the sampled recall (default: the config's)")
    runs.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    from .score_programs import add_arguments as add_program_arguments
    from .score_texts import add_arguments as add_text_arguments

    add_text_arguments(parser.add_argument_group("texts"))
    add_program_arguments(parser.add_argument_group("programs"))


def main(options: argparse.Namespace) -> int:
    """Programs where a task is named, else runs or texts, by what the paths are."""
    missing = [str(path) for path in options.paths if not path.exists()]
    if missing:
        raise FileNotFoundError(f"not there: {', '.join(missing)}")
    with ExitStack() as held:
        for path in options.paths:
            # With --json, scores go to that file and not into the run.
            if options.json is None and ((path / "config.json").exists() or (path / "samples").is_dir()):
                held.enter_context(hold(path))
        return _score(options)


def _score(options: argparse.Namespace) -> int:
    if options.task is not None:
        from .score_programs import main as programs

        return programs(options)
    for flag in ("ks", "fenced", "wall_seconds"):
        if getattr(options, flag):
            raise ValueError(f"--{flag.replace('_', '-')} is for programs: name their task with --task")
    if all(path.is_dir() for path in options.paths):
        return _runs(options)
    if len(options.paths) < 2 or options.paths[0].is_dir():
        files = ", ".join(str(path) for path in options.paths if not path.is_dir())
        raise ValueError(
            f"give run folders only, or two text files: REFERENCE and GENERATED (or runs with samples); not folders: {files}"
        )
    from .score_texts import main as texts

    return texts(options)


def _runs(options: argparse.Namespace) -> int:
    from widen.run.experiment import load
    from widen.run.finetune import is_finetune
    from widen.run.folder import RunFolder
    from widen.run.scores import score_all, settings_name

    folders = []
    runs = [path for path in options.paths if (path / "config.json").exists()]
    others = ", ".join(str(path) for path in options.paths if path not in runs)
    if not runs:
        raise ValueError(f"{others} is no run folder: it has no config.json")
    if others:
        Console().print(f"left out, no run folder: {others}", soft_wrap=True, highlight=False)
    for path in runs:
        if is_finetune(RunFolder(path).read(path / "config.json")):
            raise ValueError(
                f"{path} holds a fine-tuned model, which has no exact score. Draw samples (`widen sample {path} --prompts FILE`) and "
                f"score them against texts (`widen score REFERENCE {path}`) or, for programs, by running them (`widen score --task TASK "
                f"DATA {path}`); a recipe's samples are scored by `widen run RECIPE --stages score`"
            )
        experiment = load(path / "config.json")
        settings = experiment.score
        if options.temperatures:
            settings = replace(settings, temperatures=tuple(options.temperatures))
        if options.num_samples is not None:
            settings = replace(settings, num_samples=options.num_samples)
        folders.append((RunFolder(path), replace(experiment, score=settings)))
    with bars() as (_, on_score):
        scored = score_all(folders, device=options.device, progress=on_score)
    console = Console()
    for (folder, experiment), (_, points) in zip(folders, scored, strict=True):
        table = Table(title=f"{experiment.name}  ({folder.path.name})", title_justify="left")
        for header in (
            "t",
            "precision",
            f"recall, N = {experiment.score.num_samples:,}",
            "area",
            *(f"recall at lam {lam:g}" for lam in experiment.score.lams),
        ):
            table.add_column(header, justify="right")
        for point in points:
            cells = (point.precision, point.recall, point.auc, *point.recall_at)
            table.add_row(f"{point.temperature:g}", *(f"{cell:.3f}" for cell in cells))
        console.print(table)
        console.print(f"the reference itself would get a recall of {points[0].recall_ceiling:.3f}")
        console.print(f"scores: {folder.scores(settings_name(experiment))}", soft_wrap=True)
    return 0
