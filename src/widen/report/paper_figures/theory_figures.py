"""The exact figures of the paper, which need no run. Each function draws one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from widen.theory import ArtificialCase, pr_curve
from widen.theory.curve import PRCurve

from ..style import PALETTE
from .look import look, panels, plain, unit_square

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXAMPLE = ArtificialCase(vocab=100, support=20, rho=0.5, a=0.725, epsilon=0.15)
"""``fig:examplePQ``: V = 100, K = 20, a/rho = 1.45 (a density ratio, not a mass), epsilon = .15; rho is not given, 1/2 is assumed."""
PR_CURVE_1 = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)
"""``app:fig:PRcurve1``: V = 100, K = 50, a/rho = 1.45, epsilon = .15, rho = .5."""
PR_CURVE_2 = ArtificialCase(vocab=100, support=10, rho=0.5, a=0.525, epsilon=0.05)
"""``app:fig:PRcurve2``: V = 100, K = 10, a/rho = 1.05, epsilon = .05, rho = .5."""
TEMPERATURES = (0.1, 1.0, 10.0)


def pr_examples() -> Figure:
    """``fig:PR_examples``: Q1 has a higher precision than Q2 but a lower recall; lambda = .1, 1, 10 are marked."""
    atom = np.arange(40)
    p = np.full(40, 1 / 40)
    laws = {
        name: mass * (fall := np.exp(-atom / scale)) / fall.sum()
        for name, mass, scale in (("Q1", 0.95, 7.0), ("Q2", 0.7, 60.0))
    }
    figure, (ax,) = panels(width=4.2, height=3.6)
    for index, (name, q) in enumerate(laws.items()):
        curve = pr_curve(p, q)
        _curve(ax, curve, name, index)
        for lam in (0.1, 1.0, 10.0):
            ax.plot(curve.recall(lam), curve.precision(lam), **{**look(index), "linestyle": "none"})
    for lam in (0.1, 1.0, 10.0):
        ends = (1.0, lam) if lam <= 1 else (1 / lam, 1.0)
        ax.plot([0, ends[0]], [0, ends[1]], color="#b0b0b8", linewidth=0.8, linestyle=":")
        ax.annotate(f"λ = {lam:g}", ends, fontsize=7, color="#66666e", ha="right" if lam <= 1 else "left", va="bottom")
    ax.legend(loc="center left")
    unit_square(ax)
    return figure


def example_pq() -> Figure:
    """``fig:examplePQ``: P and Q at the two positions where they differ."""
    figure, axes = panels(2, width=3.6, height=2.4)
    token, names = np.arange(EXAMPLE.vocab), ("l₁: over- and under-representation", "l₂: noise")
    for ax, p, q, name in zip(axes, EXAMPLE.p(), EXAMPLE.q(), names, strict=True):
        ax.fill_between(token, p, step="post", color=PALETTE[6], alpha=0.35, label="P")
        ax.step(token, q, where="post", color=PALETTE[1], label="Q")
        ax.set(title=name, xlabel="token", ylim=(0, 0.085))
        ax.legend()
    axes[0].set_ylabel("probability")
    return figure


def three_temperatures(case: ArtificialCase) -> Figure:
    """``app:fig:PRcurve1`` and ``app:fig:PRcurve2``: one panel per temperature."""
    figure, axes = panels(3, width=2.7, height=2.7)
    for ax, t in zip(axes, TEMPERATURES, strict=True):
        if t != 1.0:
            _curve(ax, case.curve(1.0), "t = 1", 6)
        _curve(ax, case.curve(t), f"t = {t:g}", 0)
        ax.legend(loc="center left")
        unit_square(ax)
        ax.set_xlabel(f"recall\nλmin {case.lambda_min(t):.3g}, λmax {case.lambda_max(t):.3g}")
    for ax in axes[1:]:
        ax.set_ylabel("")
    return figure


def epsilon_0(ratio: int, *, b: float, rho: float) -> float:
    """epsilon_0 for V/K = ``ratio``; ``b`` is the mass of the under-represented tokens, 0 < b < rho.

    >>> round(epsilon_0(2, b=0.1, rho=0.9), 3), round(epsilon_0(10, b=0.05, rho=0.5), 2)
    (0.016, 0.64)
    """
    # Any K with rho K whole gives the same value.
    case = ArtificialCase(vocab=1000 * ratio, support=1000, rho=rho, a=1 - b * (1 - rho) / rho, epsilon=0.1)
    return case.epsilon_0


def noise_levels() -> Figure:
    """``fig:ineq``: epsilon_0 against b for several rho and V/K; recall peaks at a finite temperature wherever epsilon is under it.

    Paper note: the caption says that epsilon_0 stays large when b is low and rho high; the opposite holds.
    """
    figure, axes = panels(3, width=2.6, height=2.7)
    for ax, ratio in zip(axes, (2, 10, 100), strict=True):
        for index, rho in enumerate((0.3, 0.5, 0.7, 0.9)):
            b = np.linspace(0.004, 0.996, 90) * rho
            ax.plot(b, [epsilon_0(ratio, b=float(x), rho=rho) for x in b], label=f"ρ = {rho:g}", **plain(index))
        ax.set(title=f"V/K = {ratio}", xlabel="b", ylim=(0, 1), xlim=(0, 0.9))
    axes[0].set_ylabel("ε₀")
    axes[0].legend(loc="upper left", ncols=2, handlelength=1.6, columnspacing=0.8)
    return figure


def methods() -> Figure:
    """``fig:methods``: which part of the model's PR curve each loss pushes.

    Beside NLL, c-Div weights the PR-divergence at lambda by alpha lambda^(1-alpha): the two bands show where that is above 1
    (vermilion) and below (blue), for alpha = 2 outside the curve and alpha = 1/2 inside it.
    """
    fall = np.exp(-np.arange(400) / 130)
    curve = pr_curve(np.full(400, 1 / 400), 0.88 * fall / fall.sum())
    figure, (ax,) = panels(width=4.8, height=4.2)
    lam = np.tan(np.linspace(0.02, np.pi / 2 - 0.02, 400))
    recall, precision = np.asarray(curve.recall(lam)), np.asarray(curve.precision(lam))
    for alpha, shift, text, where in (
        (2.0, 0.028, "c-Div 2", (0.82, 0.72)),
        (0.5, -0.028, "GOLD = c-Div ½", (0.37, 0.57)),
    ):
        _band(ax, recall + shift, precision + shift, np.log(alpha) + (1 - alpha) * np.log(lam))
        ax.annotate(text, where, fontsize=8, ha="center", va="center")
    ax.plot(recall, precision, color="#1a1a1f", linewidth=2)
    for start, end, text, where in _pushes(curve):
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": PALETTE[2], "linewidth": 2, "shrinkA": 0})
        ax.annotate(text, where, fontsize=8, color="#00684b", ha="center")
    unit_square(ax)
    ax.set(xlim=(-0.02, 1.12), ylim=(-0.02, 1.06))
    return figure


def _pushes(curve: PRCurve) -> list[tuple[tuple[float, float], tuple[float, float], str, tuple[float, float]]]:
    """Where Trunc, TruncR and lambda-PR push: start, end, name, place of the name."""
    drop, lam = 0.45, 0.45
    up = float(curve.at_recall(1 - drop).precision)
    right = float(curve.at_precision(1 - drop).recall)
    on = (float(curve.recall(lam)), float(curve.precision(lam)))
    along = (on[0] + 0.16 / np.hypot(1, lam), on[1] + 0.16 * lam / np.hypot(1, lam))
    return [
        ((1 - drop, up), (1 - drop, up + 0.16), "Trunc", (1 - drop, up + 0.18)),
        ((right, 1 - drop), (right + 0.16, 1 - drop), "TruncR", (right + 0.23, 1 - drop - 0.012)),
        (on, along, "λ-PR", (along[0] + 0.03, along[1] + 0.03)),
    ]


def _band(ax: Axes, x: np.ndarray, y: np.ndarray, emphasis: np.ndarray) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    colours = LinearSegmentedColormap.from_list("emphasis", [PALETTE[0], "#e8e8ee", PALETTE[1]])
    pieces = np.stack([np.column_stack([x[:-1], y[:-1]]), np.column_stack([x[1:], y[1:]])], axis=1)
    band = LineCollection(list(pieces), cmap=colours, norm=Normalize(-2, 2), linewidth=5, capstyle="butt")
    band.set_array(emphasis[:-1])
    ax.add_collection(band)


def _curve(ax: Axes, curve: PRCurve, name: str, index: int) -> None:
    points = curve.points()
    style = plain(index) if index != 6 else {"color": PALETTE[6], "linestyle": "--"}
    ax.plot(points.recall, points.precision, label=name, **style)
