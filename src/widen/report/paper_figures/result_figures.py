"""The figures that show results of recipes, read from CSV tables (`widen.run.table`).

A recipe is named by its last word: ``mulmod:tsallis`` is ``tsallis``. Marks grow along a line: small ones are cold, large ones hot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from widen.losses import LOSSES, CDiv
from widen.run.against_nll import Mean, last_loss
from widen.run.table import Row, read_cells, read_row

from .look import error_bars, look, panels, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAIRS = (
    {"trunc": "Trunc", "truncr": "TruncR"},
    {"gold": "GOLD", "cdiv": "c-Div"},
    {"tailr": "TaiLr", "lambda_pr": "λ-PR"},
)
"""A baseline and its reversal in each panel."""


def read(folder: str | Path, recipe: str) -> list[Row]:
    """The rows of one recipe with precision and recall, over all CSV files of a folder."""
    return [
        read_row(path, {"name": "", **cells})
        for path, cells in _cells(folder, recipe)
        if {"precision", "recall"} <= cells.keys()
    ]


def read_support(folder: str | Path, recipe: str) -> list[dict[str, float]]:
    """The rows of the support sizes: ``tokens`` hold ``mass`` of the next-token distribution, at one ``quantile`` over positions."""
    found = (cells for _, cells in _cells(folder, recipe) if "tokens" in cells)
    return [{name: float(cells[name]) for name in ("mass", "quantile", "tokens")} for cells in found]


def _cells(folder: str | Path, recipe: str) -> Iterator[tuple[Path, dict[str, str]]]:
    for path in sorted(Path(folder).glob("*.csv")):
        for cells in read_cells(path):
            named = cells.get("recipe", path.stem)
            if named.replace(".", ":").replace("/", ":").rpartition(":")[2] == recipe:
                yield path, {"recipe": named, **cells}


def family(loss: str) -> str:
    """The loss's family without its warm-up: nll, trunc, truncr, gold, cdiv, tailr or lambda_pr; empty for any other loss.

    >>> family("nll:steps=3000 then cdiv:alpha=0.5"), family("nll:steps=3000 then truncr:drop=0.1"), family("nll")
    ('gold', 'truncr', 'nll')
    """
    weight = last_loss(loss)
    if isinstance(weight, CDiv) and weight.alpha == 0.5:
        return "gold"
    return next((name for name, kind in LOSSES.items() if type(weight) is kind), "")


def strength(loss: str) -> float:
    """The number that orders the members of a family: drop, alpha, lam or gamma."""
    weight = last_loss(loss)
    return next((getattr(weight, name) for name in ("drop", "alpha", "lam", "gamma") if hasattr(weight, name)), 0.0)


def prcode(rows: Sequence[Row]) -> Figure:
    """fig:prcode. The paper: “Effect of tuning t between 0.2 (smaller dots) and 2 (larger dots) on P&R for Llama3.1 models on the
    CodeContests dataset.” Precision is pass@1, recall pass@100 − pass@1. Bars: 95 % intervals over seeds, or over problems for a single
    seed.
    """
    return frontiers(rows)


def prmulmod(rows: Sequence[Row]) -> Figure:
    """fig:prmulmod. The paper: “Effect of the temperature on P&R for integer multiplication, at different levels of underrepresentation
    b. Recall increases with the temperature, then drops.” Bars: 95 % intervals over seeds, or over problems for a single seed.
    """
    figure, axes = panels(2, width=3.4, height=3.0)
    for index, b in enumerate(sorted({row.b for row in rows if row.b is not None})):
        line = sorted((row for row in rows if row.b == b), key=lambda row: row.temperature)
        heats = [Mean(value=row.temperature) for row in line]
        for ax, score in zip(axes, ("precision", "recall"), strict=True):
            error_bars(ax, heats, [row.values[score] for row in line], label=f"b = {b:g}", **look(index))
            ax.set(xlabel="temperature", ylabel=score, xscale="log")
    axes[0].legend()
    return figure


def tsallis(rows: Sequence[Row]) -> Figure:
    """fig:tsallis. The paper: “P&R for t in [0.1, 5] for models trained with c-Div for different α. The PR-Curves for high α dominate
    the curves for lower α.” In our runs of five seeds they did not with plain Adam, and did up to α = 1.75 with gradients shortened to
    norm 1. Small marks are cold, large ones hot. Bars: 95 % intervals over seeds, or over problems for a single seed.
    """
    return frontiers(rows)


def wp_pr_curves(rows: Sequence[Row]) -> Figure:
    """fig:WPPRCurves. The paper: “P&R trade-off for t in [0.1, 1.8] on WritingPrompts. Trunc, GOLD and TaiLr tend to favor Precision
    over Recall; our proposed losses improve Recall while maintaining comparable Precision when adjusting the temperature.” Bars: 95 %
    intervals over seeds, or over problems for a single seed.
    """
    return _by_family([(family(line[0].loss), name, line) for name, line in by_name(rows).items()])


def mulmod_losses(rows: Sequence[Row]) -> Figure:
    """fig:mulmod_losses. The paper: “P&R trade-off at t = 1 on integer multiplication. Trunc, GOLD and TaiLr improve Precision; our
    proposed losses improve Recall.” Within a family the marks grow with its parameter. Bars: 95 % intervals over seeds, or over problems
    for a single seed.
    """
    at_one = sorted((row for row in rows if abs(row.temperature - 1.0) < 1e-9), key=lambda row: strength(row.loss))
    names = {kind: name for pair in PAIRS for kind, name in pair.items()} | {"nll": "NLL"}
    return _by_family([(kind, name, [r for r in at_one if family(r.loss) == kind]) for kind, name in names.items()])


def support_sizes(rows: Sequence[dict[str, float]]) -> Figure:
    """histo. The paper: “Support size of the conditional distribution, estimated using Llama3-8B-Instruct on the CodeContests dataset.”
    Tokens needed for a share p of the next-token mass, over positions.
    """
    figure, (left, right) = panels(2, width=3.4, height=2.9)
    masses = {f"mass {mass:g}": ("mass", mass) for mass in sorted({row["mass"] for row in rows})}
    shares = {f"{share:.0%} of positions": ("quantile", share) for share in (0.1, 0.5, 0.9)}
    for ax, lines, x, y in ((left, masses, "tokens", "quantile"), (right, shares, "mass", "tokens")):
        for index, (name, (key, value)) in enumerate(lines.items()):
            line = [row for row in rows if abs(row[key] - value) < 1e-9]
            line.sort(key=lambda row: (row["mass"], row["quantile"]))
            ax.plot([row[x] for row in line], [row[y] for row in line], label=name, **look(index))
        ax.legend()
    left.set(xscale="log", xlabel="tokens needed", ylabel="share of positions")
    right.set(yscale="log", xlabel="mass p", ylabel="tokens needed")
    return figure


def by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each name by rising temperature, in order of first appearance."""
    names = dict.fromkeys(row.name for row in rows)
    return {name: sorted((r for r in rows if r.name == name), key=lambda row: row.temperature) for name in names}


