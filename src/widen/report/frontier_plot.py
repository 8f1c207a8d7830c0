"""The joint frontier of loss and decoding: for each model the points that no other decoding of it beats.

Temperature alone is one line under that frontier. The page draws both (``web/frontier.js``), and so does `static.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .lines import LinePoint, ModelLine, kinds_of
from .parts import Panel, Part, Section
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


class Window(NamedTuple):
    """The part of a frontier plot that is shown: the ends of both axes."""

    recall: tuple[float, float]
    precision: tuple[float, float]

    @classmethod
    def around(cls, points: Sequence[LinePoint]) -> Window:
        """The points with a margin."""
        ends = []
        for values in ([p.recall.value for p in points], [p.precision.value for p in points]):
            margin = max(0.06 * (max(values) - min(values)), 0.01)
            ends.append((max(min(values) - margin, -margin / 5), max(values) + margin))
        return cls(*ends)

    @property
    def area(self) -> float:
        """The area that is shown."""
        return (self.recall[1] - self.recall[0]) * (self.precision[1] - self.precision[0])


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


def zoom(points: Sequence[LinePoint]) -> Window | None:
    """The window around useful targets: at least 80 % of the best precision and half of the recall there. None if it hides little."""
    best = max((point.precision.value for point in points), default=0.0)
    precise = [point for point in points if point.precision.value >= 0.8 * best]
    most = max((point.recall.value for point in precise), default=0.0)
    inside = [point for point in precise if point.recall.value >= most / 2]
    if best == 0 or len(inside) < 3:
        return None
    near = Window.around(inside)
    return near if near.area < 0.7 * Window.around(points).area else None


def frontiers(lines: Sequence[ModelLine]) -> list[Section]:
    """The section of the frontiers."""
    parts: list[Part] = []
    kinds = kinds_of(lines)
    text = (
        "No run has a score with precision and recall yet. `widen score RUN` makes one for a small model, "
        "`widen score --checker FILE.py:check RUN` or `widen score REFERENCE RUN` for the samples of another."
    )
    if kinds:
        text = (
            "Precision against recall, one frontier per model: the decodings that no other decoding of the model beats in both. "
            "Up and to the right is better. Point at a mark to see its decoding."
        )
        data = {"kinds": [_kind(lines, kind) for kind in kinds]}
        parts.append(Panel(name="frontier", data=data, scripts=["frontier.js"]))
    return [Section(title="The trade-off", short="Trade-off", text=[text], parts=parts)]


def _kind(lines: Sequence[ModelLine], kind: str) -> dict[str, Any]:
    """The panel's data for one kind of score."""
    mine = [(line, points) for line in lines if (points := line.of_kind(kind))]
    every = [point for _, points in mine for point in points]
    window = zoom(every)
    # The paper's points are shown with the first score of a run.
    published = {star.name: star for line, _ in mine if line.points[0].kind == kind for star in line.published}
    claims = dict.fromkeys(
        f"The paper ({given['where']}): “{given['claim']}”."
        for line, _ in mine
        for given in line.experiment.get("published") or ()
        if given.get("claim")
    )
    return {
        "kind": kind,
        "caption": " ".join([meaning(every[0]), _bars([line for line, _ in mine]), *claims]),
        "ceiling": every[0].ceiling,
        "stars": [star._asdict() for star in published.values()],
        "zoom": window._asdict() if window else None,
        "whole": Window.around(every)._asdict(),
        "methods": any(not point.decoding.temperature_alone for point in every),
        "lines": [
            {
                "name": line.name,
                **look_json(line.style),
                "frontier": columns(envelope(points)),
                "temperature": columns(temperature_line(points)),
            }
            for line, points in mine
        ],
    }


def columns(points: Sequence[LinePoint]) -> dict[str, Any]:
    """The points as one list per number, for figures."""
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
