"""The report's first sections: frontiers, the best point for a wish, PR curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .curves import FrontierPoint, frontier
from .lines import Line, LinePoint
from .parts import Figure, Panel, Section
from .style import line_style


def frontiers(lines: Sequence[Line], kinds: Sequence[str], styles: Mapping[str, int]) -> Section:
    """One figure a kind of score."""
    text = [
        "Precision against recall, one line a model, temperature along it: small marks are cold, large ones hot. "
        "Up and to the right is better."
    ]
    if not kinds:
        text = [
            "No run has a score with precision and recall yet. `widen score RUN` makes one for a run of the integer task, "
            "`widen score REFERENCE RUN` for the samples of another."
        ]
    return Section(
        title="The trade-off", short="Trade-off", text=text, parts=[_frontier(lines, kind, styles) for kind in kinds]
    )


def _frontier(lines: Sequence[Line], kind: str, styles: Mapping[str, int]) -> Figure:
    mine = [(line, point) for line in lines for point in line.points if point.kind == kind]
    points = [
        FrontierPoint(
            model=line.name,
            temperature=point.temperature,
            precision=point.precision.mean,
            recall=point.recall.mean,
            precision_half_width=point.precision.half_width,
            recall_half_width=point.recall.half_width,
        )
        for line, point in mine
    ]
    first = mine[0][1]
    # The paper has one score a task, and so has a run as a rule; where there are several, its point stands beside the first.
    published = {
        point.name: point for line in lines if (point := line.published) and line.points and line.points[0].kind == kind
    }
    figure = frontier(
        points,
        title=f"Frontiers ({kind})",
        published=list(published.values()),
        ceiling=first.recall_ceiling,
        styles=styles,
    )
    claims = dict.fromkeys(
        f"The paper ({given['where']}): “{given['claim']}”."
        for line in lines
        if (given := line.experiment.get("published")) and given.get("claim")
    )
    return Figure(figure=figure, caption=" ".join([_meaning(first), _bars(lines), *claims]))


def _meaning(point: LinePoint) -> str:
    if point.num_samples is None:
        return f"Scores of kind {point.kind}."
    text = (
        "Precision is the probability that a sample is right; recall the expected share of right sequences seen in "
        f"{point.num_samples:,} samples."
    )
    if point.recall_ceiling is not None and point.recall_ceiling < 0.9995:
        text += f" The reference itself would reach {point.recall_ceiling:.3f} (dotted)."
    return text


def _bars(lines: Sequence[Line]) -> str:
    counts = sorted({len(line.runs) for line in lines})
    if counts == [1]:
        return "Single runs: no interval over seeds."
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"Bars are 95 % intervals over seeds (Student's t; {seeds} seeds a line); a single run keeps its score's own, if any."


def wishes(lines: Sequence[Line], kinds: Sequence[str]) -> list[Section]:
    """The panel that finds the best point for a wish; no section where nothing is scored."""
    if not kinds:
        return []
    data = {
        "kinds": [
            {
                "kind": kind,
                "points": [_wish_point(line, point) for line in lines for point in line.points if point.kind == kind],
            }
            for kind in kinds
        ]
    }
    text = ["Say what you need; the best measured settings that reach it are found among all models and temperatures."]
    return [
        Section(
            title="The best point for a wish",
            short="Wishes",
            text=text,
            parts=[Panel(name="wish", data=data, scripts=["wish.js"])],
        )
    ]


def _wish_point(line: Line, point: LinePoint) -> dict[str, Any]:
    return {
        "line": line.name,
        "loss": line.loss,
        "t": point.temperature,
        "precision": point.precision.mean,
        "recall": point.recall.mean,
        "precision_half": point.precision.half_width,
        "recall_half": point.recall.half_width,
        "seeds": point.precision.count,
    }


def shared_temperatures(lines: Sequence[Line]) -> list[float]:
    """The temperatures at which most lines have a curve: NLL is often scored at many more, to be matched with c-Div."""
    counts: dict[float, int] = {}
    for line in lines:
        for t in {point.temperature for point in line.points if point.curve_precision}:
            counts[t] = counts.get(t, 0) + 1
    most = max(counts.values(), default=0)
    return sorted(t for t, count in counts.items() if 2 * count >= most)


def curves(lines: Sequence[Line], styles: Mapping[str, int]) -> list[Section]:
    """The panel of PR curves; no section where no score holds curves."""
    temperatures = set(shared_temperatures(lines))
    if not temperatures:
        return []
    drawn = []
    for line in lines:
        points = [point for point in line.points if point.curve_precision and point.temperature in temperatures]
        colour, dash, symbol = line_style(styles[line.name])
        drawn.append(
            {
                "name": line.name,
                "color": colour,
                "dash": dash,
                "symbol": symbol,
                "points": [_curve(point) for point in points],
            }
        )
    data = {
        "lams": _lams(lines),
        "temperatures": sorted(temperatures),
        "lines": [line for line in drawn if line["points"]],
    }
    text = ["The whole PR curve of each model at one temperature; means over seeds where there are several."]
    return [
        Section(
            title="PR curves",
            short="PR curves",
            text=text,
            parts=[Panel(name="curves", data=data, scripts=["curves.js"])],
        )
    ]


def _curve(point: LinePoint) -> dict[str, Any]:
    def short(values: Sequence[float]) -> list[float]:
        return [float(f"{x:.6g}") for x in values]

    area = 0.0 if point.auc is None else point.auc.mean
    return {
        "t": point.temperature,
        "precision": short(point.curve_precision),
        "recall": short(point.curve_recall),
        "area": area,
    }


def _lams(lines: Sequence[Line]) -> list[float]:
    """lambda = tan(angle), angles evenly spaced over [0, pi/2], as many as a curve has points."""
    count = next(len(point.curve_precision) for line in lines for point in line.points if point.curve_precision)
    return [math.tan(math.pi / 2 * i / (count - 1)) for i in range(count - 1)] + [math.inf]
