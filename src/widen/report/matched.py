"""The report's section on matched temperatures: c-Div of order alpha at t beside NLL at alpha t (`widen.run.against_nll` says why)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from widen.run.against_nll import cdiv_order, training_key

from .lines import LinePoint, ModelLine
from .parts import Cell, Figure, FigureChoice, Part, Section, Table
from .style import layout, line_style

HEADERS = ["model", "t", "α·t", "precision", "NLL at α·t", "difference", "± "]
HEADERS += ["recall", "NLL at α·t ", "difference ", "±", "NLL"]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One point of a c-Div line and the point of NLL at alpha times its temperature.

    ``interpolated``: NLL was not scored at that temperature; its neighbours were joined by a straight line in log t.
    """

    temperature: float
    matched: float
    precision: float
    recall: float
    nll_precision: float
    nll_recall: float
    precision_half_width: float | None
    recall_half_width: float | None
    interpolated: bool


def baseline(line: ModelLine, lines: Sequence[ModelLine]) -> ModelLine | None:
    """The NLL line that was trained alike but for the loss; None if there is none."""
    key = training_key(line.experiment.get("model"))
    return next((o for o in lines if o.loss == "nll" and training_key(o.experiment.get("model")) == key), None)


def pairs(line: ModelLine, nll: ModelLine, *, kind: str) -> list[Pair]:
    """Every point of a c-Div line with its match; temperatures beyond NLL's range have none."""
    alpha = cdiv_order(line.loss)
    if not alpha:
        return []
    base = [point for point in nll.of_kind(kind) if not point.method]
    mine = [point for point in line.of_kind(kind) if not point.method]
    found = ((point, _at(base, alpha * point.temperature)) for point in mine)
    return [_pair(point, alpha * point.temperature, *match) for point, match in found if match is not None]


def _at(points: Sequence[LinePoint], t: float) -> tuple[LinePoint, LinePoint, float] | None:
    """The neighbours of t and how far t lies from the first to the second, in log t."""
    for point in points:
        if math.isclose(point.temperature, t, rel_tol=1e-6):
            return point, point, 0.0
    below = [p for p in points if 0 < p.temperature < t]
    above = [p for p in points if t < p.temperature < math.inf]
    if not below or not above:
        return None
    low, high = below[-1], above[0]
    return low, high, math.log(t / low.temperature) / math.log(high.temperature / low.temperature)


def _pair(point: LinePoint, matched: float, low: LinePoint, high: LinePoint, share: float) -> Pair:
    def between(a: float, b: float) -> float:
        return a + share * (b - a)

    def spread(mine: float | None, theirs: float | None) -> float | None:
        return None if mine is None or theirs is None else math.hypot(mine, theirs)

    return Pair(
        temperature=point.temperature,
        matched=matched,
        precision=point.precision.value,
        recall=point.recall.value,
        nll_precision=between(low.precision.value, high.precision.value),
        nll_recall=between(low.recall.value, high.recall.value),
        precision_half_width=spread(point.precision.bar, low.precision.bar),
        recall_half_width=spread(point.recall.bar, low.recall.bar),
        interpolated=share > 0,
    )


def matched_temperatures(lines: Sequence[ModelLine], kinds: Sequence[str], styles: Mapping[str, int]) -> list[Section]:
    """Figures and a table of every c-Div line against NLL; no section if no run is c-Div."""
    figures: dict[str, Figure] = {}
    rows: list[list[Cell]] = []
    without = []
    for line in lines:
        if cdiv_order(line.loss) in (None, 0.0, 1.0):
            continue
        nll = baseline(line, lines)
        if nll is None:
            without.append(line.name)
            continue
        for kind in kinds:
            found = pairs(line, nll, kind=kind)
            if found:
                name = line.name if len(kinds) == 1 else f"{line.name} ({kind})"
                figures[name] = _figure(line, nll, kind, found, styles)
                rows += [_row(line, pair) for pair in found]
    text = [
        "c-Div of order α converges to the α-th root of what NLL converges to, so at temperature t it should be NLL at α·t. "
        "A gain over NLL at α·t comes from the loss; a gain over NLL at t alone comes from temperature."
    ]
    if without:
        text.append(f"No NLL run that was trained alike but for the loss: {', '.join(without)}.")
    if not figures:
        return [Section(title="Matched temperatures", text=text)] if without else []
    caption = (
        "Matched temperatures. Every point of c-Div and NLL at α·t; ± is the root of the sum of squares of the two half widths. "
        "Interpolated: NLL was not scored at α·t itself, its neighbours were joined in log t."
    )
    parts: list[Part] = [
        FigureChoice(label="c-Div model", figures=figures),
        Table(headers=HEADERS, rows=rows, general=("t", "α·t"), caption=caption),
    ]
    title = "Matched temperatures: c-Div at t, NLL at α·t"
    return [Section(title=title, short="Matched temperatures", text=text, parts=parts)]


def _row(line: ModelLine, pair: Pair) -> list[Cell]:
    return [
        line.name,
        pair.temperature,
        round(pair.matched, 6),
        pair.precision,
        pair.nll_precision,
        pair.precision - pair.nll_precision,
        pair.precision_half_width,
        pair.recall,
        pair.nll_recall,
        pair.recall - pair.nll_recall,
        pair.recall_half_width,
        "interpolated" if pair.interpolated else "scored",
    ]


def _figure(line: ModelLine, nll: ModelLine, kind: str, found: Sequence[Pair], styles: Mapping[str, int]) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    joined: dict[str, list[float | None]] = {"x": [], "y": []}
    for pair in found:
        joined["x"] += [pair.recall, pair.nll_recall, None]
        joined["y"] += [pair.precision, pair.nll_precision, None]
    grey = {"color": "#7F7F7F", "width": 1.2, "dash": "dot"}
    figure.add_scatter(**joined, mode="lines", name="t joined with α·t", line=grey, hoverinfo="skip")
    for one in (nll, line):
        colour, dash, symbol = line_style(styles[one.name])
        points = [point for point in one.of_kind(kind) if not point.method]
        figure.add_scatter(
            x=[point.recall.value for point in points],
            y=[point.precision.value for point in points],
            customdata=[point.temperature for point in points],
            meta={"column": "temperature"},
            mode="lines+markers",
            name=one.name,
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": symbol, "color": colour, "size": 7},
            hovertemplate="t = %{customdata:.3g}<br>recall %{x:.3f}<br>precision %{y:.3f}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(layout(f"{line.name} at t, {nll.name} at α·t", "recall", "precision"))
    caption = (
        "Each dotted line joins c-Div at t with NLL at α·t: where it is short, temperature explains the difference."
    )
    return Figure(figure=figure, caption=caption)
