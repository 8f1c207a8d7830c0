"""`widen score REFERENCE GENERATED` on text files: the metrics room's numbers as a table and as JSON."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .show import bars


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
    group.add_argument("--k", type=int, help="neighbours (default: 4)")
    group.add_argument("--field", default="text", help="field of .jsonl, column of .csv (default: text)")
    group.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="keep embeddings here, so that a text is embedded once"
    )
    group.add_argument("--json", type=Path, metavar="FILE", help="where the JSON goes (default: GENERATED.scores.json)")


def main(options: argparse.Namespace) -> int:
    """Read, score, print, write."""
    from widen.data.texts import read_texts
    from widen.metrics.text_scores import PAPER, ScoreSettings, score_texts

    reference_path, generated_path = options.paths
    settings = PAPER if options.paper else ScoreSettings()
    changes = {"metrics": tuple(options.metrics or ()), "model": options.embedder, "k": options.k}
    settings = replace(settings, **{key: value for key, value in changes.items() if value})
    reference = read_texts(reference_path, field=options.field)
    generated = read_texts(generated_path, field=options.field)
    with bars() as (_, on_score):
        scores = score_texts(
            reference, generated, settings, cache=options.cache, device=options.device, progress=on_score
        )
    path = options.json or generated_path.with_name(generated_path.name + ".scores.json")
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(scores.to_json(), indent=1), encoding="utf-8")
    part.replace(path)
    console = Console()
    console.print(_table(scores, f"{generated_path.name} against {reference_path.name}"))
    for note in scores.notes:
        console.print(f"note: {note}")
    console.print(f"scores: {path}", soft_wrap=True)
    return 0


def _table(scores: Any, title: str) -> Table:
    """One line a number: value, interval (over seeds for MAUVE and PRD), and the reference against itself beside the model at that size.

    The reference is split in two for that, so the last two columns stand at half its size and are to be read against each other only.
    """
    table = Table(title=title, title_justify="left")
    for header in ("metric", "value", "interval", "reference itself", "model, same size"):
        table.add_column(header, justify="left" if header == "metric" else "right")
    if scores.knn is not None:
        for name in ("precision", "recall", "density", "coverage"):
            low, high = getattr(scores.knn.intervals, name)
            ceiling = scores.knn.ceiling
            itself, same = (
                f"{getattr(part, name):.3f}" if part else "–"
                for part in (ceiling and ceiling.real, ceiling and ceiling.model)
            )
            table.add_row(f"k-NN {name}", f"{getattr(scores.knn, name):.3f}", f"{low:.3f} … {high:.3f}", itself, same)
    if scores.mauve is not None:
        base = scores.mauve.baseline
        table.add_row(
            "MAUVE",
            f"{scores.mauve.value:.3f}",
            _spread(scores.mauve.spread),
            *_means(base and base.real, base and base.model),
        )
    if scores.prd is not None:
        for shown, name in {"PRD F8 (recall)": "f8", "PRD F1/8 (precision)": "f_eighth"}.items():
            base = scores.prd.baseline
            pair = (getattr(base.real, name), getattr(base.model, name)) if base else (None, None)
            table.add_row(
                shown, f"{getattr(scores.prd, name):.3f}", _spread(getattr(scores.prd.part, name)), *_means(*pair)
            )
    for name, shown in {"distinct": "distinct-n", "self_bleu": "self-BLEU", "vendi": "Vendi"}.items():
        mine, theirs = getattr(scores.generated, name), getattr(scores.reference, name)
        if mine is not None:
            table.add_row(shown, f"{mine.value:.3f}", "–", f"{theirs.value:.3f}" if theirs is not None else "–", "–")
    return table


def _spread(spread: Any) -> str:
    return f"{spread.least:.3f} … {spread.most:.3f}"


def _means(*spreads: Any) -> list[str]:
    return [f"{spread.mean:.3f}" if spread else "–" for spread in spreads]
