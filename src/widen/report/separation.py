"""Can decoding help? How the ratio q / max q separates right from wrong next tokens, drawn from records of the metric "separation".

A record holds the area under the ROC curve as its value, and in its detail the best ``threshold``, ``valid_below_noise`` (the share of
right mass below the most probable wrong token of its context) and a ``histogram`` of both kinds of tokens: ``edges``, ``valid``,
``invalid``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from widen.run.against_nll import Mean, mean_of
from widen.run.record import Record

from .lines import ModelLine
from .parts import Cell, Figure, FigureChoice, Part, Section, Table
from .style import layout
from .training_curves import log_ticks

RIGHT, WRONG, LIMIT = "#009E73", "#D55E00", "#7F7F7F"
CLEAR, PARTLY = 0.9, 0.5
"""A threshold separates if it keeps this much more of the right tokens than of the wrong ones; above the second it helps in part."""


@dataclass(frozen=True, kw_only=True)
class LineSeparation:
    """The separation of one model, the mean over its seeds. ``right`` and ``wrong`` are shares of tokens per bin, summing to 1.

    ``right_kept`` and ``wrong_kept`` are the shares at or above ``threshold``, read off the histogram.
    """

    name: str
    auc: Mean
    threshold: float
    below_noise: float
    edges: tuple[float, ...]
    right: tuple[float, ...]
    wrong: tuple[float, ...]

    @property
    def right_kept(self) -> float:
        """Share of right tokens at or above the threshold."""
        return _above(self.edges, self.right, self.threshold)

    @property
    def wrong_kept(self) -> float:
        """Share of wrong tokens at or above the threshold."""
        return _above(self.edges, self.wrong, self.threshold)

    @property
    def verdict(self) -> str:
        """One sentence: can decoding help this model?"""
        at = f"{self.threshold:.2g}"
        shares = f"{_percent(self.right_kept)} of the right tokens and drops {_percent(1 - self.wrong_kept)} of the wrong ones"
        advice = f"truncate there, then heat (`min_p={at},order=temperature_last`)"
        gain = self.right_kept - self.wrong_kept
        if gain >= CLEAR:
            return f"{self.name}: a threshold at {at} separates. It keeps {shares}: {advice}."
        if gain >= PARTLY:
            return (
                f"{self.name}: a threshold at {at} separates in part. It keeps {shares}: {advice}. "
                "Beyond that the loss or the data must change."
            )
        return (
            f"{self.name}: no threshold separates right from wrong tokens. The best, {at}, keeps only {shares}: "
            "the loss or the data must change."
        )


def line_separation(line: ModelLine) -> LineSeparation | None:
    """The separation of one line; None without complete records. Seeds count if their edges agree with the first seed's."""
    found = [r for run in line.runs for r in run.records if r.metric == "separation" and _complete(r)]
    if not found:
        return None
    edges = found[0].detail["histogram"]["edges"]
    found = [record for record in found if record.detail["histogram"]["edges"] == edges]

    def shares(key: str) -> tuple[float, ...]:
        each = np.array([record.detail["histogram"][key] for record in found], float)
        totals = each.sum(axis=1, keepdims=True)
        return tuple((each / np.where(totals > 0, totals, 1.0)).mean(axis=0).tolist())

    return LineSeparation(
        name=line.name,
        auc=mean_of(found),
        threshold=math.fsum(float(record.detail["threshold"]) for record in found) / len(found),
        below_noise=math.fsum(float(record.detail["valid_below_noise"]) for record in found) / len(found),
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
    """Whether a record holds everything that the picture needs."""
    drawn = record.detail.get("histogram")
    if not isinstance(drawn, Mapping) or not {"threshold", "valid_below_noise"} <= record.detail.keys():
        return False
    count = len(drawn.get("edges", ())) - 1
    return count >= 1 and all(len(drawn.get(key, ())) == count for key in ("valid", "invalid"))


def _above(edges: Sequence[float], shares: Sequence[float], threshold: float) -> float:
    """The share at or above ``threshold``; inside a bin the tokens count as evenly spread.

    >>> _above([0.0, 0.5, 1.0], [0.4, 0.6], 0.5), _above([0.0, 0.5, 1.0], [0.4, 0.6], 0.25)
    (0.6, 0.8)
    """
    parts = (
        share * min(1.0, max(0.0, (high - threshold) / (high - low)))
        for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
    )
    return math.fsum(parts)


def separation(lines: Sequence[ModelLine]) -> list[Section]:
    """The section: a picture per model, a sentence per model, a table; nothing without such records."""
    found = [one for one in map(line_separation, lines) if one is not None]
    if not found:
        return []
    text = [
        "A decoding that truncates sees of each token only q / max q, its probability relative to the most probable token. "
        "If right tokens lie above a threshold and wrong ones below it, truncating there and then heating adds recall "
        "at no cost in precision. If they overlap, no decoding can tell them apart.",
        *(one.verdict for one in found),
    ]
    rows: list[list[Cell]] = [
        [
            o.name,
            o.auc.value,
            o.auc.bar,
            float(f"{o.threshold:.3g}"),
            o.right_kept,
            o.wrong_kept,
            o.below_noise,
            o.auc.count,
        ]
        for o in found
    ]
    headers = ["model", "AUC", "±", "threshold", "right kept", "wrong kept", "right below noise", "seeds"]
    caption = (
        "How well each model separates. AUC: the probability that a right token has a larger q / max q than a wrong one. "
        "Kept: shares of tokens at or above the threshold. Right below noise: share of right mass under the most probable wrong "
        "token of its own context, which no decoding that keeps the model's ranking can reach without errors."
    )
    parts: list[Part] = [
        FigureChoice(label="model", figures={one.name: _figure(one) for one in found}),
        Table(headers=headers, rows=rows, caption=caption, general=("threshold",)),
    ]
    title = "Separation: can decoding help?"
    return [Section(title=title, short="Separation", text=text, parts=parts)]


def _figure(one: LineSeparation) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    log = is_log(one.edges)
    edges = list(one.edges)
    for name, shares, colour in (("right tokens", one.right, RIGHT), ("wrong tokens", one.wrong, WRONG)):
        figure.add_scatter(
            x=edges,
            y=[*shares, shares[-1]],
            mode="lines",
            name=name,
            line={"color": colour, "shape": "hv", "width": 2, "dash": "solid" if colour == RIGHT else "dash"},
            fill="tozeroy",
            fillcolor=_faint(colour),
            hovertemplate="from %{x:.3g}: %{y:.1%}<extra>" + name + "</extra>",
        )
    top = max(*one.right, *one.wrong)
    figure.add_scatter(
        x=[one.threshold, one.threshold],
        y=[0, 1.05 * top],
        mode="lines",
        name=f"threshold {one.threshold:.2g}",
        line={"color": LIMIT, "dash": "dot", "width": 2},
        hoverinfo="name",
    )
    figure.update_layout(layout(f"{one.name}: right and wrong next tokens", "q / max q", "share of tokens per bin"))
    figure.update_yaxes(rangemode="tozero", tickformat=".0%")
    if log:
        ticks = [tick for tick in log_ticks(edges[0], edges[-1]) if edges[0] <= tick <= edges[-1]]
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return Figure(figure=figure, caption="Each histogram sums to 1. " + one.verdict)


def is_log(edges: Sequence[float]) -> bool:
    """Whether bins are spaced by ratios rather than by differences, so that a log axis fits.

    >>> is_log([0.001, 0.01, 0.1, 1.0]), is_log([0.0, 0.5, 1.0])
    (True, False)
    """
    return edges[0] > 0 and edges[-1] > 20 * edges[0] and edges[1] - edges[0] < 0.5 * (edges[-1] - edges[-2])


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},.2)"
