"""`widen score REFERENCE GENERATED...` on texts: the metrics room's numbers as a table and as JSON.

Generated texts are files, or run folders, whose samples are scored file by file; those scores go into the run, where `widen report` finds
them.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from widen.disk.atomic import write_json

from .score_table import table_of
from .show import bars

if TYPE_CHECKING:
    from widen.metrics.text_scores import ScoreSettings
    from widen.run.sample_files import Texts


def add_arguments(group: Any) -> None:
    """Flags for texts."""
    group.add_argument(
        "--metrics", nargs="+", metavar="NAME", help="of knn mauve prd distinct self_bleu vendi (default: all)"
    )
    group.add_argument(
        "--embedder", metavar="MODEL", help="Hugging Face name or folder (default: gpt2-large, as the paper)"
    )
    group.add_argument(
        "--paper",
        action="store_true",
        help="the paper's settings: joint PCA .9, open balls, k = 4, 2,000 texts of each",
    )
    group.add_argument(
        "--samples",
        metavar="N",
        help="texts of each that are scored, drawn at random, or 'all' (default; --paper: 2000)",
    )
    group.add_argument("--k", type=int, help="neighbours (default: 4)")
    group.add_argument("--field", default="text", help="field of .jsonl, column of .csv (default: text)")
    group.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="keep embeddings here, so that a text is embedded once"
    )
    group.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where the JSON goes (default: GENERATED.scores.json, or the run's scores/)",
    )


def main(options: argparse.Namespace) -> int:
    """Read, score, print, write."""
    from widen.metrics.text_scores import score_texts
    from widen.run.sample_files import files_of, keep_texts, texts_in

    settings = _settings(options)
    reference = texts_in(options.paths[0], field=options.field)
    sets = [texts_in(file, field=options.field) for path in options.paths[1:] for file in files_of(path)]
    if options.json is not None and len(sets) > 1:
        raise ValueError(f"--json names one file, and {len(sets)} sets of texts are scored: leave it out")
    _enough(settings, reference, *sets)
    _quiet()
    console = Console()
    with ExitStack() as inside:
        # The reference is embedded once for all sets.
        cache = options.cache
        if cache is None and len(sets) > 1:
            cache = Path(inside.enter_context(tempfile.TemporaryDirectory()))
        for generated in sets:
            with bars() as progress:
                try:
                    scores = score_texts(
                        reference.texts,
                        generated.texts,
                        settings,
                        cache=cache,
                        device=options.device,
                        progress=lambda stage, done, total: progress("score", done, total),
                    )
                except OSError as error:
                    raise ValueError(_no_embedder(settings, error)) from None
            if options.json is None and generated.run is not None:
                path = keep_texts(generated.run, generated, reference, settings, scores)
            else:
                path = options.json or generated.path.with_name(generated.path.name + ".scores.json")
                write_json(path, scores.to_json())
            console.print(table_of(scores, f"{generated.path.name} against {reference.path.name}"))
            for note in scores.notes:
                console.print(f"note: {note}")
            console.print(f"scores: {path}", soft_wrap=True)
    return 0


def _settings(options: argparse.Namespace) -> ScoreSettings:
    from widen.metrics.text_scores import PAPER, ScoreSettings

    settings = PAPER if options.paper else ScoreSettings()
    changes = {"metrics": tuple(options.metrics or ()), "model": options.embedder, "k": options.k}
    settings = replace(settings, **{key: value for key, value in changes.items() if value})
    if options.samples == "all":
        return replace(settings, samples=None)
    if options.samples is not None:
        if not options.samples.isdecimal():
            raise ValueError(f"--samples {options.samples}: a number of texts, or 'all'")
        return replace(settings, samples=int(options.samples))
    return settings


def _enough(settings: ScoreSettings, *sets: Texts) -> None:
    """Before a model is loaded to embed them."""
    for one in sets:
        if "knn" in settings.metrics and len(one.texts) <= settings.k:
            raise ValueError(
                f"{one.path}: {len(one.texts)} texts, and k-NN scores need more than k = {settings.k}: give more, a smaller --k, or leave "
                "knn out of --metrics"
            )


def _quiet() -> None:
    """No report of the weights that an embedder leaves out of a language model: its head is not used."""
    try:
        from transformers.utils import logging
    except ImportError:
        return  # said by the embedder, where one is needed
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _no_embedder(settings: ScoreSettings, error: OSError) -> str:
    return (
        f"the texts could not be embedded with {settings.model}: {str(error).splitlines()[0]} "
        "Give --embedder a folder that is here, or ask for --metrics distinct self_bleu, which need none"
    )
