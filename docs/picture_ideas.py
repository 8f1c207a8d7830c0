"""One picture per idea of the pages under docs/why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from picture_style import BIG, BLUE, DASHES, GREEN, GREY, INK, ORANGE, PAPER, PINK

from widen.theory import ArtificialCase, TruncatedCase, expected_unique_recall, optima, tempered

MAIN = {"vocab": 100, "support": 20, "rho": 0.5, "a": 0.725, "epsilon": 0.15}
"""The artificial case of the paper's main figure."""
SEPARABLE = MAIN | {"support": 50}
"""The same case with more right tokens: a threshold separates them from the wrong ones."""


def precision_and_recall(figure: Figure) -> None:
    """Three models as bars over eight right answers and four wrong ones."""
    right, wrong = 8, 4
    models = {
        "repeats itself": [0.60, 0.34, 0.03, 0.01, 0, 0, 0, 0, 0.02, 0, 0, 0],
        "makes mistakes": [0.09, 0.08, 0.08, 0.07, 0.07, 0.07, 0.07, 0.07, 0.10, 0.10, 0.10, 0.10],
        "covers what is right": [0.17, 0.14, 0.13, 0.12, 0.11, 0.10, 0.10, 0.10, 0.02, 0.01, 0, 0],
    }
    for ax, (title, q) in zip(figure.subplots(1, 3, sharey=True), models.items(), strict=True):
        precision = sum(q[:right])
        recall = expected_unique_recall(np.log(np.maximum(q[:right], 1e-300)), 16)
        ax.bar(range(right), q[:right], color=BLUE)
        ax.bar(range(right, right + wrong), q[right:], color=ORANGE)
        ax.set_title(title, fontsize=BIG)
        ax.set_xticks([3.5, 9.5], ["right", "wrong"])
        ax.tick_params(bottom=False)
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.text(
            11.6,
            0.52,
            f"precision {100 * precision:.0f} %\nrecall {100 * recall:.0f} %",
            ha="right",
            va="top",
            fontsize=BIG,
        )
    figure.axes[0].set_ylabel("how often")


def heat(ax: Axes) -> None:
    """Where the probability of an answer goes as the temperature rises."""
    case = ArtificialCase(**MAIN)
    t = np.linspace(0.3, 5, 180)
    laws = [case.q(float(one)) for one in t]
    over = case.support * case.rho
    common = np.array([law.l1[: round(over)].sum() * law.l2[: case.support].sum() for law in laws])
    kept = np.array([law.l2[: case.support].sum() for law in laws])
    rare = kept - common
    ax.stackplot(t, rare, common, 1 - kept, colors=[GREEN, BLUE, ORANGE], linewidth=0)
    peak = t[rare.argmax()]
    ax.axvline(1, color=INK, linewidth=1, linestyle=":")
    ax.text(2.9, 0.62, "wrong answers", ha="center", fontsize=BIG, color=PAPER, weight="bold")
    ax.text(0.36, 0.42, "common right answers", fontsize=BIG, color=PAPER, weight="bold")
    ax.text(1.75, 0.07, "rare right answers", ha="center", fontsize=BIG, color=PAPER, weight="bold")
    ax.annotate(
        f"largest at t = {peak:.1f}", (peak, rare.max()), (2.5, 0.26), color=PAPER, fontsize=BIG,
        arrowprops={"arrowstyle": "->", "color": PAPER, "linewidth": 1.5},
    )  # fmt: skip
    ax.set(xlim=(t[0], t[-1]), ylim=(0, 1), xlabel="temperature", ylabel="share of all answers")
    ax.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])


def separation(figure: Figure) -> None:
    """Tokens on a line by q / max q: a threshold fits between wrong and rare right ones, or it does not."""
    cases = {
        "A threshold separates: decoding is enough": ArtificialCase(**SEPARABLE),
        "No threshold separates: the model must change": ArtificialCase(**SEPARABLE | {"epsilon": 0.35}),
    }
    for ax, (title, case) in zip(figure.subplots(2, 1, sharex=True), cases.items(), strict=True):
        rare, noise = case.rare_ratio, case.noise_ratio
        ax.axhline(0, color=GREY, linewidth=1)
        for at, colour, text in (
            (noise, ORANGE, "wrong"),
            (rare, GREEN, "rare right"),
            (1.0, BLUE, "common right"),
        ):
            ax.plot(at, 0, "o", color=colour, markersize=15, clip_on=False)
            ax.text(at, 0.38, text, ha="center", fontsize=BIG, color=colour)
        if noise < rare:
            middle = (noise * rare) ** 0.5
            ax.plot([middle, middle], [-0.55, 0.75], color=INK, linewidth=2, linestyle="--")
            ax.text(middle, -0.85, "min-p cuts here", ha="center", fontsize=BIG)
        ax.set_title(title, fontsize=BIG, loc="left", pad=8)
        ax.set(ylim=(-0.95, 0.9), xlim=(0.1, 1.25), xscale="log", yticks=[])
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.tick_params(bottom=False, labelbottom=False)
    figure.axes[1].set_xlabel("probability of a token, relative to the most probable one  →")


