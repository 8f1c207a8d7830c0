"""Score samples: which answers are right, and how many different ones there are.

It prints a table and writes JSON.

answers that your function checks:
  widen score --checker own.py:check runs/NAME

answers to a task of lm-evaluation-harness, drawn by widen sample --lm-eval gsm8k:
  widen score --lm-eval gsm8k runs/NAME

programs, drawn by widen sample --task mbpp --prompts test.jsonl:
  widen score --task mbpp test.jsonl runs/NAME

texts, compared with texts that people wrote (.txt, .jsonl, .csv, or samples of widen sample):
  widen score reference.txt generated.jsonl --embedder PATH
  widen score reference.txt runs/NAME --embedder PATH

small models (integer task, Countdown), scored exactly and without samples:
  widen score runs                                        every run in or below a folder
  widen score runs --temperatures 0.5 1 2 --num-samples 20000
  widen score runs --decodings grid                       77 decodings

Checked answers and programs get pass@k (the probability that at least one of k samples is right)
and, with a checker, coverage (the number of different right answers). Checkers and programs run in
a sandbox, and no answer is checked twice. Texts get k-NN precision, recall, density and coverage on
embeddings, MAUVE, PRD, n-gram diversity and Vendi, with intervals and the score of the reference
against itself. Small models get exact precision, and recall: the expected share of right answers in
N samples.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from widen.disk.lock import hold

from . import score_answers, score_texts
from .show import bars, files_or_runs, runs_in, table_of

if TYPE_CHECKING:
    from widen.run.experiment import Experiment
    from widen.run.record import Record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    add = parser.add_argument
    add(
        "paths",
        nargs="+",
        type=Path,
        help="run folders or samples files; before them, if needed, the reference texts or the problems",
    )
    add = parser.add_argument_group("small models").add_argument
    add("--temperatures", type=float, nargs="+", metavar="T", help="temperatures (default: those of the run's config)")
    add("--decodings", nargs="+", metavar="D", help="decodings as in widen sample; grid is a set of 77")
    add("--num-samples", type=int, metavar="N", help="recall is expected in N samples (default: N of the run's config)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")
    score_texts.add_arguments(parser)
    score_answers.add_arguments(parser)


def main(options: argparse.Namespace) -> int:
    """Score, then write the scores into the cards of the models."""
    status = _score(options)
    if options.json is None:
        from widen.run.folder import RunFolder
        from widen.run.model_card import complete_card
        from widen.run.sample_files import run_of

        runs = [RunFolder(path) if path.is_dir() else run_of(path) for path in options.paths]
        for run in {run.path: run for run in runs if run is not None}.values():
            if card := complete_card(run):
                Console().print(f"model card: {card}", soft_wrap=True)
    return status


def _score(options: argparse.Namespace) -> int:
    """Answers if a task or a checker is named, else runs or texts, by what the paths are."""
    if missing := [str(path) for path in options.paths if not path.exists()]:
        raise FileNotFoundError(f"there is no file or folder {', '.join(missing)}")
    judges = [flag for flag in (options.task, options.checker, options.lm_eval) if flag is not None]
    if len(judges) > 1:
        raise ValueError("--task, --checker and --lm-eval: give one of them")
    if options.checker_file and options.checker is None:
        raise ValueError("--checker-file is for --checker FILE.py:FUNCTION")
    for flag in ("ks", "fenced", "wall_seconds"):
        if not judges and getattr(options, flag):
            raise ValueError(f"--{flag.replace('_', '-')} is for programs (--task) and checkers (--checker)")
    console, exact = Console(), not judges and all(path.is_dir() for path in options.paths)
    first = 0 if exact or (judges and options.task is None) else 1  # the first path is a reference, or holds problems
    if first and (len(options.paths) < 2 or options.paths[0].is_dir()):
        files = "DATA and samples" if judges else "two text files: REFERENCE and GENERATED (or runs with samples)"
        raise ValueError(f"give runs only, or {files}; got {', '.join(map(str, options.paths))}")
    options.paths[first:] = (runs_in if exact else files_or_runs)(options.paths[first:], console)
    with ExitStack() as held:
        for path in options.paths:
            if options.json is None and path.is_dir():  # with --json, scores do not go into the run
                held.enter_context(hold(path))
        return (_runs if exact else score_answers.main if judges else score_texts.main)(options, console)


def _runs(options: argparse.Namespace, console: Console) -> int:
    """Exact scores of small models, in one table."""
    from widen.run.experiment import load
    from widen.run.finetune.config import is_finetune
    from widen.run.folder import RunFolder
    from widen.run.runner import score_one
    from widen.run.scoring.job import ScoreJob, ScoreTools
    from widen.run.scoring.score_files import score_name

    folders = [RunFolder(path) for path in options.paths]
    tuned = [one for one in folders if not one.config.exists() or is_finetune(one.read(one.config))]
    if len(tuned) == len(folders):
        path = tuned[0].path
        raise ValueError(
            f"{path} holds a fine-tuned model, which has no exact score. Draw samples (`widen sample {path} --prompts FILE`). Then check "
            f"them with your function (`widen score --checker FILE.py:check {path}`), run them as programs (`widen score --task TASK DATA "
            f"{path}`) or compare them with texts (`widen score REFERENCE {path}`). For a recipe: `widen run RECIPE --stages score`"
        )
    if tuned:
        console.print(f"left out, fine-tuned models have no exact score: {', '.join(str(one.path) for one in tuned)}")
    small = [(one, _changed(load(one.config), options)) for one in folders if one not in tuned]
    found: list[tuple[str, list[Record]]] = []
    with bars() as progress:
        for done, (folder, experiment) in enumerate(small):
            progress("score", done, len(small))
            tools = ScoreTools(folder.path.parent, device=options.device)
            records = score_one(ScoreJob(folder, experiment, (), tools))
            found.append((f"{experiment.name}, seed {experiment.model_seed}", records))
        progress("score", len(small), len(small))
    _print(found, console)
    for folder, experiment in small:
        console.print(f"scores: {folder.scores(score_name(experiment))}", soft_wrap=True)
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


def _print(found: list[tuple[str, list[Record]]], console: Console) -> None:
    """One row per model and decoding, one column per metric; then one line about each model."""
    from widen.run.record import by_decoding

    points = [
        (name, decoding, point)
        for name, records in found
        for (_, decoding), point in by_decoding(records).items()
        if decoding is not None
    ]
    metrics = list(dict.fromkeys(metric for _, _, point in points for metric in point))
    names = {"recall": f"recall\nN = {points[0][2]['recall'].n:,}", "auc": "area"}
    headers = ["model", "decoding", *(names.get(one, one.replace("@lam=", "\nλ = ")) for one in metrics)]
    rows = [
        [name, decoding.in_words, *(f"{point[one].value:.3f}" if one in point else "" for one in metrics)]
        for name, decoding, point in points
    ]
    console.print(table_of("exact scores", headers, rows, left=(0, 1)))
    for name, records in found:
        by_metric = {record.metric: record for record in records}
        separation, detail = by_metric["separation"].value, by_metric["separation"].detail
        console.print(
            f"{name}: the reference itself has recall {by_metric['recall'].detail['ceiling']:.3f}; {detail['valid_below_noise']:.1%} of "
            f"the right next tokens are no more probable than the most probable wrong one; separation {separation:.4f} (chance that a "
            "right next token has a larger q / max q than a wrong one)"
        )
