"""The figures that show results: frontiers over temperature, losses at t = 1, support sizes. They draw rows; they measure nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .look import look, panels, shown
from .results import Row, SupportRow, by_name, family, strength

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


def frontiers(rows: Sequence[Row]) -> Figure:
    """One line a name, temperature along it: small marks cold, large ones hot."""
    figure, (ax,) = panels(width=5.4, height=3.8)
    for index, (name, line) in enumerate(by_name(rows).items()):
        _line(ax, line, name, index)
    _axes(ax)
    figure.legend(loc="outside right upper")
    return figure


def frontiers_by_b(rows: Sequence[Row]) -> Figure:
    """``fig:prmulmod``: precision and recall against the temperature, one line a level b of under-representation."""
    figure, axes = panels(2, width=3.4, height=3.0)
    levels = sorted({row.b for row in rows if row.b is not None})
    for index, b in enumerate(levels):
        line = sorted((row for row in rows if row.b == b), key=lambda row: row.temperature)
        for ax, score in zip(axes, ("precision", "recall"), strict=True):
            t, y = [row.temperature for row in line], [getattr(row, score) for row in line]
            half = [getattr(row, f"{score}_half_width") or 0.0 for row in line]
            ax.errorbar(t, y, yerr=half if any(half) else None, label=f"b = {b:g}", elinewidth=0.7, **look(index))
            ax.set(xlabel="temperature", ylabel=score, xscale="log")
    axes[0].legend()
    return figure


def losses_at_one(rows: Sequence[Row]) -> Figure:
    """``fig:mulmod_losses``: precision against recall at t = 1, a baseline and its reversal in each panel, NLL in all."""
    return _three([row for row in rows if abs(row.temperature - 1.0) < 1e-9], joined=True)


def frontiers_by_family(rows: Sequence[Row]) -> Figure:
    """``fig:WPPRCurves``: frontiers over t, a baseline and its reversal in each panel, NLL in all."""
    return _three(rows, joined=False)


def _three(rows: Sequence[Row], *, joined: bool) -> Figure:
    figure, axes = panels(3, width=3.0, height=3.3)
    nll = [row for row in rows if family(row.loss) == "nll" and row.loss == "nll"]
    for ax, (title, pair) in zip(axes, PAIRS.items(), strict=True):
        _families(ax, {kind: [row for row in rows if family(row.loss) == kind] for kind in pair}, joined=joined)
        _line(ax, nll, "NLL", 6)
        ax.set_title(title, fontsize=9)
        _axes(ax)
        ax.legend(loc="best", fontsize=7)
    for ax in axes[1:]:
        ax.set_ylabel("")
    return figure


def _families(ax: Axes, groups: Mapping[str, Sequence[Row]], *, joined: bool) -> None:
    """Points of one family joined by rising strength, or one line a member over temperature."""
    index = 0
    for kind, members in groups.items():
        if joined:
            _line(ax, sorted(members, key=lambda row: strength(row.loss)), NAMES[kind], index)
            index += 1
            continue
        for name, line in by_name(members).items():
            _line(ax, line, name, index)
            index += 1


def _line(ax: Axes, line: Sequence[Row], name: str, index: int) -> None:
    if not line:
        return
    style = look(index)
    x, y = [row.recall for row in line], [row.precision for row in line]
    xerr, yerr = [row.recall_half_width or 0.0 for row in line], [row.precision_half_width or 0.0 for row in line]
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
