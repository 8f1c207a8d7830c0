"""The figures that show results of recipes, read from CSV tables (`widen.run.table`).

A recipe is named by its last word: ``mulmod:tsallis`` is ``tsallis``. The support sizes have columns of their own: ``recipe, mass,
quantile, tokens``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from widen.losses import LOSSES, CDiv
from widen.run.against_nll import last_loss
from widen.run.table import Row, read_cells, read_row

from .look import look, panels, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAIRS = {
    "Trunc and TruncR": ("trunc", "truncr"),
    "GOLD and c-Div": ("gold", "cdiv"),
    "TaiLr and λ-PR": ("tailr", "lambda_pr"),
}
NAMES = {
    "trunc": "Trunc",
    "truncr": "TruncR",
    "gold": "GOLD",
    "cdiv": "c-Div",
    "tailr": "TaiLr",
    "lambda_pr": "λ-PR",
    "nll": "NLL",
}


class SupportRow(NamedTuple):
    """How many tokens hold ``mass`` of the next-token law, at one quantile over positions."""

    mass: float
    quantile: float
    tokens: float


def read(folder: str | Path, recipe: str) -> list[Row]:
    """The rows of one recipe with precision and recall, over all CSV files of a folder."""
    return [
        read_row(path, {"name": "", **cells})
        for path, cells in _cells(folder, recipe)
        if {"precision", "recall"} <= cells.keys()
    ]


def read_support(folder: str | Path, recipe: str) -> list[SupportRow]:
    """The rows of the support-size recipe."""
    return [
        SupportRow(float(cells["mass"]), float(cells["quantile"]), float(cells["tokens"]))
        for _, cells in _cells(folder, recipe)
        if "tokens" in cells
    ]


def _cells(folder: str | Path, recipe: str) -> Iterator[tuple[Path, dict[str, str]]]:
    for path in sorted(Path(folder).glob("*.csv")):
        for cells in read_cells(path):
            named = cells.get("recipe", path.stem)
            if named.replace(".", ":").replace("/", ":").rpartition(":")[2] == recipe:
                yield path, {"recipe": named, **cells}


def family(loss: str) -> str:
    """The loss's family, warm-up aside: nll, trunc, truncr, gold, cdiv, tailr or lambda_pr; empty for any other loss.

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


def by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each name by rising temperature, in order of first appearance."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.name, []).append(row)
    return {name: sorted(members, key=lambda row: row.temperature) for name, members in groups.items()}


def frontiers(rows: Sequence[Row]) -> Figure:
    """One line per name, temperature along it: small marks cold, large ones hot."""
    figure, (ax,) = panels(width=5.4, height=3.8)
    for index, (name, line) in enumerate(by_name(rows).items()):
        _line(ax, line, name, index)
    _axes(ax)
    figure.legend(loc="outside right upper")
    return figure


def frontiers_by_b(rows: Sequence[Row]) -> Figure:
    """``fig:prmulmod``: precision and recall against the temperature, one line per level b of under-representation."""
    figure, axes = panels(2, width=3.4, height=3.0)
    for index, b in enumerate(sorted({row.b for row in rows if row.b is not None})):
        line = sorted((row for row in rows if row.b == b), key=lambda row: row.temperature)
        for ax, score in zip(axes, ("precision", "recall"), strict=True):
            half = [row.values[score].half_width or 0.0 for row in line]
            ax.errorbar(
                [row.temperature for row in line],
                [getattr(row, score) for row in line],
                yerr=half if any(half) else None,
                label=f"b = {b:g}",
                elinewidth=0.7,
                **look(index),
            )
            ax.set(xlabel="temperature", ylabel=score, xscale="log")
    axes[0].legend()
    return figure


def losses_at_one(rows: Sequence[Row]) -> Figure:
    """``fig:mulmod_losses``: precision against recall at t = 1, a baseline and its reversal in each panel, NLL in all."""
    groups: dict[str, list[Row]] = {kind: [] for kind in NAMES}
    for row in sorted(rows, key=lambda row: strength(row.loss)):
        if abs(row.temperature - 1.0) < 1e-9 and family(row.loss):
            groups[family(row.loss)].append(row)
    return _three([(kind, NAMES[kind], line) for kind, line in groups.items()])


def frontiers_by_family(rows: Sequence[Row]) -> Figure:
    """``fig:WPPRCurves``: frontiers over t, a baseline and its reversal in each panel, NLL in all."""
    return _three([(family(line[0].loss), name, line) for name, line in by_name(rows).items()])


def _three(lines: Sequence[tuple[str, str, Sequence[Row]]]) -> Figure:
    """Three panels of (family, name, rows)."""
    figure, axes = panels(3, width=3.0, height=3.3)
    for ax, (title, pair) in zip(axes, PAIRS.items(), strict=True):
        chosen = [(name, line) for kind in pair for of, name, line in lines if of == kind]
        for index, (name, line) in enumerate(chosen):
            _line(ax, line, name, index)
        for kind, _, line in lines:
            if kind == "nll" and line and line[0].loss == "nll":
                _line(ax, line, "NLL", 6)
        ax.set_title(title, fontsize=9)
        _axes(ax)
        ax.legend(loc="best", fontsize=7)
    for ax in axes[1:]:
        ax.set_ylabel("")
    return figure


def _line(ax: Axes, line: Sequence[Row], name: str, index: int) -> None:
    if not line:
        return
    style = look(index)
    x, y = [row.recall for row in line], [row.precision for row in line]
    xerr, yerr = (
        [row.values["recall"].half_width or 0.0 for row in line],
        [row.values["precision"].half_width or 0.0 for row in line],
    )
    if any(xerr) or any(yerr):
        ax.errorbar(x, y, xerr=xerr, yerr=yerr, fmt="none", ecolor=style["color"], elinewidth=0.6)
    ax.plot(x, y, color=style["color"], linestyle=style["linestyle"], linewidth=1.3)
    sizes = np.linspace(9, 46, len(line)) if len(line) > 1 else np.array([30.0])
    ax.scatter(x, y, s=sizes, color=style["color"], marker=style["marker"], label=shown(name), linewidths=0, zorder=3)


def _axes(ax: Axes) -> None:
    ax.set(xlabel="recall", ylabel="precision")


def support_sizes(rows: Sequence[SupportRow]) -> Figure:
    """The support of the next-token law: its distribution over positions, and its quantiles against the mass held."""
    figure, (left, right) = panels(2, width=3.4, height=2.9)
    for index, mass in enumerate(sorted({row.mass for row in rows})):
        line = sorted((row for row in rows if row.mass == mass), key=lambda row: row.quantile)
        left.plot([row.tokens for row in line], [row.quantile for row in line], label=f"mass {mass:g}", **look(index))
    left.set(xscale="log", xlabel="tokens needed", ylabel="share of positions")
    left.legend()
    for index, quantile in enumerate((0.1, 0.5, 0.9)):
        line = sorted((row for row in rows if abs(row.quantile - quantile) < 1e-9), key=lambda row: row.mass)
        right.plot(
            [row.mass for row in line],
            [row.tokens for row in line],
            label=f"{quantile:.0%} of positions",
            **look(index),
        )
    right.set(yscale="log", xlabel="mass p", ylabel="tokens needed")
    right.legend()
    return figure
