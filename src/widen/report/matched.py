r"""c-Div(alpha) at t beside NLL at alpha t: the comparison that tells a better loss from a hotter decoder.

On one context c-Div converges to :math:`P^{1/\alpha}`, so that decoding it at t is NLL decoded at :math:`\alpha t` (theorem
``theorem:tsallis``, :func:`widen.theory.optima.cdiv`). A gain over NLL that this explains is not a gain.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .lines import Line, LinePoint, seedless


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


def alpha_of(loss: str) -> float | None:
    """The order of a loss that is c-Div, warm-up aside; None for every other loss.

    >>> alpha_of("nll:steps=3000 then cdiv:alpha=1.4,cap=100.0"), alpha_of("gold"), alpha_of("nll")
    (1.4, 0.5, None)
    """
    last = loss.rpartition(" then ")[2].strip()
    if "*" in last:
        return None
    if last.partition(":")[0] in ("gold", "dft"):
        return 0.5 if last.startswith("gold") else 0.0
    found = re.match(r"cdiv:(?:.*,)?alpha=([0-9.eE+-]+)", last)
    return float(found.group(1)) if found else None


def baseline(line: Line, lines: Sequence[Line]) -> Line | None:
    """The NLL line to compare with: trained on the same data with the same model, and otherwise most alike; None where there is none.

    A fine-tuned model is compared with NLL of the very same training only: a start that the other losses went on from has seen less.
    """

    def task(one: Line) -> str:
        model = one.experiment.get("model", {})
        # A fine-tuned model is named, with its data under `train`; one of the integer task is described, beside its `data`.
        keys = ("train", "model") if isinstance(model.get("model"), str) else ("data", "model")
        return json.dumps([seedless(model.get(key)) for key in keys], sort_keys=True)

    def training(one: Line) -> dict[str, Any]:
        return {key: value for key, value in one.experiment.get("model", {}).items() if key not in ("loss", "seed")}

    def alike(other: Line) -> int:
        mine, theirs = training(line), training(other)
        return sum(seedless(mine.get(key)) == seedless(theirs.get(key)) for key in mine.keys() | theirs.keys())

    others = [other for other in lines if other.loss == "nll" and task(other) == task(line)]
    if isinstance(line.experiment.get("model", {}).get("model"), str):
        others = [other for other in others if seedless(training(other)) == seedless(training(line))]
    return max(others, key=alike, default=None)


def pairs(line: Line, nll: Line, *, kind: str) -> list[Pair]:
    """Every point of a c-Div line with its match; temperatures beyond NLL's own range have none."""
    alpha = alpha_of(line.loss)
    if not alpha:
        return []
    base = [point for point in nll.points if point.kind == kind]
    found = ((point, _at(base, alpha * point.temperature)) for point in line.points if point.kind == kind)
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
        precision=point.precision.mean,
        recall=point.recall.mean,
        nll_precision=between(low.precision.mean, high.precision.mean),
        nll_recall=between(low.recall.mean, high.recall.mean),
        precision_half_width=spread(point.precision.half_width, low.precision.half_width),
        recall_half_width=spread(point.recall.half_width, low.recall.half_width),
        interpolated=share > 0,
    )
