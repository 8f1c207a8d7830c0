"""Precision and recall: exact for a small model, from embeddings for texts, by running them for programs.

  widen score runs/nll-seed0-...                                   run folders of small models (integer task, Countdown)
  widen score runs/*/ --temperatures 0.5 1 2 --num-samples 20000
  widen score runs/*/ --decodings grid                             77 decodings: temperatures, and truncation before or after heat
  widen score reference.txt generated.jsonl --embedder PATH        texts against texts (.txt, .jsonl, .csv, files of widen sample)
  widen score reference.txt runs/NAME --embedder PATH              all samples of a run; widen report shows the scores
  widen score --task mbpp test.jsonl runs/NAME                     programs drawn by widen sample --task mbpp --prompts test.jsonl

For a run: exact under every decoding, without sampling; recall is the expected share of right answers seen in N samples.
For texts: k-NN precision, recall, density and coverage on embeddings, MAUVE, PRD, n-gram diversity and Vendi, with intervals and the
reference-against-itself ceiling. For programs: pass@k, every program run in a sandbox; what was judged before is not run again. Prints
a table and writes JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from widen.disk.lock import hold

from .show import bars

if TYPE_CHECKING:
    from widen.run.experiment import Experiment
    from widen.run.record import Record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument(
        "paths", nargs="+", type=Path, help="run folders; or REFERENCE and what was generated: text files or runs"
    )
    runs = parser.add_argument_group("runs")
    runs.add_argument("--temperatures", type=float, nargs="+", metavar="T", help="default: those of the run's config")
    runs.add_argument(
        "--decodings",
        nargs="+",
        metavar="D",
        help="specs such as t=2,min_p=0.1,order=temperature_last; `grid` is the default grid of 77 (docs/sampling.md)",
    )
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
    from widen.run.finetune.config import is_finetune
    from widen.run.folder import RunFolder
    from widen.run.runner import score_listed
    from widen.run.scoring.listed_answers import score_name

    runs = [path for path in options.paths if (path / "config.json").exists()]
    others = ", ".join(str(path) for path in options.paths if path not in runs)
    if not runs:
        raise ValueError(f"{others} is no run folder: it has no config.json")
    if others:
        Console().print(f"left out, no run folder: {others}", soft_wrap=True, highlight=False)
    experiments = []
    for path in runs:
        if is_finetune(RunFolder(path).read(path / "config.json")):
            raise ValueError(
                f"{path} holds a fine-tuned model, which has no exact score. Draw samples (`widen sample {path} --prompts FILE`) and "
                f"score them against texts (`widen score REFERENCE {path}`) or, for programs, by running them (`widen score --task TASK "
                f"DATA {path}`); a recipe's samples are scored by `widen run RECIPE --stages score`"
            )
        experiments.append(_changed(load(path / "config.json"), options))
    found = []
    with bars() as progress:
        for done, (path, experiment) in enumerate(zip(runs, experiments, strict=True)):
            progress("score", done, len(runs))
            found.append(score_listed(RunFolder(path), experiment, device=options.device))
        progress("score", len(runs), len(runs))
    console = Console()
    for path, experiment, records in zip(runs, experiments, found, strict=True):
        console.print(_exact_table(f"{experiment.name}  ({path.name})", records))
        ceiling = next(record.detail["ceiling"] for record in records if record.metric == "recall")
        console.print(f"the reference itself would get a recall of {ceiling:.3f}")
        console.print(_separation_text(next(record for record in records if record.metric == "separation")))
        console.print(f"scores: {RunFolder(path).scores(score_name(experiment))}", soft_wrap=True)
    return 0


def _changed(experiment: Experiment, options: argparse.Namespace) -> Experiment:
    """The experiment of a run with the flags of this call."""
    if options.temperatures and options.decodings:
        raise ValueError("--temperatures and --decodings: give one of them; a temperature is the decoding t=T")
    if decodings := options.decodings or [f"t={t!r}" for t in options.temperatures or ()]:
        experiment = replace(experiment, decoding=tuple(decodings))
    if options.num_samples is not None:
        experiment = replace(experiment, score=replace(experiment.score, num_samples=options.num_samples))
    return experiment


def _separation_text(record: Record) -> str:
    """What a threshold on q / max q can do for this model."""
    return (
        f"separation {record.value:.4f}: the chance that a right next token has a larger q / max q than a wrong one; best min-p "
        f"{record.detail['threshold']:.3g}; {record.detail['valid_below_noise']:.1%} of the right mass is below a wrong token"
    )


def _exact_table(title: str, records: Sequence[Record]) -> Table:
    """One line per decoding, one column per metric."""
    from widen.run.record import by_decoding

    points = [(decoding, point) for (_, decoding), point in by_decoding(records).items() if decoding is not None]
    table = Table(title=title, title_justify="left")
    names = {"recall": f"recall\nN = {points[0][1]['recall'].n:,}", "auc": "area"}
    for metric in ("", *points[0][1]):
        table.add_column(names.get(metric, metric.replace("@lam=", "\nλ = ")), justify="right", no_wrap=True)
    for decoding, point in points:
        table.add_row(decoding.spec, *(f"{record.value:.3f}" for record in point.values()))
    return table
