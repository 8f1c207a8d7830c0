"""The joint frontier of loss and decoding: for each model the points that no other decoding of it beats.

Temperature alone is one line under that frontier. Both are drawn by the page (``web/frontier.js``) and by `static.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .lines import LinePoint, ModelLine
from .parts import Panel, Part, Section, Warnings
from .style import line_style

LOOSEST, STRICTEST = 0.8, 0.98
"""Targets of interest: precisions between these shares of the best precision."""

Range = tuple[float, float]


class Window(NamedTuple):
    """The part of a frontier plot that is shown."""

    recall: Range
    precision: Range


def envelope(points: Iterable[LinePoint]) -> list[LinePoint]:
    """The points that no other point matches or beats in both precision and recall, from low recall to high."""
    kept: list[LinePoint] = []
    for point in sorted(points, key=lambda p: (-p.recall.value, -p.precision.value)):
        if not kept or point.precision.value > kept[-1].precision.value:
            kept.append(point)
    return kept[::-1]


def temperature_line(points: Iterable[LinePoint]) -> list[LinePoint]:
    """The points of temperature alone, from cold to hot."""
    return sorted((point for point in points if not point.method), key=lambda point: point.temperature)


def whole(models: Sequence[Sequence[LinePoint]]) -> Window:
    """The window that shows every point."""
    points = [point for model in models for point in model]
    return Window(*(_padded(scores) for scores in _scores(points)))


def zoom(models: Sequence[Sequence[LinePoint]]) -> Window | None:
    """The window around the targets of interest; None if it would hide little.

    Precision runs from 80 % of the best one up. Recall runs from what the weakest model reaches at 98 % of the best precision, by all
    decodings or by temperature alone, but at least from half of the largest recall in the window.
    """
    best = max((point.precision.value for model in models for point in model), default=0.0)
    inside = [point for model in models for point in model if point.precision.value >= LOOSEST * best]
    if best == 0 or len(inside) < 3:
        return None
    searched = [*models, *map(temperature_line, models)]
    strict = [[p.recall.value for p in points if p.precision.value >= STRICTEST * best] for points in searched]
    right = max(point.recall.value for point in inside)
    left = max(right / 2, min(max(recalls) for recalls in strict if recalls))
    window = Window(_padded([left, right]), _padded([LOOSEST * best, best]))
    full = whole(models)
    return window if _area(window) < 0.7 * _area(full) else None


def _scores(points: Sequence[LinePoint]) -> tuple[list[float], list[float]]:
    return [point.recall.value for point in points], [point.precision.value for point in points]


def _padded(values: Sequence[float]) -> Range:
    """From the smallest to the largest value, with a margin."""
    low, high = min(values), max(values)
    margin = max(0.06 * (high - low), 0.01)
    return low - margin, high + margin


def _area(window: Window) -> float:
    return (window.recall[1] - window.recall[0]) * (window.precision[1] - window.precision[0])


def frontiers(
    lines: Sequence[ModelLine], kinds: Sequence[str], styles: Mapping[str, int], said: Sequence[str] = ()
) -> Section:
    """The section of the frontiers; ``said`` are warnings about its points."""
    warned: list[Part] = [Warnings(lines=said)] if said else []
    if not kinds:
        text = [
            "No run has a score with precision and recall yet. `widen score RUN` makes one for a small model, "
            "`widen score REFERENCE RUN` for the samples of another."
        ]
        return Section(title="The trade-off", short="Trade-off", text=text, parts=warned)
    text = [
        "Precision against recall, one frontier per model: the decodings that no other decoding of the model beats in both. "
        "Up and to the right is better. Point at a mark to see its decoding."
    ]
    data = {"kinds": [_kind(lines, kind, styles) for kind in kinds]}
    panel = Panel(name="frontier", data=data, scripts=["frontier.js"])
    return Section(title="The trade-off", short="Trade-off", text=text, parts=[panel, *warned])


def _kind(lines: Sequence[ModelLine], kind: str, styles: Mapping[str, int]) -> dict[str, Any]:
    """What the panel draws for one kind of score."""
    mine = [line for line in lines if line.of_kind(kind)]
    models = [line.of_kind(kind) for line in mine]
    window, full = zoom(models), whole(models)
    first = models[0][0]
    # A run has one score as a rule; if it has several, the paper's points are shown with the first.
    published = {star.name: star for line in mine if line.points[0].kind == kind for star in line.published}
    claims = dict.fromkeys(
        f"The paper ({given['where']}): “{given['claim']}”."
        for line in mine
        for given in line.experiment.get("published") or ()
        if given.get("claim")
    )
    return {
        "kind": kind,
        "caption": " ".join([_meaning(first), _bars(mine), *claims]),
        "ceiling": first.ceiling,
        "stars": [{"name": s.name, "precision": s.precision, "recall": s.recall} for s in published.values()],
        "zoom": window._asdict() if window else None,
        "whole": full._asdict(),
        "methods": any(point.method for model in models for point in model),
        "lines": [_line(line, model, styles) for line, model in zip(mine, models, strict=True)],
    }


def _line(line: ModelLine, points: Sequence[LinePoint], styles: Mapping[str, int]) -> dict[str, Any]:
    colour, dash, symbol = line_style(styles[line.name])
    return {
        **{"name": line.name, "color": colour, "dash": dash, "symbol": symbol},
        "frontier": [_point(point) for point in envelope(points)],
        "temperature": [_point(point) for point in temperature_line(points)],
    }


def _point(point: LinePoint) -> dict[str, Any]:
    return {
        "decoding": point.decoding.spec,
        "t": point.temperature,
        "precision": point.precision.value,
        "recall": point.recall.value,
        "precision_half": point.precision.bar,
        "recall_half": point.recall.bar,
    }


def _meaning(point: LinePoint) -> str:
    if point.ceiling is None:
        return f"Scores of kind {point.kind}."
    text = (
        "Precision is the probability that a sample is right; recall is the expected share of right answers seen in "
        f"{point.n:,} samples."
    )
    if point.ceiling < 0.9995:
        text += f" The reference itself would reach {point.ceiling:.3f} (dotted)."
    return text


def _bars(lines: Sequence[ModelLine]) -> str:
    counts = sorted({len(line.runs) for line in lines})
    if counts == [1]:
        return "Single runs: no interval over seeds."
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"Bars are 95 % intervals over seeds (Student's t; {seeds} seeds per line); a single run keeps its score's own, if any."
