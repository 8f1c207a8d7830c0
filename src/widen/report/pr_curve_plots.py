"""Plots of whole PR curves: a figure of given curves, and the report's panel with sliders for the decoding and for lambda."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from widen.sample.decoding import Decoding
from widen.theory import PRCurve

from .lines import LinePoint, ModelLine
from .parts import Panel, Section
from .style import layout, line_style, look_json, trace


def pr_curves(curves: Mapping[str, PRCurve], *, title: str, points: int = 400) -> dict[str, Any]:
    """A plotly figure with one line per curve: precision over recall, at ``points`` values of lambda and at its breakpoints if few."""
    angles = np.linspace(0, np.pi / 2, points)
    data = []
    for index, (name, curve) in enumerate(curves.items()):
        breaks = np.asarray(curve.breakpoints)
        lam = np.unique(np.concatenate([np.tan(angles[:-1]), [np.inf], breaks if len(breaks) <= 64 else []]))
        hover = "recall %{x:.3f}<br>precision %{y:.3f}<br>lambda %{customdata:.3g}"
        more = {"customdata": lam, "meta": {"column": "lambda"}}
        x, y = curve.recall(lam), curve.precision(lam)
        data.append(trace(name, x, y, line_style(index)[:2], width=2.5, hover=hover, **more))
    drawn = layout(title, "recall (coverage)", "precision (quality)")
    for axis in ("xaxis", "yaxis"):
        drawn[axis]["range"] = [-0.02, 1.02]
    return {"data": data, "layout": drawn}


def shared_decodings(lines: Sequence[ModelLine]) -> list[Decoding]:
    """The decodings at which most lines have a curve; NLL is often scored at more, to be matched with c-Div."""
    counts = Counter(
        one for line in lines for one in {point.decoding for point in line.points if point.curve_precision}
    )
    most = max(counts.values(), default=0)
    shared = [decoding for decoding, count in counts.items() if 2 * count >= most]
    return sorted(shared, key=lambda decoding: (decoding.temperature, decoding.spec))


def curve_section(lines: Sequence[ModelLine]) -> list[Section]:
    """The panel of PR curves; no section if no score holds curves."""
    decodings = shared_decodings(lines)
    if not decodings:
        return []
    drawn: list[dict[str, Any]] = []
    for line in lines:
        points = {point.decoding: point for point in reversed(line.points) if point.curve_precision}
        shown = [_curve(points[decoding]) for decoding in decodings if decoding in points]
        if shown:
            drawn.append({"name": line.name, **look_json(line.style), "points": shown})
    # lambda = tan(angle), angles evenly spaced over [0, pi/2].
    count = len(drawn[0]["points"][0]["precision"])
    data = {
        "lams": [math.tan(math.pi / 2 * i / (count - 1)) for i in range(count - 1)] + [math.inf],
        "decodings": [{"label": decoding.spec, "t": decoding.temperature} for decoding in decodings],
        "lines": drawn,
    }
    text = ["The whole PR curve of each model at one decoding; means over seeds where there are several."]
    return [Section(title="PR curves", text=text, parts=[Panel(name="curves", data=data, scripts=["curves.js"])])]


def _curve(point: LinePoint) -> dict[str, Any]:
    return {
        "decoding": point.decoding.spec,
        "precision": point.curve_precision,
        "recall": point.curve_recall,
        "area": 0.0 if point.auc is None else point.auc.value,
    }
