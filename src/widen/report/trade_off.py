"""The report's first sections: frontiers, the best setting for a target, PR curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from widen.sample.decoding import Decoding

from .curves import FrontierPoint, frontier
from .lines import LinePoint, ModelLine
from .parts import Figure, Panel, Section
from .style import line_style


def frontiers(lines: Sequence[ModelLine], kinds: Sequence[str], styles: Mapping[str, int]) -> Section:
    """One figure per kind of score."""
    text = [
        "Precision against recall, one line per model and decoding method, temperature along it: small marks are cold, large ones hot. "
        "Up and to the right is better."
    ]
    if not kinds:
        text = [
            "No run has a score with precision and recall yet. `widen score RUN` makes one for a small model, "
            "`widen score REFERENCE RUN` for the samples of another."
        ]
    parts = [_frontier(lines, kind, styles) for kind in kinds]
    return Section(title="The trade-off", short="Trade-off", text=text, parts=parts)


def _frontier(lines: Sequence[ModelLine], kind: str, styles: Mapping[str, int]) -> Figure:
    mine = [(line, point) for line in lines for point in line.of_kind(kind)]
    points = [
        FrontierPoint(
            model=line.label(point),
            temperature=point.temperature,
            precision=point.precision.value,
            recall=point.recall.value,
            precision_half_width=point.precision.bar,
            recall_half_width=point.recall.bar,
        )
        for line, point in mine
    ]
    first = mine[0][1]
    # A run has one score as a rule; if it has several, the paper's points are shown with the first.
    published = {
        point.name: point for line in lines if line.points and line.points[0].kind == kind for point in line.published
    }
    figure = frontier(
        points, title=f"Frontiers ({kind})", published=list(published.values()), ceiling=first.ceiling, styles=styles
    )
    claims = dict.fromkeys(
        f"The paper ({given['where']}): “{given['claim']}”."
        for line in lines
        for given in line.experiment.get("published") or ()
        if given.get("claim")
    )
    return Figure(figure=figure, caption=" ".join([_meaning(first), _bars(lines), *claims]))


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


def best_setting(lines: Sequence[ModelLine], kinds: Sequence[str]) -> list[Section]:
    """The panel that finds the best setting for a target; no section if nothing is scored."""
    if not kinds:
        return []
    data = {
        "kinds": [
            {"kind": kind, "points": [_setting(line, point) for line in lines for point in line.of_kind(kind)]}
            for kind in kinds
        ]
    }
    text = ["Choose a target; the page finds the best measured model and decoding that reach it."]
    panel = Panel(name="best_setting", data=data, scripts=["best_setting.js"])
    return [Section(title="Best setting for a target", short="Best setting", text=text, parts=[panel])]


def _setting(line: ModelLine, point: LinePoint) -> dict[str, Any]:
    return {
        "line": line.name,
        "loss": line.loss,
        "decoding": point.decoding.spec,
        "t": point.temperature,
        "precision": point.precision.value,
        "recall": point.recall.value,
        "precision_half": point.precision.bar,
        "recall_half": point.recall.bar,
        "seeds": point.precision.count,
    }


def shared_decodings(lines: Sequence[ModelLine]) -> list[Decoding]:
    """The decodings at which most lines have a curve: NLL is often scored at many more, to be matched with c-Div."""
    counts: dict[Decoding, int] = {}
    for line in lines:
        for decoding in {point.decoding for point in line.points if point.curve_precision}:
            counts[decoding] = counts.get(decoding, 0) + 1
    most = max(counts.values(), default=0)
    shared = [decoding for decoding, count in counts.items() if 2 * count >= most]
    return sorted(shared, key=lambda decoding: (decoding.temperature, decoding.spec))


def curves(lines: Sequence[ModelLine], styles: Mapping[str, int]) -> list[Section]:
    """The panel of PR curves; no section if no score holds curves."""
    decodings = shared_decodings(lines)
    if not decodings:
        return []
    drawn = []
    for line in lines:
        points = {point.decoding: point for point in reversed(line.points) if point.curve_precision}
        colour, dash, symbol = line_style(styles[line.name])
        shown = [_curve(points[decoding]) for decoding in decodings if decoding in points]
        drawn.append({"name": line.name, "color": colour, "dash": dash, "symbol": symbol, "points": shown})
    data = {
        "lams": _lams(lines),
        "decodings": [{"label": decoding.spec, "t": decoding.temperature} for decoding in decodings],
        "lines": [line for line in drawn if line["points"]],
    }
    text = ["The whole PR curve of each model at one decoding; means over seeds where there are several."]
    return [Section(title="PR curves", text=text, parts=[Panel(name="curves", data=data, scripts=["curves.js"])])]


def _curve(point: LinePoint) -> dict[str, Any]:
    def short(values: Sequence[float]) -> list[float]:
        return [float(f"{x:.6g}") for x in values]

    return {
        "decoding": point.decoding.spec,
        "precision": short(point.curve_precision),
        "recall": short(point.curve_recall),
        "area": 0.0 if point.auc is None else point.auc.value,
    }


def _lams(lines: Sequence[ModelLine]) -> list[float]:
    """lambda = tan(angle), angles evenly spaced over [0, pi/2], as many as a curve has points."""
    count = next(len(point.curve_precision) for line in lines for point in line.points if point.curve_precision)
    return [math.tan(math.pi / 2 * i / (count - 1)) for i in range(count - 1)] + [math.inf]
