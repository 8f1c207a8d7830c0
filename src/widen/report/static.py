"""The report's figures as files: frontiers, PR curves and the separation of tokens, as PDF, SVG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from widen.run.against_nll import Mean

from .frontier_plot import Window, envelope, temperature_line, zoom
from .lines import LinePoint, ModelLine, kinds_of
from .paper_figures.look import (
    FORMATS,
    LONG,
    caption,
    error_bars,
    look,
    panels,
    plain,
    save,
    shown,
    styled,
    unit_square,
)
from .separation_histograms import LIMIT, RIGHT, WRONG, LineSeparation, line_separation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def write(lines: Sequence[ModelLine], folder: str | Path, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """``frontier-<kind>`` for each kind of score, ``pr_curves`` at the decoding nearest t = 1, ``separation``; each if there is data."""
    folder, written = Path(folder), []
    separations = [one for one in map(line_separation, lines) if one is not None]
    with styled():
        for kind in kinds_of(lines):
            name = "".join(c if c.isalnum() else "_" for c in kind)[:LONG]
            written += save(_frontier(lines, kind), folder / f"frontier-{name}", formats)
        if any(point.curve_precision for line in lines for point in line.points):
            written += save(_curves(lines), folder / "pr_curves", formats)
        if separations:
            written += save(_separation(separations), folder / "separation", formats)
    return written


def _frontier(lines: Sequence[ModelLine], kind: str) -> Figure:
    models = [line.of_kind(kind) for line in lines]
    every = [point for points in models for point in points]
    near, full = zoom(every), Window.around(every)
    windows = [near, full] if near else [full]
    figure, axes = panels(len(windows), width=6.4 if near is None else 5.0, height=4.2)
    methods = any(not point.decoding.temperature_alone for point in every)
    for ax, window in zip(axes, windows, strict=True):
        for line, points in zip(lines, models, strict=True):
            best = envelope(points) if methods else temperature_line(points)
            name = shown(line.name) if ax is axes[0] and points else None
            error_bars(ax, *_means(best), label=name, **look(line.style))
            if methods:
                style = {**look(line.style), "linestyle": ":", "marker": "."}
                error_bars(ax, *_means(temperature_line(points)), linewidth=0.9, **style)
        _label_temperatures(ax, lines, kind, window)
        for line in lines:
            for star in line.published:
                name = shown(star.name) if ax is axes[0] else None
                ax.plot(star.recall, star.precision, "*", markersize=12, color="#1a1a1f", label=name)
        ax.set(xlabel="recall", ylabel="precision", xlim=window.recall, ylim=window.precision)
    figure.legend(loc="outside right upper")
    counts = sorted({len(line.runs) for line in lines})
    seeds = "single runs" if counts == [1] else f"up to {counts[-1]} seeds, 95 % intervals"
    drawn = "best of all decodings (thick) and temperature alone (dotted)" if methods else "temperature along each line"
    zoomed = " Left: where the targets are; right: every point." if near else ""
    caption(figure, f"Frontiers ({kind}), {drawn}; {seeds}.{zoomed}")
    return figure


def _means(points: Sequence[LinePoint]) -> tuple[list[Mean], list[Mean]]:
    return [point.recall for point in points], [point.precision for point in points]


def _label_temperatures(ax: Axes, lines: Sequence[ModelLine], kind: str, window: Window) -> None:
    """Temperatures beside their points; a label that would touch an earlier one is left out."""
    taken: list[tuple[float, float]] = []
    (left, right), (low, high) = window
    for line in lines:
        for point in temperature_line(line.of_kind(kind)):
            at = (point.recall.value - left) / (right - left), (point.precision.value - low) / (high - low)
            inside = 0.1 < at[0] < 0.98 and 0.06 < at[1] < 0.98
            if inside and all(abs(at[0] - x) > 0.12 or abs(at[1] - y) > 0.05 for x, y in taken):
                taken.append(at)
                ax.annotate(
                    f"t={point.temperature:.3g}",
                    (point.recall.value, point.precision.value),
                    xytext=(-4, -3),
                    textcoords="offset points",
                    ha="right",
                    va="top",
                    fontsize=6.5,
                    color=look(line.style)["color"],
                )


def _curves(lines: Sequence[ModelLine]) -> Figure:
    figure, (ax,) = panels(width=6.4, height=4.2)
    decodings = {point.decoding for line in lines for point in line.points if point.curve_precision}
    chosen = min(decodings, key=lambda decoding: (abs(decoding.temperature - 1.0), len(decoding.spec), decoding.spec))
    for line in lines:
        point = next((p for p in line.points if p.curve_precision and p.decoding == chosen), None)
        if point is not None:
            ax.plot(point.curve_recall, point.curve_precision, label=shown(line.name), **plain(line.style))
    unit_square(ax)
    figure.legend(loc="outside right upper")
    caption(figure, f"PR curves at {chosen.spec}, λ along each line.")
    return figure


def _separation(found: Sequence[LineSeparation]) -> Figure:
    """One panel per model, at most four: the histograms of right and wrong tokens, and the threshold between them."""
    found = found[:4]
    figure, axes = panels(len(found), width=3.2, height=2.8)
    for ax, one in zip(axes, found, strict=True):
        for shares, colour, name in ((one.right, RIGHT, "right tokens"), (one.wrong, WRONG, "wrong tokens")):
            ax.stairs(shares, one.edges, fill=True, alpha=0.25, color=colour)
            ax.stairs(shares, one.edges, color=colour, label=name, linestyle="-" if colour == RIGHT else "--")
        ax.axvline(one.threshold, color=LIMIT, linestyle=":", label="best threshold")
        ax.set(xlabel="q / max q", title=shown(one.name, longest=30))
        if one.shown:
            ax.set(xscale="log", xlim=one.shown)
    axes[0].set_ylabel("share of tokens per bin")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    caption(figure, "Right and wrong next tokens. " + " ".join(one.sentences for one in found))
    return figure