def order(ax: Axes) -> None:
    """Recall against temperature: alone, with min-p after the heat, with min-p before it."""
    case = ArtificialCase(**SEPARABLE)
    t = np.geomspace(0.5, 20, 90)
    cut = ("min_p", 0.3)
    steps: dict[str, Callable[[float], tuple[tuple[str, float], ...]]] = {
        "truncate, then heat": lambda one: (cut, ("temperature", one)),
        "heat, then truncate": lambda one: (("temperature", one), cut),
        "heat alone": lambda one: (("temperature", one),),
    }
    ends = {"truncate, then heat": (5.2, 0.885), "heat, then truncate": (1.6, 0.79), "heat alone": (3.4, 0.65)}
    for (name, make), colour, dash in zip(steps.items(), (GREEN, PINK, ORANGE), DASHES, strict=False):
        recall = [float(TruncatedCase(case=case, steps=make(float(one))).recall(1.0)) for one in t]
        ax.plot(t, recall, color=colour, linestyle=dash)
        ax.text(*ends[name], name, color=colour, fontsize=BIG)
    ax.set(xscale="log", xlabel="temperature", ylabel="recall (λ = 1)", ylim=(0.48, 1.03), xlim=(0.5, 20))
    ax.set_xticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])


def converge(figure: Figure) -> None:
    """What training ends at: losses for precision sharpen the distribution of the data, losses for recall flatten it."""
    p = np.arange(1, 9.0) ** -1.0
    p /= p.sum()
    x = np.arange(1, 9)
    sides = {
        "for precision: sharper": {
            "GOLD": (optima.gold(p), BLUE),
            "Trunc 0.25": (optima.trunc(p, drop=0.25), PINK),
        },
        "for recall: flatter": {
            "c-Div 2": (optima.cdiv(p, alpha=2.0), GREEN),
            "TruncR 0.5": (optima.truncr(p, drop=0.5), ORANGE),
        },
    }
    for ax, (title, laws) in zip(figure.subplots(1, 2, sharey=True), sides.items(), strict=True):
        ax.bar(x, p, color=GREY, alpha=0.35, label="the data, and NLL")
        for (name, (law, colour)), marker in zip(laws.items(), "os", strict=True):
            ax.plot(x, law, marker=marker, markersize=7, color=colour, label=name)
        ax.set_title(title, fontsize=BIG)
        ax.set_xticks([1, 8], ["common", "rare"])
        ax.tick_params(bottom=False)
        ax.set_yticks([0, 0.2, 0.4, 0.6], ["0", "0.2", "0.4", "0.6"])
        ax.legend(fontsize=12)
    figure.axes[0].set_ylabel("probability")


def matched(ax: Axes) -> None:
    """c-Div 2 at t = 1 and NLL at its matched temperature t = 2 give the same distribution."""
    p = np.arange(1, 9.0) ** -1.0
    p /= p.sum()
    x = np.arange(1, 9)
    ax.bar(x, p, color=GREY, alpha=0.35)
    ax.plot(x, optima.cdiv(p, alpha=2.0), "o", markersize=13, markerfacecolor="none", markeredgewidth=2.4, color=GREEN)
    ax.plot(x, tempered(p, 2.0), ".", markersize=10, color=ORANGE)
    ax.text(1.6, 0.345, "the data; NLL at t = 1", color=GREY, fontsize=BIG)
    ax.text(3.0, 0.235, "c-Div 2 at t = 1 (circles)", color=GREEN, fontsize=BIG)
    ax.text(3.0, 0.19, "NLL at t = 2 (dots)", color=ORANGE, fontsize=BIG)
    ax.set_xticks([1, 8], ["common", "rare"])
    ax.tick_params(bottom=False)
    ax.set_ylabel("probability")


def temperature(ax: Axes) -> None:
    """Precision and recall of the artificial case against temperature."""
    case = ArtificialCase(**MAIN)
    t = np.linspace(0.1, 4, 200)
    ax.plot(t, [case.precision(10.0, s) for s in t], color=BLUE, linestyle=DASHES[0])
    ax.plot(t, [case.recall(0.7, s) for s in t], color=ORANGE, linestyle=DASHES[1])
    ax.text(0.12, 1.04, "precision (λ = 10)", color=BLUE, fontsize=BIG)
    ax.text(2.3, 0.76, "recall (λ = 0.7)", color=ORANGE, fontsize=BIG)
    ax.axvline(1, color=GREY, linewidth=0.8)
    ax.set(xlabel="temperature", ylim=(0, 1.12), xlim=(0.1, 4))


AXES_PICTURES: dict[str, Callable[[Axes], None]] = {
    "heat": heat,
    "order": order,
    "matched": matched,
    "temperature": temperature,
}
FIGURE_PICTURES: dict[str, Callable[[Figure], None]] = {
    "precision_and_recall": precision_and_recall,
    "separation": separation,
    "converge": converge,
}
