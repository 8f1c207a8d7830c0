"""`widen score` for samples: texts against a reference (k-NN, MAUVE, PRD, diversity), and programs that are run (pass@k)."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from widen.disk.atomic import write_json

from .show import bars, runs_in, table_of

if TYPE_CHECKING:
    from widen.metrics.text_scores import ScoreSettings, TextScores
    from widen.run.score_settings import ProgramScore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for texts and for programs."""
    add = parser.add_argument_group("texts").add_argument
    add("--metrics", nargs="+", metavar="NAME", help="some of knn mauve prd distinct self_bleu vendi (default: all)")
    add(
        "--embedder",
        metavar="MODEL",
        help="model that embeds the texts: a folder or a name on the hub (default: gpt2-large, as in the paper)",
    )
    add(
        "--paper",
        action="store_true",
        help="the paper's settings: joint PCA keeping .9 of the variance, k = 4, 2,000 texts of each kind",
    )
    add("--samples", metavar="N", help="score N random texts of each kind, or all (default: all; with --paper 2000)")
    add("--k", type=int, help="number of neighbours in k-NN (default: 4)")
    add(
        "--field", default="text", help="field of a .jsonl or column of a .csv file that holds the text (default: text)"
    )
    add("--cache", type=Path, metavar="FOLDER", help="keep embeddings here for later calls")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the scores here (default: the run's scores/, or FILE.scores.json beside FILE)",
    )
    add = parser.add_argument_group("programs").add_argument
    add(
        "--task",
        metavar="NAME",
        help="mathqa_python, mbpp, humaneval or codecontests; the first path holds the problems",
    )
    add("--ks", type=int, nargs="+", metavar="K", help="which pass@k (default: 1 10 100, as far as there are samples)")
    add("--fenced", action="store_true", help="the program is the first block between ``` marks of an answer")
    add("--wall-seconds", type=float, metavar="S", help="time limit for one program with all its tests (default: 10)")


def files_or_runs(paths: list[Path], console: Console) -> list[Path]:
    """Files as they are; folders as the runs in them that have samples."""
    files, folders = [path for path in paths if not path.is_dir()], [path for path in paths if path.is_dir()]
    runs = runs_in(folders, console) if folders else []
    drawn = [path for path in runs if any((path / "samples").glob("*.jsonl"))]
    if drawn and len(drawn) < len(runs):
        names = ", ".join(str(path) for path in runs if path not in drawn)
        console.print(f"left out, no samples yet: {names}", soft_wrap=True, highlight=False)
    return files + (drawn or runs)


def cut_note(cut: int, samples: int) -> str:
    """A sentence about samples that did not end."""
    return f"{cut:,} of {samples:,} samples were cut at max-tokens: their answers do not end"


def _output(options: argparse.Namespace, file: Path) -> Path:
    return options.json or file.with_name(f"{file.name}.scores.json")


def texts(options: argparse.Namespace, console: Console) -> int:
    """Score every set of texts against the reference."""
    from widen.metrics.text_scores import score_texts
    from widen.run.sample_files import files_of, keep_texts, texts_in

    settings = _settings(options)
    sets = [texts_in(file, field=options.field) for path in options.paths for file in files_of(path)]
    if options.json is not None and len(sets) > 2:
        raise ValueError(f"--json names one file, and {len(sets) - 1} sets of texts are scored: leave it out")
    for one in sets:
        if "knn" in settings.metrics and len(one.texts) <= settings.k:
            raise ValueError(
                f"{one.path}: {len(one.texts)} texts, and k-NN scores need more than k = {settings.k}: give more, a smaller --k, or leave "
                "knn out of --metrics"
            )
    _quiet()
    reference, *generated = sets
    with ExitStack() as inside:
        cache = options.cache
        if cache is None and len(generated) > 1:  # the reference is embedded once for all sets
            cache = Path(inside.enter_context(tempfile.TemporaryDirectory()))
        for one in generated:
            with bars() as progress:
                try:
                    scores = score_texts(
                        reference.texts,
                        one.texts,
                        settings,
                        cache=cache,
                        device=options.device,
                        progress=lambda stage, done, total: progress("score", done, total),
                    )
                except OSError as error:
                    raise ValueError(
                        f"the texts could not be embedded with {settings.model}: {str(error).splitlines()[0]} "
                        "Give --embedder a local folder, or ask for --metrics distinct self_bleu, which need none"
                    ) from None
            if options.json is None and one.run is not None:
                path = keep_texts(one.run, one, reference, settings, scores)
            else:
                path = _output(options, one.path)
                write_json(path, scores.to_json())
            run = f"{one.run.path.name}, " if one.run else ""
            console.print(_text_table(scores, f"{run}{one.path.name} against {reference.path.name}"))
            notes = [*scores.notes, *([cut_note(one.cut, len(one.texts))] if one.cut else [])]
            for note in notes:
                console.print(f"note: {note}")
            console.print(f"scores: {path}", soft_wrap=True)
    return 0


def _settings(options: argparse.Namespace) -> ScoreSettings:
    from widen.metrics.text_scores import PAPER, ScoreSettings

    changes: dict[str, Any] = {"metrics": tuple(options.metrics or ()), "model": options.embedder, "k": options.k}
    settings = replace(PAPER if options.paper else ScoreSettings(), **{k: v for k, v in changes.items() if v})
    if options.samples is None:
        return settings
    if options.samples != "all" and not options.samples.isdecimal():
        raise ValueError(f"--samples {options.samples}: a number of texts, or 'all'")
    return replace(settings, samples=None if options.samples == "all" else int(options.samples))


