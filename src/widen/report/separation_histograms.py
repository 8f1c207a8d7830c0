"""Can decoding help? Histograms of q / max q for right and wrong next tokens, from records of the metric "separation".

The value of such a record is the area under the ROC curve. Its detail holds the best ``threshold``, ``valid_below_noise`` (the share of
right mass below the most probable wrong token of its context) and ``histogram``: ``edges``, ``valid``, ``invalid``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from widen.run.against_nll import Mean, mean_of
from widen.run.record import Record

from .lines import ModelLine
from .parts import Figure, FigureChoice, Part, Section, Table
from .style import layout, trace
from .training_curves import log_axis

RIGHT, WRONG, LIMIT = "#009E73", "#D55E00", "#7F7F7F"
CLEAR, PARTLY = 0.9, 0.5
"""Share of right tokens kept less share of wrong tokens kept: from these on, a threshold separates clearly, or in part."""
EMPTY = 1e-4
"""Leading bins with at most this share of the tokens are not shown."""


@dataclass(frozen=True, kw_only=True)
class LineSeparation:
    """Mean over the seeds of one model. ``right`` and ``wrong`` are shares of tokens per bin."""

    name: str
    auc: Mean
    threshold: float
    below_noise: float
    edges: tuple[float, ...]
    right: tuple[float, ...]
    wrong: tuple[float, ...]

    @property
    def kept(self) -> tuple[float, float]:
        """Shares of right and of wrong tokens at or above the threshold; tokens are spread evenly inside a bin."""
        edges = np.array(self.edges)
        above = np.clip((edges[1:] - self.threshold) / np.diff(edges), 0, 1)
        return float(above @ self.right), float(above @ self.wrong)

    @property
    def verdict(self) -> str:
        """One sentence: can decoding help this model?"""
        at, (right, wrong) = f"{self.threshold:.2g}", self.kept
        shares = f"{_percent(right)} of the right tokens and drops {_percent(1 - wrong)} of the wrong ones"
        if right - wrong < PARTLY:
            return (
                f"{self.name}: no threshold separates right from wrong tokens. The best, {at}, keeps only {shares}: "
                "the loss or the data must change."
            )
        how, beyond = "separates in part", " Beyond that the loss or the data must change."
        if right - wrong >= CLEAR:
            how, beyond = "separates", ""
        # One threshold counts each wrong token once; over a text they add up, and heat raises those that are kept.
        advice = f"truncate there or higher, then heat (from `min_p={at},order=temperature_last` up)"
        return f"{self.name}: a threshold at {at} {how}. It keeps {shares}: {advice}.{beyond}"

    @property
    def shown(self) -> tuple[float, float] | None:
        """The ends of a log axis, from the first bin with tokens; None if the bins are evenly spaced."""
        edges = self.edges
        if edges[0] <= 0 or edges[-1] <= 20 * edges[0] or edges[1] - edges[0] >= 0.5 * (edges[-1] - edges[-2]):
            return None
        bins = zip(edges, self.right, self.wrong, strict=False)
        return next(low for low, *shares in bins if max(shares) > EMPTY), edges[-1]


def line_separation(line: ModelLine) -> LineSeparation | None:
    """The separation of one line; None without complete records. Seeds whose bins differ from the first seed's are left out."""
    found = [r for run in line.runs for r in run.records if r.metric == "separation" and _complete(r)]
    if not found:
        return None
    edges = found[0].detail["histogram"]["edges"]
    found = [record for record in found if record.detail["histogram"]["edges"] == edges]

    def shares(key: str) -> tuple[float, ...]:
        each = np.array([record.detail["histogram"][key] for record in found], float)
        return tuple((each / each.sum(axis=1, keepdims=True)).mean(axis=0).tolist())

    return LineSeparation(
        name=line.name,
        auc=mean_of(found),
        threshold=float(np.mean([record.detail["threshold"] for record in found])),
        below_noise=float(np.mean([record.detail["valid_below_noise"] for record in found])),
        edges=tuple(map(float, edges)),
        right=shares("valid"),
        wrong=shares("invalid"),
    )


def _percent(share: float) -> str:
    """A share for a sentence, with a decimal where rounding would claim all or nothing.

    >>> _percent(0.97), _percent(0.997), _percent(1.0)
    ('97 %', '99.7 %', '100 %')
    """
    near = 0.99 < share < 1 or 0 < share < 0.01
    return f"{100 * share:.1f} %" if near else f"{100 * share:.0f} %"


def _complete(record: Record) -> bool:
    drawn = record.detail.get("histogram")
    if not isinstance(drawn, Mapping) or not {"threshold", "valid_below_noise"} <= record.detail.keys():
        return False
    count = len(drawn.get("edges", ())) - 1
    return count >= 1 and all(len(drawn.get(key, ())) == count and sum(drawn[key]) > 0 for key in ("valid", "invalid"))


def separation_section(lines: Sequence[ModelLine]) -> list[Section]:
    """A histogram and a sentence per model, and a table; no section without such records."""
    found = [one for one in map(line_separation, lines) if one is not None]
    if not found:
        return []
    text = [
        "A decoding that truncates sees of each token only q / max q, its probability relative to the most probable token. "
        "If right tokens lie above a threshold and wrong ones below it, truncating there and then heating adds recall "
        "at no cost in precision. If they overlap, no decoding can tell them apart.",
        *(one.verdict for one in found),
    ]
    headers = ["model", "AUC", "±", "threshold", "right kept", "wrong kept", "right below noise", "seeds"]
    caption = (
        "How well each model separates. AUC: the probability that a right token has a larger q / max q than a wrong one. "
        "Kept: shares of tokens at or above the threshold. Right below noise: share of right mass under the most probable wrong "
        "token of its own context, which no decoding that keeps the model's ranking can reach without errors."
    )
    rows = [
        [o.name, o.auc.value, o.auc.bar, float(f"{o.threshold:.3g}"), *o.kept, o.below_noise, o.auc.count]
        for o in found
    ]
    parts: list[Part] = [
        FigureChoice(label="model", figures={one.name: _figure(one) for one in found}),
        Table(headers=headers, rows=rows, caption=caption, general=("threshold",)),
    ]
    return [Section(title="Separation: can decoding help?", short="Separation", text=text, parts=parts)]


def _figure(one: LineSeparation) -> Figure:
    data = []
    for name, shares, colour, dash in (
        ("right tokens", one.right, RIGHT, "solid"),
        ("wrong tokens", one.wrong, WRONG, "dash"),
    ):
        steps = trace(name, one.edges, [*shares, shares[-1]], (colour, dash), hover="from %{x:.3g}: %{y:.1%}")
        steps["line"]["shape"] = "hv"
        data.append(steps | {"fill": "tozeroy", "fillcolor": f"{colour}33"})
    top = 1.05 * max(*one.right, *one.wrong)
    data.append(trace(f"threshold {one.threshold:.2g}", [one.threshold] * 2, [0, top], (LIMIT, "dot")))
    drawn = layout(f"{one.name}: right and wrong next tokens", "q / max q", "share of tokens per bin")
    drawn["yaxis"] |= {"rangemode": "tozero", "tickformat": ".0%"}
    if one.shown:
        drawn["xaxis"] |= log_axis(*one.shown) | {"range": [math.log10(end) for end in one.shown]}
    return Figure(figure={"data": data, "layout": drawn}, caption="Each histogram sums to 1. " + one.verdict)
