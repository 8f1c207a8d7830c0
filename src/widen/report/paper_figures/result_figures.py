"""The figures that show results of recipes, read from CSV tables (`widen.run.table`).

A recipe is named by its last word: ``mulmod:tsallis`` is ``tsallis``. The support sizes have columns of their own: ``recipe, mass,
quantile, tokens``.
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


def read(folder: str | Path, recipe: str) -> list[Row]:
    """The rows of one recipe with precision and recall, over all CSV files of a folder."""
    return [
        read_row(path, {"name": "", **cells})
        for path, cells in _cells(folder, recipe)
        if {"precision", "recall"} <= cells.keys()
    ]


def read_support(folder: str | Path, recipe: str) -> list[dict[str, float]]:
    """The rows of the support-size recipe: ``tokens`` that hold ``mass`` of the next-token law, at one ``quantile`` over positions."""
    found = (cells for _, cells in _cells(folder, recipe) if "tokens" in cells)
    return [{name: float(cells[name]) for name in ("mass", "quantile", "tokens")} for cells in found]


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
    figure.legend(loc="outside right upper")
    return figure


def frontiers_by_b(rows: Sequence[Row]) -> Figure:
    """``fig:prmulmod``: precision and recall against the temperature, one line per level b of under-representation."""
    figure, axes = panels(2, width=3.4, height=3.0)
    for index, b in enumerate(sorted({row.b for row in rows if row.b is not None})):
        line = sorted((row for row in rows if row.b == b), key=lambda row: row.temperature)
        heats = [Mean(value=row.temperature) for row in line]
        for ax, score in zip(axes, ("precision", "recall"), strict=True):
            error_bars(ax, heats, [row.values[score] for row in line], label=f"b = {b:g}", **look(index))
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
        ax.legend(loc="best", fontsize=7)
    for ax in axes[1:]:
        ax.set_ylabel("")
    return figure


def _line(ax: Axes, line: Sequence[Row], name: str, index: int) -> None:
    """Precision against recall; the marks grow along the line."""
    ax.set(xlabel="recall", ylabel="precision")
    if line:
        style, (x, y) = look(index), ([row.values[name] for row in line] for name in ("recall", "precision"))
        error_bars(ax, x, y, **{**style, "marker": "", "linewidth": 1.3})
        sizes = np.linspace(9, 46, len(line)) if len(line) > 1 else np.array([30.0])
        at, mark = ([mean.value for mean in x], [mean.value for mean in y]), style["marker"]
        ax.scatter(*at, s=sizes, label=shown(name), color=style["color"], marker=mark, linewidths=0, zorder=3)


def support_sizes(rows: Sequence[dict[str, float]]) -> Figure:
    """The support of the next-token law: its distribution over positions, and its quantiles against the mass held."""
    figure, (left, right) = panels(2, width=3.4, height=2.9)
    masses = {f"mass {mass:g}": ("mass", mass) for mass in sorted({row["mass"] for row in rows})}
    shares = {f"{share:.0%} of positions": ("quantile", share) for share in (0.1, 0.5, 0.9)}
    for ax, lines, x, y in ((left, masses, "tokens", "quantile"), (right, shares, "mass", "tokens")):
        for index, (name, (key, value)) in enumerate(lines.items()):
            line = [row for row in rows if abs(row[key] - value) < 1e-9]
            line.sort(key=lambda row: (row["mass"], row["quantile"]))
            ax.plot([row[x] for row in line], [row[y] for row in line], label=name, **look(index))
    left.set(xscale="log", xlabel="tokens needed", ylabel="share of positions")
    right.set(yscale="log", xlabel="mass p", ylabel="tokens needed")
    left.legend()
    right.legend()
    return figure
