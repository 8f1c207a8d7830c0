"""Pictures of PR curves and of frontiers: precision against recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from widen.theory import PRCurve

from .style import layout, line_style

UNIT = {"range": [-0.02, 1.02]}


def pr_curves(curves: Mapping[str, PRCurve], *, title: str, points: int = 400) -> Any:
    """One line per curve: precision alpha_lambda over recall beta_lambda, lambda along it.

    The curve is piecewise linear in lambda, not in (recall, precision); ``points`` values of lambda, evenly spaced in angle, and
    every breakpoint when there are few, draw it.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    angle = np.linspace(0, np.pi / 2, points)
    for index, (name, curve) in enumerate(curves.items()):
        breaks = np.asarray(curve.breakpoints)
        lam = np.unique(np.concatenate([np.tan(angle[:-1]), [np.inf], breaks if len(breaks) <= 64 else []]))
        colour, dash, _ = line_style(index)
        figure.add_scatter(
            x=curve.recall(lam),
            y=curve.precision(lam),
            customdata=lam,
            meta={"column": "lambda"},
            mode="lines",
            name=name,
            line={"color": colour, "dash": dash, "width": 2.5},
            hovertemplate="recall %{x:.3f}<br>precision %{y:.3f}<br>lambda %{customdata:.3g}<extra>"
            + name
            + "</extra>",
        )
    figure.update_layout(layout(title, "recall (coverage)", "precision (quality)"))
    figure.update_xaxes(**UNIT)
    figure.update_yaxes(**UNIT)
    return figure


@dataclass(frozen=True, kw_only=True)
class FrontierPoint:
    """One model at one temperature; the half-widths are of a 95 % interval over seeds, None for a single run."""

    model: str
    temperature: float
    precision: float
    recall: float
    precision_half_width: float | None = None
    recall_half_width: float | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedPoint:
    """A point that the paper prints, to stand beside ours."""

    name: str
    precision: float
    recall: float


def frontier(
    points: Sequence[FrontierPoint],
    *,
    title: str,
    recall_name: str = "recall (coverage)",
    published: Sequence[PublishedPoint] = (),
    ceiling: float | None = None,
    styles: Mapping[str, int] | None = None,
) -> Any:
    """One line per model, temperature along it: low temperatures top left, high ones bottom right.

    Args:
      published: the paper's points, drawn as open stars.
      ceiling: the recall that the reference itself would get, drawn as a dotted line; None draws none.
      styles: the index of each model's line style, so that all figures agree; None counts from 0.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    for index, model in enumerate(dict.fromkeys(point.model for point in points)):
        line = sorted((p for p in points if p.model == model), key=lambda p: p.temperature)
        colour, dash, symbol = line_style(index if styles is None else styles[model])
        figure.add_scatter(
            x=[p.recall for p in line],
            y=[p.precision for p in line],
            error_x=_bars([p.recall_half_width for p in line], colour),
            error_y=_bars([p.precision_half_width for p in line], colour),
            customdata=[p.temperature for p in line],
            meta={"column": "temperature"},
            mode="lines+markers",
            name=model,
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": symbol, "color": colour, "line": {"width": 0}, "size": _sizes(len(line))},
            hovertemplate="t = %{customdata:.3g}<br>recall %{x:.3f}<br>precision %{y:.3f}<extra>%{fullData.name}</extra>",
        )
    for point in published:
        _mark(figure, point)
    if ceiling is not None:
        heights = [p.precision for p in points] or [0.0, 1.0]
        figure.add_scatter(
            x=[ceiling, ceiling],
            y=[min(heights), max(heights)],
            mode="lines",
            name=f"recall of the reference itself, {ceiling:.3f}",
            line={"color": "#7F7F7F", "dash": "dot", "width": 1.5},
            hoverinfo="name",
        )
    figure.update_layout(layout(title, recall_name, "precision (quality)"))
    figure.update_xaxes(rangemode="nonnegative")  # where every score is 0 the axes would run from -1
    figure.update_yaxes(rangemode="nonnegative")
    return figure


def _sizes(count: int) -> list[float]:
    """Marks that grow along the line, from cold to hot."""
    return [6 + 7 * i / max(count - 1, 1) for i in range(count)]


def _mark(figure: Any, point: PublishedPoint) -> None:
    figure.add_scatter(
        x=[point.recall],
        y=[point.precision],
        mode="markers",
        name=point.name,
        marker={"symbol": "star", "size": 15, "color": "#D55E00", "line": {"color": "#7F7F7F", "width": 1.5}},
        hovertemplate="recall %{x:.3f}<br>precision %{y:.3f}<extra>%{fullData.name}</extra>",
    )


def _bars(half_widths: Sequence[float | None], colour: str) -> dict[str, Any] | None:
    """Error bars where there are intervals; a point of a single seed has none."""
    if all(width is None for width in half_widths):
        return None
    return {"type": "data", "array": list(half_widths), "color": colour, "thickness": 1, "width": 2}
