"""The report's section on matched temperatures: c-Div of order alpha at t beside NLL at alpha t (`widen.run.against_nll` says why)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from widen.run.against_nll import cdiv_order

from .frontier_plot import temperature_line
from .lines import LinePoint, ModelLine, baseline
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
    """NLL at one temperature: its scores with half widths (nan if unknown), and where they come from."""

    precision: float
    recall: float
    precision_half: float
    recall_half: float
    source: str


def matches(line: ModelLine, nll: ModelLine, *, kind: str) -> list[tuple[LinePoint, float, Match | None]]:
    """Every point of a c-Div line, alpha t, and NLL there; None if NLL was not scored around alpha t."""
    alpha = cdiv_order(line.loss) or 0.0
    base = [point for point in temperature_line(nll.of_kind(kind)) if 0 < point.temperature < math.inf]
    points = [point for point in temperature_line(line.of_kind(kind)) if alpha]
    return [(point, round(alpha * point.temperature, 6), _at(base, alpha * point.temperature)) for point in points]


def _at(points: Sequence[LinePoint], t: float) -> Match | None:
    """Scores at temperature t, interpolated in log t."""
    heats = [point.temperature for point in points]
    near = [i for i, heat in enumerate(heats) if math.isclose(heat, t, rel_tol=1e-6)]
    if not near and not (heats and heats[0] < t < heats[-1]):
        return None

    def between(values: Sequence[float | None]) -> float:
        known = [math.nan if value is None else value for value in values]
        return known[near[0]] if near else float(np.interp(math.log(t), np.log(heats), known))

    return Match(
        between([point.precision.value for point in points]),
        between([point.recall.value for point in points]),
        between([point.precision.bar for point in points]),
        between([point.recall.bar for point in points]),
        "scored" if near else "interpolated",
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
            found = matches(line, nll, kind=kind)
            if found:
                name = line.name if len(kinds) == 1 else f"{line.name} ({kind})"
                figures[name] = _figure(line, nll, kind, found, styles)
                rows += [_row(line, *match) for match in found]
    text = [TEXT]
    if without:
        text.append(f"No NLL run was trained alike but for the loss: {', '.join(without)}.")
    parts: list[Part] = []
    if figures:
        parts.append(FigureChoice(label="c-Div model", figures=figures))
        parts.append(Table(headers=HEADERS, rows=rows, general=("t", "α·t"), caption=CAPTION))
    title = "Matched temperatures: c-Div at t, NLL at α·t"
    return [Section(title=title, short="Matched temperatures", text=text, parts=parts)] if parts or without else []


def _row(line: ModelLine, point: LinePoint, matched: float, nll: Match | None) -> list[Cell]:
    row: list[Cell] = [line.name, point.temperature, matched]
    if nll is None:
        return [*row, point.precision.value, None, None, None, point.recall.value, None, None, None, "not scored"]
    for mine, theirs, half in (
        (point.precision, nll.precision, nll.precision_half),
        (point.recall, nll.recall, nll.recall_half),
    ):
        spread = math.nan if mine.bar is None else math.hypot(mine.bar, half)
        row += [mine.value, theirs, mine.value - theirs, None if math.isnan(spread) else spread]
    return [*row, nll.source]


def _figure(
    line: ModelLine,
    nll: ModelLine,
    kind: str,
    found: Sequence[tuple[LinePoint, float, Match | None]],
    styles: Mapping[str, int],
) -> Figure:
    pairs = [(point, match) for point, _, match in found if match is not None]
    x = [x for point, match in pairs for x in (point.recall.value, match.recall, None)]
    y = [y for point, match in pairs for y in (point.precision.value, match.precision, None)]
    data = [trace("t joined with α·t", x, y, ("#7F7F7F", "dot"), width=1.2)]
    for one in (nll, line):
        points = temperature_line(one.of_kind(kind))
        data.append(
            trace(
                one.name,
                [point.recall.value for point in points],
                [point.precision.value for point in points],
                line_style(styles[one.name]),
                hover="t = %{customdata}<br>recall %{x:.3f}<br>precision %{y:.3f}",
                customdata=[point.temperature for point in points],
                meta={"column": "temperature"},
            )
        )
    caption = "A dotted line joins c-Div at t with NLL at α·t. Where it is short, temperature explains the difference."
    drawn = layout(f"{line.name} at t, {nll.name} at α·t", "recall", "precision")
    return Figure(figure={"data": data, "layout": drawn}, caption=caption)