def _quiet() -> None:
    """Silence transformers' report about the unused head of an embedder."""
    try:
        from transformers.utils import logging
    except ImportError:
        return  # the embedder says so if one is needed
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _text_table(scores: TextScores, title: str) -> Table:
    """One row per metric: value, interval, and reference and model at half the reference's size, to compare with each other."""
    rows: list[list[str]] = []
    if scores.knn is not None:
        halves = scores.knn.ceiling
        for name in ("precision", "recall", "density", "coverage"):
            pair = [f"{getattr(part, name):.3f}" for part in (halves.real, halves.model)] if halves else ["–", "–"]
            low, high = getattr(scores.knn.intervals, name)
            rows.append([f"k-NN {name}", f"{getattr(scores.knn, name):.3f}", f"{low:.3f} … {high:.3f}", *pair])
    spreads: list[tuple[str, float, Any, Any, Any]] = []
    if scores.mauve is not None:
        base = scores.mauve.baseline
        spreads.append(("MAUVE", scores.mauve.value, scores.mauve.spread, base and base.real, base and base.model))
    if scores.prd is not None:
        for shown, name in {"PRD F8 (recall)": "f8", "PRD F1/8 (precision)": "f_eighth"}.items():
            half = scores.prd.baseline
            pair_of = (getattr(half.real, name), getattr(half.model, name)) if half else (None, None)
            spreads.append((shown, getattr(scores.prd, name), getattr(scores.prd.part, name), *pair_of))
    for shown, value, spread, real, model in spreads:
        means = [f"{part.mean:.3f}" if part else "–" for part in (real, model)]
        rows.append([shown, f"{value:.3f}", f"{spread.least:.3f} … {spread.most:.3f}", *means])
    ngram = f"distinct-{scores.settings.ngram}"
    for name, shown in {"distinct": ngram, "self_bleu": "self-BLEU", "vendi": "Vendi"}.items():
        mine, theirs = getattr(scores.generated, name), getattr(scores.reference, name)
        if mine is not None:
            rows.append([shown, f"{mine.value:.3f}", "–", f"{theirs.value:.3f}" if theirs is not None else "–", "–"])
    caption = f"interval: {scores.settings.level:.0%} over texts (k-NN)" if scores.knn or spreads else None
    caption = f"{caption} or least … most over seeds (MAUVE, PRD)" if spreads else caption
    headers = ("metric", "value", "interval", "reference itself", "model, same size")
    return table_of(title, headers, rows, caption=caption)


def programs(options: argparse.Namespace, console: Console) -> int:
    """Run the programs of every samples file, and print pass@k in one table."""
    from widen.judge import SandboxUnavailable
    from widen.run.questions import task_questions
    from widen.run.sample_files import files_of, judge_samples, keep_programs, run_of
    from widen.run.scoring.programs import Judges

    files = [file for path in options.paths[1:] for file in files_of(path)]
    if options.json is not None and len(files) > 1:
        raise ValueError(f"--json names one file, and {len(files)} samples files are scored: leave it out")
    questions, score = task_questions(options.task, str(options.paths[0])), _program_score(options, files)
    try:
        with Judges(options.paths[0].parent) as judges, bars() as progress:
            found = [
                judge_samples(file, questions, score, judges=judges, task=options.task, progress=progress)
                for file in files
            ]
    except SandboxUnavailable as error:
        raise ValueError(f"programs are run in a sandbox only: {error}") from None
    rows = []
    for file, (judged, decoding) in zip(files, found, strict=True):
        passes, run = judged.passes, run_of(file)
        low, high = passes.samples
        values = (f"{v:.3f}\n{i.low:.3f}–{i.high:.3f}" for v, i in zip(passes.values, passes.intervals, strict=True))
        statuses = "\n".join(f"{number:,} {status}" for status, number in judged.statuses.items())
        model, samples = run.path.name if run else file.name, f"{low}" if low == high else f"{low}–{high}"
        rows.append([model, decoding.spec, f"{passes.problems:,}", samples, f"{judged.cut:,}", *values, statuses])
    headers = ["model", "decoding", "problems", "samples", "cut", *(f"pass@{k}" for k in score.ks), "programs"]
    title = f"{options.task}: {len(files)} samples file{'s' * (len(files) > 1)}"
    caption = "interval: 95% over problems; cut: answers that max-tokens ended"
    console.print(table_of(title, headers, rows, left=(0, 1, len(headers) - 1), caption=caption))
    for file, (judged, decoding) in zip(files, found, strict=True):
        if judged.passes.problems < len(questions):
            console.print(f"note: {file.name} has samples of {judged.passes.problems} of the {len(questions)} problems")
        kept = keep_programs(file, judged, options.task, score, decoding) if options.json is None else None
        if kept is None:
            kept = _output(options, file)
            write_json(kept, judged.passes.to_json() | {"decoding": decoding.spec, **judged.detail["precision"]})
        console.print(f"scores: {kept}", soft_wrap=True)
    return 0


def _program_score(options: argparse.Namespace, files: list[Path]) -> ProgramScore:
    """The paper's ks as far as every problem has samples, unless --ks is given."""
    from widen.run.score_settings import ProgramScore
    from widen.sample import read_samples

    least = min(min(Counter(s.prompt for s in read_samples(f)).values(), default=1) for f in files)
    ks = options.ks
    if ks is None:
        ks = [k for k in ProgramScore().ks if k <= least] if least >= 10 else sorted({1, least})
    if not 1 <= min(ks) <= max(ks) <= least:
        raise ValueError(f"--ks {' '.join(map(str, ks))}: from 1 to {least}, the fewest samples of a problem")
    wall = ProgramScore().wall_seconds if options.wall_seconds is None else options.wall_seconds
    if not wall > 0:
        raise ValueError(f"--wall-seconds {wall:g}: above 0")
    return ProgramScore(ks=tuple(sorted(ks)), fenced=options.fenced, wall_seconds=wall)
