"""Training curves: every number of the log against the step, one line per run, the seeds of one setting in one colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .lines import ModelLine, flat
from .load import number
from .parts import Figure, FigureChoice, Section
from .style import layout, line_style, trace

FIRST = ("loss", "nll", "grad_norm")
POINTS = 20_000
"""The most points of one figure; each run gets its share."""

MEANING = {
    "loss": "Weighted negative log-likelihood per target token: what is minimised. Different losses cannot be compared by it.",
    "nll": "Negative log-likelihood per target token, unweighted: comparable across losses.",
    "grad_norm": "Length of the gradient before clipping.",
    "weight_mean": "Mean weight of a token: the factor by which the loss's scale differs from NLL's.",
    "weight_max": "Largest weight of a token.",
    "weight_ess": "Effective sample size as a share of the tokens: 1 if all weigh the same.",
    "weight_zero_share": "Share of target tokens with weight 0.",
    "lr": "Learning rate.",
}


def training(lines: Sequence[ModelLine]) -> list[Section]:
    """The section on training: one figure per logged number, picked from a list."""
    rows = {
        id(run): [{key: x for key, value in flat(row).items() if (x := number(value)) is not None} for row in run.log]
        for line in lines
        for run in line.runs
    }
    names = dict.fromkeys(name for flat in rows.values() for row in flat for name in row if name != "step")
    ordered = [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)]
    if not ordered:
        return [Section(title="Training", text=["No run has a training log."])]
    share = max(40, POINTS // len(rows))
    thin = {key: _thinned(flat, share) for key, flat in rows.items()}
    figures = {name: _figure(name, lines, thin) for name in ordered}
    choice = FigureChoice(label="logged number", figures=figures)
    return [Section(title="Training", text=["What was logged while training."], parts=[choice])]


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


def _figure(name: str, lines: Sequence[ModelLine], rows: Mapping[int, list[dict[str, float]]]) -> Figure:
    data = [
        trace(
            line.name,
            [row["step"] for row in kept],
            [row[name] for row in kept],
            line_style(line.style)[:2],
            width=1.5,
            hover=f"step %{{x}}<br>%{{y:.4g}}, seed {run.seed}",
            showlegend=run is line.runs[0],
            opacity=0.85,
        )
        for line in lines
        for run in line.runs
        if (kept := [row for row in rows[id(run)] if name in row and "step" in row])
    ]
    values = [value for one in data for value in one["y"]]
    drawn = layout(f"{name} while training", "step", name)
    if values and min(values) > 0 and name.rpartition(".")[2] not in ("weight_zero_share", "weight_ess"):
        drawn["yaxis"] |= log_axis(min(values), max(values))
    caption = MEANING.get(name.rpartition(".")[2], f"`{name}` of log.jsonl.")
    caption += " One line per run; long logs are thinned to the smallest and the largest loss of each stretch."
    return Figure(figure={"data": data, "layout": drawn}, caption=caption)


def log_axis(low: float, high: float) -> dict[str, Any]:
    """A log axis with readable labels: 1, 2 and 5 times the powers of ten around the ends; over many powers, the powers alone.

    >>> log_axis(0.3, 2.4)["ticktext"], log_axis(0.003, 40)["ticktext"]
    (['0.2', '0.5', '1', '2', '5'], ['0.001', '0.01', '0.1', '1', '10', '100'])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(powers) <= 3 else (1,)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    below = max((tick for tick in ticks if tick <= low), default=ticks[0])
    above = min((tick for tick in ticks if tick >= high), default=ticks[-1])
    kept = [tick for tick in ticks if below <= tick <= above]
    return {"type": "log", "tickvals": kept, "ticktext": [f"{tick:g}" for tick in kept]}
