"""Training curves: every number of the log against the step, one line per run, the seeds of one setting in one colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .lines import ModelLine
from .load import number
from .parts import Figure, FigureChoice
from .run_data import RunData
from .style import layout, line_style

FIRST = ("loss", "nll", "grad_norm")
POINTS = 20_000
"""The most points of one figure; each run gets its share."""

MEANING = {
    "loss": "Weighted negative log-likelihood per target token: what is minimised. Different losses cannot be compared by it.",
    "nll": "Negative log-likelihood per target token, unweighted: comparable across losses.",
    "grad_norm": "Length of the gradient before clipping.",
    "weight_mean": "Mean weight of a token: the factor by which the loss's scale differs from NLL's.",
    "weight_max": "Largest weight of a token.",
    "ess": "Effective sample size as a share of the tokens: 1 if all weigh the same.",
    "zero_share": "Share of target tokens with weight 0.",
    "lr": "Learning rate.",
}


def training(lines: Sequence[ModelLine], *, styles: Mapping[str, int]) -> FigureChoice | None:
    """One figure per logged number, picked from a list; None if nothing was logged."""
    rows = {id(run): [_flat(row) for row in run.log] for line in lines for run in line.runs}
    names = dict.fromkeys(name for flat in rows.values() for row in flat for name in row if name != "step")
    ordered = [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)]
    if not ordered:
        return None
    share = max(40, POINTS // max(1, sum(len(line.runs) for line in lines)))
    thin = {key: _thinned(flat, share) for key, flat in rows.items()}
    return FigureChoice(label="logged number", figures={name: _figure(name, lines, thin, styles) for name in ordered})


def _flat(row: Mapping[str, Any], where: str = "") -> dict[str, float]:
    """The numbers of one log line, nested ones under dotted names."""
    out: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            out |= _flat(value, f"{where}{key}.")
        elif (x := number(value)) is not None:
            out[f"{where}{key}"] = x
    return out


def _thinned(rows: Sequence[dict[str, float]], most: int) -> list[dict[str, float]]:
    """At most ``most`` rows: of each stretch the rows of smallest and largest loss, so that no spike is lost."""
    if len(rows) <= most:
        return list(rows)
    width = -(-2 * len(rows) // most)
    kept = []
    for at in range(0, len(rows), width):
        stretch = range(at, min(at + width, len(rows)))
        ends = {pick(stretch, key=lambda i: rows[i].get("loss", 0.0)) for pick in (min, max)}
        kept += [rows[i] for i in sorted(ends)]
    return kept


def _figure(
    name: str, lines: Sequence[ModelLine], rows: Mapping[int, list[dict[str, float]]], styles: Mapping[str, int]
) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    values: list[float] = []
    for line in lines:
        colour, dash, _ = line_style(styles[line.name])
        for index, run in enumerate(line.runs):
            kept = [row for row in rows[id(run)] if name in row and "step" in row]
            values += [row[name] for row in kept]
            if kept:
                _line(
                    figure, line.name, run, kept, name, {"color": colour, "dash": dash, "width": 1.5}, first=index == 0
                )
    figure.update_layout(layout(f"{name} while training", "step", name))
    if min(values) > 0 and name.rpartition(".")[2] not in ("zero_share", "ess"):
        # Under two decades plotly labels the digit alone, so that 0.5 reads 5 below 1; over more its ticks run into each other.
        ticks = log_ticks(min(values), max(values))
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    caption = MEANING.get(name.rpartition(".")[2], f"`{name}` of log.jsonl.")
    return Figure(
        figure=figure,
        caption=f"{caption} One line per run; long logs are thinned to the smallest and the largest loss of each stretch.",
    )


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten from the one below ``low`` to the one above ``high``; the powers alone over many of them.

    >>> log_ticks(0.3, 2.4), log_ticks(0.003, 40)
    ([0.2, 0.5, 1.0, 2.0, 5.0], [0.001, 0.01, 0.1, 1.0, 10.0, 100.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(powers) <= 3 else (1,)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    below = max((tick for tick in ticks if tick <= low), default=ticks[0])
    above = min((tick for tick in ticks if tick >= high), default=ticks[-1])
    return [tick for tick in ticks if below <= tick <= above]


def _line(
    figure: Any,
    label: str,
    run: RunData,
    rows: Sequence[dict[str, float]],
    name: str,
    look: dict[str, Any],
    *,
    first: bool,
) -> None:
    figure.add_scatter(
        x=[row["step"] for row in rows],
        y=[float(f"{row[name]:.6g}") for row in rows],
        mode="lines",
        name=label,
        showlegend=first,
        line=look,
        opacity=0.85,
        hovertemplate=f"step %{{x}}<br>%{{y:.4g}}<extra>%{{fullData.name}}, seed {run.seed}</extra>",
    )
