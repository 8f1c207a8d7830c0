"""Pictures of PR curves: precision against recall."""

from __future__ import annotations

from collections.abc import Mapping
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
