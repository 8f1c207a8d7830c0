"""Does the model rank right tokens above wrong ones? Histograms of q / max q, from records of the metric "separation".

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
    def sentences(self) -> str:
        """What the numbers say of this model. They cannot recommend a decoding: 1 % of the wrong tokens can be hundreds of tokens."""
        right, wrong = map(_percent, self.kept)
        return (
            f"{self.name}: {_percent(self.below_noise)} of the right tokens are no more probable than the most probable wrong token of "
            f"their context. A threshold at {self.threshold:.2g} keeps {right} of the right tokens and {wrong} of the wrong ones."
        )

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
        "A cut-off sees of each token only q / max q, its probability relative to the most probable token. If a wrong token is more "
        "probable than a right one in the same context (after the same text), a decoding that keeps the model's ranking cannot "
        "keep the right token and drop the wrong one. There the data or the loss must change.",
        *(one.sentences for one in found),
        "These numbers do not say how much a cut-off gains. With a large vocabulary nearly all wrong tokens are very unlikely. Then the "
        "AUC is near 1 and the threshold drops nearly all wrong tokens, even if the model is nearly always wrong. "
        "The gain itself is measured: see 'Best setting for a target'.",
    ]
    headers = ["model", "AUC", "±", "threshold", "right kept", "wrong kept", "right below wrong", "seeds"]
    caption = (
        "AUC: the probability that a right token has a larger q / max q than a wrong one. Threshold: the q / max q that keeps most right "
        "tokens while it drops most wrong ones. Kept: shares of tokens at or above it. Right below wrong: share of the right tokens "
        "that are no more probable than the most probable wrong token of their context. "
        "Right tokens count by their probability in the reference."
    )
    rows = [
        [o.name, o.auc.value, o.auc.bar, float(f"{o.threshold:.3g}"), *o.kept, o.below_noise, o.auc.count]
        for o in found
    ]
    parts: list[Part] = [
        FigureChoice(label="model", figures={one.name: _figure(one) for one in found}),
        Table(headers=headers, rows=rows, caption=caption, general=("threshold",)),
    ]
    return [
        Section(
            title="Separation: does the model rank right tokens above wrong ones?",
            short="Separation",
            text=text,
            parts=parts,
        )
    ]


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
    return Figure(figure={"data": data, "layout": drawn}, caption="Each histogram sums to 1. " + one.sentences)
