"""The exact figures of the paper, which need no run."""

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
    """fig:PR_examples. The paper: “Examples of PR-Curves. Q1 has a higher Precision than Q2 but a lower Recall.” Marked: λ = 0.1, 1, 10.
    The distributions are ours: forty right atoms; Q1 falls off steeply over them, Q2 hardly, but has 30 % elsewhere.
    """
    figure, (ax,) = panels(width=4.2, height=3.6)
    for index, (name, mass, scale) in enumerate((("Q1", 0.95, 7.0), ("Q2", 0.7, 60.0))):
        fall = np.exp(-np.arange(40) / scale)
        curve = pr_curve(np.full(40, 1 / 40), mass * fall / fall.sum())
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
    """fig:examplePQ. The paper: “Example P and Q for V = 100, K = 20, a/ρ = 1.45 and ε = 0.15. ρ is the proportion of tokens
    underrepresented at the level b/ρ.” Corrected: ρ is the over-represented share, at level a/ρ. The paper does not give ρ here; ½ is
    assumed.
    """
    figure, axes = panels(2, width=3.6, height=2.4)
    token, names = np.arange(EXAMPLE.vocab), ("l₁: over- and under-representation", "l₂: noise")
    for ax, p, q, name in zip(axes, EXAMPLE.p(), EXAMPLE.q(), names, strict=True):
        ax.fill_between(token, p, step="post", color=PALETTE[6], alpha=0.35, label="P")
        ax.step(token, q, where="post", color=PALETTE[1], label="Q")
        ax.set(title=name, xlabel="token", ylim=(0, 0.085))
        ax.legend()
    axes[0].set_ylabel("probability")
    return figure


def pr_curve_1() -> Figure:
    """app:fig:PRcurve1. The paper: “PR-Curve for different temperatures t with V = 100, K = 50, a/ρ = 1.45, ε = 0.15 and ρ = 0.5. t = 1
    is dashed.” t₀ = 2.497: up to it the stretch of full recall grows, beyond it it shrinks.
    """
    return three_temperatures(PR_CURVE_1)


def pr_curve_2() -> Figure:
    """app:fig:PRcurve2. The paper: “PR-Curve for different temperatures t with V = 100, K = 10, a/ρ = 1.05, ε = 0.05 and ρ = 0.5.”
    t₀ = 0.761: already t = 1 is too hot.
    """
    return three_temperatures(PR_CURVE_2)


def three_temperatures(case: ArtificialCase) -> Figure:
    """One panel per temperature."""
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


def ineq() -> Figure:
    """fig:ineq. The paper: “Even for small values of V/K, when b is low and ρ is high, ε₀ remains relatively large, often above 0.1.”
    Corrected: ε₀ falls with lower b and with higher ρ (V/K = 2, b = .05, ρ = .9: .0046). Below ε₀, recall peaks at a finite temperature.
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
    """fig:methods. The paper: “Illustration of trade-offs targeted by each method over the model's PR curve (black).” The bands show
    where c-Div weights λ more (vermilion) or less (blue) than NLL: by α λ^(1−α).
    """
    fall = np.exp(-np.arange(400) / 130)
    curve = pr_curve(np.full(400, 1 / 400), 0.88 * fall / fall.sum())
    figure, (ax,) = panels(width=4.8, height=4.2)
    lam = np.tan(np.linspace(0.02, np.pi / 2 - 0.02, 400))
    along = np.column_stack([curve.recall(lam), curve.precision(lam)])
    for alpha, shift, text, where in (
        (2.0, 0.028, "c-Div 2", (0.82, 0.72)),
        (0.5, -0.028, "GOLD = c-Div ½", (0.37, 0.57)),
    ):
        _band(ax, along + shift, np.log(alpha) + (1 - alpha) * np.log(lam))
        ax.annotate(text, where, fontsize=8, ha="center", va="center")
    ax.plot(*along.T, color="#1a1a1f", linewidth=2)
    up, right = float(curve.at_recall(0.55).precision), float(curve.at_precision(0.55).recall)
    # Name, where on the curve, direction and length of the push, place of the name beyond its end.
    for text, start, push, beyond in (
        ("Trunc", (0.55, up), (0, 0.16), (0, 0.02)),
        ("TruncR", (right, 0.55), (0.16, 0), (0.07, -0.012)),
        ("λ-PR", (float(curve.recall(0.45)), float(curve.precision(0.45))), _towards(0.45, 0.16), (0.03, 0.03)),
    ):
        end = start[0] + push[0], start[1] + push[1]
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": PALETTE[2], "linewidth": 2, "shrinkA": 0})
        ax.annotate(text, (end[0] + beyond[0], end[1] + beyond[1]), fontsize=8, color="#00684b", ha="center")
    unit_square(ax)
    ax.set(xlim=(-0.02, 1.12), ylim=(-0.02, 1.06))
    return figure


def _towards(lam: float, length: float) -> tuple[float, float]:
    """A step of this length along the ray precision = lam * recall."""
    return length / float(np.hypot(1, lam)), length * lam / float(np.hypot(1, lam))


def _band(ax: Axes, points: np.ndarray, emphasis: np.ndarray) -> None:
    """A broad line whose colour shows the emphasis."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    colours = LinearSegmentedColormap.from_list("emphasis", [PALETTE[0], "#e8e8ee", PALETTE[1]])
    pieces = list(np.stack([points[:-1], points[1:]], axis=1))
    band = LineCollection(pieces, cmap=colours, norm=Normalize(-2, 2), linewidth=5, capstyle="butt")
    band.set_array(emphasis[:-1])
    ax.add_collection(band)


def _curve(ax: Axes, curve: PRCurve, name: str, index: int) -> None:
    points = curve.points()
    style = plain(index) if index != 6 else {"color": PALETTE[6], "linestyle": "--"}
    ax.plot(points.recall, points.precision, label=name, **style)
