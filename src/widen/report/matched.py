"""The report's section on matched temperatures: c-Div of order alpha at t beside NLL at alpha t (`widen.run.against_nll` says why)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from widen.run.against_nll import Mean, cdiv_order

from .frontier_plot import columns, temperature_line
from .lines import LinePoint, ModelLine, baseline, kinds_of
from .parts import Cell, Figure, FigureChoice, Part, Section, Table
from .style import layout, line_style, trace

HEADERS = ["model", "t", "α·t", "precision", "NLL at α·t", "difference", "± "]
HEADERS += ["recall", "NLL at α·t ", "difference ", "±", "NLL"]
TEXT = (
    "c-Div of order α converges to the α-th root of what NLL converges to, so at temperature t it should be NLL at α·t. "
    "A gain over NLL at α·t comes from the loss; a gain over NLL at t alone comes from temperature."
)
CAPTION = (
    "Matched temperatures. Every point of c-Div and NLL at α·t; ± is the root of the sum of squares of the two half widths. "
    "Interpolated: NLL was not scored at α·t, and its neighbours were joined in log t. Not scored: α·t is beyond NLL's temperatures."
)


class Match(NamedTuple):
    """NLL at one temperature, and whether it was scored there or interpolated."""

    precision: Mean
    recall: Mean
    source: str


Pair = tuple[LinePoint, float, Match | None]
"""A point of c-Div, alpha t, and NLL there; None if NLL was not scored around alpha t."""


def matches(line: ModelLine, nll: ModelLine, *, kind: str) -> list[Pair]:
    """Every point of a c-Div line with NLL at the matched temperature."""
    alpha = cdiv_order(line.loss) or 0.0
    base = [point for point in temperature_line(nll.of_kind(kind)) if 0 < point.temperature < math.inf]
    points = [point for point in temperature_line(line.of_kind(kind)) if alpha]
    return [(point, round(alpha * point.temperature, 6), _at(base, alpha * point.temperature)) for point in points]


def _at(points: Sequence[LinePoint], t: float) -> Match | None:
    """Scores at temperature t, interpolated in log t."""
    for point in points:
        if math.isclose(point.temperature, t, rel_tol=1e-6):
            return Match(point.precision, point.recall, "scored")
    heats = [point.temperature for point in points]
    if not (heats and heats[0] < t < heats[-1]):
        return None

    def between(means: Sequence[Mean]) -> Mean:
        value, bar = (
            float(np.interp(math.log(t), np.log(heats), values))
            for values in ([mean.value for mean in means], [math.nan if m.bar is None else m.bar for m in means])
        )
        return Mean(value=value, half_width=None if math.isnan(bar) else bar)

    return Match(between([p.precision for p in points]), between([p.recall for p in points]), "interpolated")


def matched_temperatures(lines: Sequence[ModelLine]) -> list[Section]:
    """Figures and a table of every c-Div line against NLL; no section if no run is c-Div."""
    figures: dict[str, Figure] = {}
    rows: list[list[Cell]] = []
    without, kinds = [], kinds_of(lines)
    for line in lines:
        if cdiv_order(line.loss) in (None, 0.0, 1.0):
            continue
        nll = baseline(line, lines)
        if nll is None:
            without.append(line.name)
            continue
        for kind in kinds:
            if found := matches(line, nll, kind=kind):
                name = line.name if len(kinds) == 1 else f"{line.name} ({kind})"
                figures[name] = _figure(line, nll, kind, found)
                rows += [_row(line, *pair) for pair in found]
    if not figures and not without:
        return []
    text, parts = [TEXT], list[Part]()
    if without:
        text.append(f"No NLL run was trained alike but for the loss: {', '.join(without)}.")
    if figures:
        parts.append(FigureChoice(label="c-Div model", figures=figures))
        parts.append(Table(headers=HEADERS, rows=rows, general=("t", "α·t"), caption=CAPTION))
    title = "Matched temperatures: c-Div at t, NLL at α·t"
    return [Section(title=title, short="Matched temperatures", text=text, parts=parts)]


def _row(line: ModelLine, point: LinePoint, matched: float, nll: Match | None) -> list[Cell]:
    row: list[Cell] = [line.name, point.temperature, matched]
    if nll is None:
        return [*row, point.precision.value, None, None, None, point.recall.value, None, None, None, "not scored"]
    for mine, theirs in ((point.precision, nll.precision), (point.recall, nll.recall)):
        known = mine.bar is not None and theirs.bar is not None
        spread = math.hypot(mine.bar or 0.0, theirs.bar or 0.0) if known else None
        row += [mine.value, theirs.value, mine.value - theirs.value, spread]
    return [*row, nll.source]


def _figure(line: ModelLine, nll: ModelLine, kind: str, found: Sequence[Pair]) -> Figure:
    pairs = [(point, match) for point, _, match in found if match is not None]
    x = [x for point, match in pairs for x in (point.recall.value, match.recall.value, None)]
    y = [y for point, match in pairs for y in (point.precision.value, match.precision.value, None)]
    data = [trace("t joined with α·t", x, y, ("#7F7F7F", "dot"), width=1.2)]
    hover = "t = %{customdata}<br>recall %{x:.3f}<br>precision %{y:.3f}"
    for one in (nll, line):
        points, style = columns(temperature_line(one.of_kind(kind))), line_style(one.style)
        more = {"customdata": points["t"], "meta": {"column": "temperature"}}
        data.append(trace(one.name, points["recall"], points["precision"], style, hover=hover, **more))
    caption = "A dotted line joins c-Div at t with NLL at α·t. Where it is short, temperature explains the difference."
    drawn = layout(f"{line.name} at t, {nll.name} at α·t", "recall", "precision")
    return Figure(figure={"data": data, "layout": drawn}, caption=caption)
