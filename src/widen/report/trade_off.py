"""Two sections of the report: the best setting for a target, and PR curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.special import stdtrit

from widen.sample.decoding import Decoding

from .lines import LinePoint, ModelLine
from .matched import baseline
from .parts import Panel, Section
from .style import line_style


def best_setting(lines: Sequence[ModelLine], kinds: Sequence[str]) -> list[Section]:
    """The panel that finds the best setting for a target; no section if nothing is scored."""
    if not kinds:
        return []
    data = {"kinds": [_settings(lines, kind) for kind in kinds], "student": student_table()}
    text = [
        "Choose a target; the page searches every measured model and decoding for the best one that reaches it. "
        "The gains say what came from where: first NLL moves from temperature alone to its best decoding, then the loss changes."
    ]
    panel = Panel(name="best_setting", data=data, scripts=["best_setting.js"])
    return [Section(title="Best setting for a target", short="Best setting", text=text, parts=[panel])]


def student_table(steps: int = 256) -> list[float]:
    """The 97.5 % quantile of Student's t at 1/freedom = 0, 1/steps, ..., 1: what the page needs for intervals of differences.

    >>> table = student_table(2)
    >>> [round(x, 3) for x in table]
    [1.96, 4.303, 12.706]
    """
    freedom = [math.inf, *(steps / i for i in range(1, steps + 1))]
    return [float(f"{stdtrit(degrees, 0.975):.6g}") for degrees in freedom]


def _settings(lines: Sequence[ModelLine], kind: str) -> dict[str, Any]:
    """The models of one kind of score, each with the NLL model that it is compared with, and all their points."""
    mine = [line for line in lines if line.of_kind(kind)]
    names = [{"name": line.name, "loss": line.loss, "nll": _nll(line, mine)} for line in mine]
    return {"kind": kind, "lines": names, "points": [_setting(line, p) for line in mine for p in line.of_kind(kind)]}


def _nll(line: ModelLine, lines: Sequence[ModelLine]) -> str | None:
    """The name of the NLL line that was trained alike but for the loss: the line itself if it is NLL."""
    found = line if line.loss == "nll" else baseline(line, lines)
    return found.name if found else None


def _setting(line: ModelLine, point: LinePoint) -> dict[str, Any]:
    return {
        "line": line.name,
        "decoding": point.decoding.spec,
        "t": point.temperature,
        "plain": not point.method,
        "precision": point.precision.value,
        "recall": point.recall.value,
        "precision_half": point.precision.bar,
        "recall_half": point.recall.bar,
        "runs": [run for run, _, _ in point.seeds],
        "seeds": {"precision": [p for _, p, _ in point.seeds], "recall": [r for _, _, r in point.seeds]},
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
