"""The report's figures as files: the frontiers and the PR curves of some lines, as PDF, SVG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .lines import LinePoint, ModelLine, kinds_of
from .paper_figures.look import FORMATS, LONG, caption, look, panels, plain, save, shown, styled, unit_square

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write(lines: Sequence[ModelLine], folder: str | Path, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """``frontier-<kind>`` for each kind of score and ``pr_curves`` at the decoding nearest t = 1; nothing without scores."""
    folder, written = Path(folder), []
    with styled():
        for kind in kinds_of(lines):
            name = "".join(c if c.isalnum() else "_" for c in kind)[:LONG]
            written += save(_frontier(lines, kind), folder / f"frontier-{name}", formats)
        if any(point.curve_precision for line in lines for point in line.points):
            written += save(_curves(lines), folder / "pr_curves", formats)
    return written


def _frontier(lines: Sequence[ModelLine], kind: str) -> Figure:
    figure, (ax,) = panels(width=6.4, height=4.2)
    curves: dict[str, list[LinePoint]] = {}
    for line in lines:
        for point in line.of_kind(kind):
            curves.setdefault(line.label(point), []).append(point)
    for index, (label, points) in enumerate(curves.items()):
        bars = [[(score.bar or 0.0) for score in (p.recall, p.precision)] for p in points]
        ax.errorbar(
            [p.recall.value for p in points],
            [p.precision.value for p in points],
            xerr=[x for x, _ in bars] if any(x for x, _ in bars) else None,
            yerr=[y for _, y in bars] if any(y for _, y in bars) else None,
            label=shown(label),
            elinewidth=0.6,
            **look(index),
        )
    for line in lines:
        for star in line.published:
            ax.plot(
                star.recall,
                star.precision,
                marker="*",
                markersize=12,
                linestyle="none",
                color="#1a1a1f",
                label=shown(star.name),
            )
    ax.set(xlabel="recall", ylabel="precision")
    figure.legend(loc="outside right upper")
    counts = sorted({len(line.runs) for line in lines})
    seeds = "single runs" if counts == [1] else f"up to {counts[-1]} seeds, 95 % intervals"
    caption(figure, f"Frontiers ({kind}), temperature along each line; {seeds}.")
    return figure


def _curves(lines: Sequence[ModelLine]) -> Figure:
    figure, (ax,) = panels(width=6.4, height=4.2)
    decodings = {point.decoding for line in lines for point in line.points if point.curve_precision}
    chosen = min(decodings, key=lambda decoding: (abs(decoding.temperature - 1.0), len(decoding.spec), decoding.spec))
    for index, line in enumerate(lines):
        point = next((p for p in line.points if p.curve_precision and p.decoding == chosen), None)
        if point is not None:
            ax.plot(point.curve_recall, point.curve_precision, label=shown(line.name), **plain(index))
    unit_square(ax)
    figure.legend(loc="outside right upper")
    caption(figure, f"PR curves at {chosen.spec}, λ along each line.")
    return figure
