"""The report's section on matched temperatures: c-Div at t beside NLL at alpha t."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import matched
from .lines import Line
from .parts import Cell, Choice, Figure, Part, Section, Table
from .style import layout, line_style


def matched_temperatures(lines: Sequence[Line], kinds: Sequence[str], styles: Mapping[str, int]) -> list[Section]:
    """Figures and a table of every c-Div line against NLL; no section where no run is c-Div."""
    figures: dict[str, Figure] = {}
    rows: list[list[Cell]] = []
    without = []
    for line in lines:
        if matched.alpha_of(line.loss) in (None, 0.0, 1.0):
            continue
        nll = matched.baseline(line, lines)
        if nll is None:
            without.append(line.name)
            continue
        for kind in kinds:
            found = matched.pairs(line, nll, kind=kind)
            if found:
                figures[line.name if len(kinds) == 1 else f"{line.name} ({kind})"] = _figure(
                    line, nll, kind, found, styles
                )
                rows += [_row(line, pair) for pair in found]
    text = [
        "c-Div of order α converges to the α-th root of what NLL converges to, so at temperature t it should be NLL at α·t. "
        "What it gains over NLL at α·t is gained by the loss; what it gains only over NLL at t is gained by temperature."
    ]
    if without:
        text.append(f"No NLL run on the same data and model to compare with: {', '.join(without)}.")
    if not figures:
        return [Section(title="Matched temperatures", text=text)] if without else []
    headers = [
        "model",
        "t",
        "α·t",
        "precision",
        "NLL at α·t",
        "difference",
        "± ",
        "recall",
        "NLL at α·t ",
        "difference ",
        "±",
        "NLL",
    ]
    caption = (
        "Matched temperatures. Every point of c-Div and NLL at α·t; ± is the root of the sum of squares of the two half widths. "
        "Interpolated: NLL was not scored at α·t itself, its neighbours were joined in log t."
    )
    parts: list[Part] = [
        Choice(label="c-Div model", figures=figures),
        Table(headers=headers, rows=rows, general=("t", "α·t"), caption=caption),
    ]
    return [
        Section(
            title="Matched temperatures: c-Div at t, NLL at α·t", short="Matched temperatures", text=text, parts=parts
        )
    ]


def _row(line: Line, pair: matched.Pair) -> list[Cell]:
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


def _figure(line: Line, nll: Line, kind: str, found: Sequence[matched.Pair], styles: Mapping[str, int]) -> Figure:
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
        points = [point for point in one.points if point.kind == kind]
        figure.add_scatter(
            x=[point.recall.mean for point in points],
            y=[point.precision.mean for point in points],
            customdata=[point.temperature for point in points],
            meta={"column": "temperature"},
            mode="lines+markers",
            name=one.name,
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": symbol, "color": colour, "size": 7},
            hovertemplate="t = %{customdata:.3g}<br>recall %{x:.3f}<br>precision %{y:.3f}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(layout(f"{line.name} at t, {nll.name} at α·t", "recall", "precision"))
    caption = "Each dotted line joins c-Div at t with NLL at α·t: where it is short, temperature explains the whole of the difference."
    return Figure(figure=figure, caption=caption)
