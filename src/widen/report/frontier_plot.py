"""The joint frontier of loss and decoding: for each model the points that no other decoding of it beats.

Temperature alone is one line under that frontier. The page draws both (``web/frontier.js``), and so does `static.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .lines import LinePoint, ModelLine
from .parts import Panel, Part, Section, Warnings
from .style import look_json

MEANINGS = {
    "exact": "Precision is the probability that a sample is right. Recall is the expected share of all right answers in {n:,} samples.",
    "programs": "Precision is pass@1, the share of programs that are right. Recall is pass@k − pass@1: problems that several attempts "
    "solve and one does not.",
    "checker": "Precision is pass@1, the share of answers that are right. Recall is pass@k − pass@1: prompts that several attempts "
    "answer and one does not. Coverage, in the table of scores, is the number of different right answers per prompt.",
    "knn": "Precision is the share of generated texts that lie near a reference text. Recall is the share of reference texts that "
    "lie near a generated one.",
    "slots": "Precision is the share of texts that mention every slot of their meaning. Recall is the share of human texts that lie "
    "near a generated one.",
}
OTHER = "Precision measures how good single samples are, recall how much of the reference they cover ({kind})."

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
    return sorted((p for p in points if p.decoding.temperature_alone), key=lambda point: point.temperature)


def whole(models: Sequence[Sequence[LinePoint]]) -> Window:
    """The window that shows every point."""
    return _window([point for model in models for point in model])


def zoom(models: Sequence[Sequence[LinePoint]]) -> Window | None:
    """The window around useful targets: at least 80 % of the best precision and half of the recall there. None if it hides little."""
    points = [point for model in models for point in model]
    best = max((point.precision.value for point in points), default=0.0)
    precise = [point for point in points if point.precision.value >= 0.8 * best]
    most = max((point.recall.value for point in precise), default=0.0)
    inside = [point for point in precise if point.recall.value >= most / 2]
    if best == 0 or len(inside) < 3:
        return None
    near, full = _window(inside), _window(points)
    return near if _area(near) < 0.7 * _area(full) else None


def _window(points: Sequence[LinePoint]) -> Window:
    return Window(_padded([p.recall.value for p in points]), _padded([p.precision.value for p in points]))


def _padded(values: Sequence[float]) -> Range:
    low, high = min(values), max(values)
    margin = max(0.06 * (high - low), 0.01)
    return max(low - margin, -margin / 5), high + margin


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
            "`widen score --checker FILE.py:check RUN` or `widen score REFERENCE RUN` for the samples of another."
        ]
        return Section(title="The trade-off", short="Trade-off", text=text, parts=warned)
    text = [
        "Precision against recall, one frontier per model: the decodings that no other decoding of the model beats in both. "
        "Up and to the right is better. Point at a mark to see its decoding."
    ]
    data = {"kinds": [_kind(lines, kind, styles) for kind in kinds]}
    panel = Panel(name="frontier", data=data, scripts=["frontier.js"])
    return Section(title="The trade-off", short="Trade-off", text=text, parts=[*warned, panel])


def _kind(lines: Sequence[ModelLine], kind: str, styles: Mapping[str, int]) -> dict[str, Any]:
    """The panel's data for one kind of score."""
    mine = [line for line in lines if line.of_kind(kind)]
    models = [line.of_kind(kind) for line in mine]
    window, first = zoom(models), models[0][0]
    # The paper's points are shown with the first score of a run.
    published = {star.name: star for line in mine if line.points[0].kind == kind for star in line.published}
    claims = dict.fromkeys(
        f"The paper ({given['where']}): “{given['claim']}”."
        for line in mine
        for given in line.experiment.get("published") or ()
        if given.get("claim")
    )
    return {
        "kind": kind,
        "caption": " ".join([meaning(first), _bars(mine), *claims]),
        "ceiling": first.ceiling,
        "stars": [star._asdict() for star in published.values()],
        "zoom": window._asdict() if window else None,
        "whole": whole(models)._asdict(),
        "methods": any(not point.decoding.temperature_alone for model in models for point in model),
        "lines": [
            {
                "name": line.name,
                **look_json(styles[line.name]),
                "frontier": _columns(envelope(model)),
                "temperature": _columns(temperature_line(model)),
            }
            for line, model in zip(mine, models, strict=True)
        ],
    }


def _columns(points: Sequence[LinePoint]) -> dict[str, Any]:
    return {
        "decoding": [point.decoding.spec for point in points],
        "t": [point.temperature for point in points],
        "precision": [point.precision.value for point in points],
        "recall": [point.recall.value for point in points],
        "precision_half": [point.precision.bar for point in points],
        "recall_half": [point.recall.bar for point in points],
    }


def meaning(point: LinePoint) -> str:
    """What precision and recall are for this kind of score."""
    if point.score == "exact" and point.n is None:
        return OTHER.format(kind=point.kind)
    text = MEANINGS.get(point.score, OTHER).format(n=point.n or 0, kind=point.kind)
    if point.ceiling is not None and point.ceiling < 0.9995:
        text += f" The reference itself would reach {point.ceiling:.3f} (dotted)."
    return text


def _bars(lines: Sequence[ModelLine]) -> str:
    counts = sorted({len(line.runs) for line in lines})
    if counts == [1]:
        return "Single runs: no interval over seeds."
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"Bars are 95 % intervals over seeds (Student's t; {seeds} seeds per line). A single run shows the interval of its own score."
