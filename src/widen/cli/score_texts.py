"""`widen score` for texts against a reference: k-NN, MAUVE, PRD, diversity."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from widen.disk.atomic import write_json

from .show import bars, table_of

if TYPE_CHECKING:
    from widen.metrics.text_scores import ScoreSettings, TextScores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for texts."""
    add = parser.add_argument_group("texts").add_argument
    add("--metrics", nargs="+", metavar="NAME", help="some of knn mauve prd distinct self_bleu vendi (default: all)")
    add("--embedder", metavar="MODEL", help="model that embeds the texts (default: gpt2-large, as in the paper)")
    add("--paper", action="store_true", help="the paper's settings: PCA of .9 of the variance, k = 4, 2,000 texts")
    add("--samples", metavar="N", help="score N random texts of each kind, or all (default: all; with --paper 2000)")
    add("--k", type=int, help="number of neighbours in k-NN (default: 4)")
    add("--field", default="text", help="field of a .jsonl or column of a .csv file (default: text)")
    add("--cache", type=Path, metavar="FOLDER", help="keep embeddings here for later calls")
    add("--json", type=Path, metavar="FILE", help="output file (default: in the run's scores/, or FILE.scores.json)")


def main(options: argparse.Namespace, console: Console) -> int:
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
    with tempfile.TemporaryDirectory() as temporary:  # the reference is embedded once for all sets
        for one in generated:
            with bars() as progress:
                try:
                    scores = score_texts(
                        reference.texts,
                        one.texts,
                        settings,
                        cache=options.cache or temporary,
                        device=options.device,
                        progress=lambda stage, done, total: progress("score", done, total),
                    )
                except OSError as error:
                    raise ValueError(
                        f"{error}. Give --embedder a local folder, or ask for --metrics distinct self_bleu, which need none"
                    ) from None
            if options.json is None and one.run is not None:
                path = keep_texts(one.run, one, reference, settings, scores)
            else:
                path = options.json or one.path.with_name(f"{one.path.name}.scores.json")
                write_json(path, scores.to_json())
            run = f"{one.run.path.name}, " if one.run else ""
            console.print(_text_table(scores, f"{run}{one.path.name} against {reference.path.name}"))
            for note in scores.notes:
                console.print(f"note: {note}")
            if one.cut:
                cut = f"{one.cut:,} of {len(one.texts):,} samples were cut at max-tokens"
                console.print(f"note: {cut}: these answers are incomplete")
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