def frontiers(rows: Sequence[Row]) -> Figure:
    """One line per name, temperature along it."""
    figure, (ax,) = panels(width=5.4, height=3.8)
    for index, (name, line) in enumerate(by_name(rows).items()):
        _line(ax, line, name, index)
    figure.legend(loc="outside right upper")
    return figure


def _by_family(lines: Sequence[tuple[str, str, Sequence[Row]]]) -> Figure:
    """Three panels of (family, name, rows): a pair of families in each, NLL in all."""
    figure, axes = panels(3, width=3.0, height=3.3)
    for ax, pair in zip(axes, PAIRS, strict=True):
        chosen = [(name, line) for kind in pair for of, name, line in lines if of == kind]
        for index, (name, line) in enumerate(chosen):
            _line(ax, line, name, index)
        for kind, _, line in lines:
            if kind == "nll" and line and line[0].loss == "nll":
                _line(ax, line, "NLL", 6)
        ax.set_title(" and ".join(pair.values()), fontsize=9)
        ax.legend(loc="best", fontsize=7)
    for ax in axes[1:]:
        ax.set_ylabel("")
    return figure


def _line(ax: Axes, line: Sequence[Row], name: str, index: int) -> None:
    """Precision against recall."""
    ax.set(xlabel="recall", ylabel="precision")
    if line:
        style, (x, y) = look(index), ([row.values[name] for row in line] for name in ("recall", "precision"))
        error_bars(ax, x, y, **{**style, "marker": "", "linewidth": 1.3})
        sizes = np.linspace(9, 46, len(line)) if len(line) > 1 else np.array([30.0])
        at, mark = ([mean.value for mean in x], [mean.value for mean in y]), style["marker"]
        ax.scatter(*at, s=sizes, label=shown(name), color=style["color"], marker=mark, linewidths=0, zorder=3)
