"""The table of text scores: a number, its interval, and what the reference itself would get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from widen.metrics.text_scores import TextScores


def table_of(scores: TextScores, title: str) -> Table:
    """One line a number: value, interval (over seeds for MAUVE and PRD), and the reference against itself beside the model at that size.

    The reference is split in two for that, so the last two columns stand at half its size and are to be read against each other only.
    """
    seeds = " or" if scores.mauve is not None or scores.prd is not None else ""
    caption = f"interval: {scores.settings.level:.0%} over texts (k-NN){seeds + ' least … most over seeds (MAUVE, PRD)' if seeds else ''}"
    table = Table(
        title=title, title_justify="left", caption=caption if scores.knn or seeds else None, caption_justify="left"
    )
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
            at_half = scores.prd.baseline
            pair = (getattr(at_half.real, name), getattr(at_half.model, name)) if at_half else (None, None)
            table.add_row(
                shown, f"{getattr(scores.prd, name):.3f}", _spread(getattr(scores.prd.part, name)), *_means(*pair)
            )
    ngram = f"distinct-{scores.settings.ngram}"
    for name, shown in {"distinct": ngram, "self_bleu": "self-BLEU", "vendi": "Vendi"}.items():
        mine, theirs = getattr(scores.generated, name), getattr(scores.reference, name)
        if mine is not None:
            table.add_row(shown, f"{mine.value:.3f}", "–", f"{theirs.value:.3f}" if theirs is not None else "–", "–")
    return table


def _spread(spread: Any) -> str:
    return f"{spread.least:.3f} … {spread.most:.3f}"


def _means(*spreads: Any) -> list[str]:
    return [f"{spread.mean:.3f}" if spread else "–" for spread in spreads]
