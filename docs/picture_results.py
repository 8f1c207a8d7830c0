"""The pictures of results: precision against recall of what we measured, from the kept tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from picture_style import BIG, BLUE, GREEN, GREY, INK, ORANGE, PINK, legend, result_rows

from widen.sample import Decoding
from widen_recipes.study.methods import few_decodings

FAMILY_LOOKS = {
    "temperature alone": (ORANGE, "-"),
    "min-p, then heat": (GREEN, "-"),
    "heat, then min-p": (BLUE, "--"),
    "top-p, then heat": (PINK, "-."),
}
"""Colour and dash of each family of decodings."""


def best_decodings(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points (recall, precision) from the most precise on, as far as each has more recall than all before it."""
    edge: list[tuple[float, float]] = []
    for recall, precision in sorted(points, key=lambda point: (-point[1], point[0])):
        if not edge or recall > edge[-1][0]:
            edge.append((recall, precision))
    return edge


def points_of(file: str, name: str) -> dict[str, tuple[float, float]]:
    """Recall and precision of one name in a kept table, by decoding; means over its rows: the seeds, or the sets of problems."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in result_rows(file, name):
        found.setdefault(row["decoding"], []).append((float(row["recall"]), float(row["precision"])))
    return {spec: tuple(np.mean(rows, axis=0)) for spec, rows in found.items()}


def integer_task(name: str) -> dict[str, tuple[float, float]]:
    """The points of one training of `mulmod:rivals`."""
    return points_of("mulmod_rivals.csv", name)


def in_percent(ax: Axes, *, recall: list[float], precision: list[float]) -> None:
    """Name both axes in plain words, with these ticks."""
    ax.set(xlabel="share of the right answers found", ylabel="share of answers that are right")
    ax.set_xticks(recall, [f"{at:.0%}".replace("%", " %") for at in recall])
    ax.set_yticks(precision, [f"{at:.0%}".replace("%", " %") for at in precision])


def levers(ax: Axes) -> None:
    """Data, decoding and loss on the integer task: the best decodings of five trainings, and NLL at temperature alone."""
    alone = [point for text, point in integer_task("NLL, norm 1").items() if "," not in text]
    lines = {
        "NLL, temperature alone": (best_decodings(alone), GREY, ":"),
        "NLL": (best_decodings([*integer_task("NLL, norm 1").values()]), ORANGE, "-"),
        "GEM": (best_decodings([*integer_task("gem, norm 1").values()]), PINK, "--"),
        "c-Div 2": (best_decodings([*integer_task("c-Div 2, norm 1").values()]), BLUE, "-."),
        "EAFT": (best_decodings([*integer_task("eaft, norm 1").values()]), GREEN, "-"),
        "NLL, each sequence once": (best_decodings([*integer_task("NLL, each once, norm 1").values()]), INK, "-"),
    }
    for name, (edge, colour, dash) in lines.items():
        thick = 3.6 if colour == INK else 2.4
        ax.plot(*zip(*edge, strict=True), color=colour, linestyle=dash, linewidth=thick, label=name)
    ax.set(xlim=(0.55, 0.75), ylim=(0.89, 1.0))
    in_percent(ax, recall=[0.55, 0.6, 0.65, 0.7, 0.75], precision=[0.9, 0.95, 0.98, 1])
    ax.figure.legend(loc="outside upper left", ncols=3, fontsize=12, columnspacing=1.2)


def real_model(ax: Axes, file: str) -> None:
    """A real model: temperature alone, and three ways to cut off tokens."""
    means = {Decoding.parse(spec): point for spec, point in points_of(file, "all decodings").items()}
    families = {
        "temperature alone": lambda one: one.temperature_alone,
        "min-p, then heat": lambda one: one.min_p and one.order == "temperature_last",
        "heat, then min-p": lambda one: one.min_p and one.order != "temperature_last",
        "top-p, then heat": lambda one: one.top_p,
    }
    for name, belongs in families.items():
        colour, dash = FAMILY_LOOKS[name]
        mine = sorted((at for one, at in means.items() if belongs(one)), key=lambda at: -at[1])
        if name != "temperature alone":
            mine = best_decodings(mine)
        ax.plot(*zip(*mine, strict=True), color=colour, linestyle=dash, marker="o", markersize=5, label=name)
    ax.figure.legend(loc="outside upper left", ncols=2, fontsize=12, columnspacing=1.2)


def coverageqa(ax: Axes) -> None:
    """A real model as it is, on CoverageQA; the means of both folds."""
    real_model(ax, "study_coverageqa_qwen_zero_shot.csv")
    ax.set(xlim=(0, 0.42), ylim=(0, 0.7))
    in_percent(ax, recall=[0.1, 0.2, 0.3, 0.4], precision=[0, 0.2, 0.4, 0.6])


def countdown(ax: Axes) -> None:
    """A real model, trained with NLL on Countdown."""
    real_model(ax, "study_countdown_small.csv")
    ax.set(xlim=(0.25, 0.61), ylim=(0.1, 0.37))
    in_percent(ax, recall=[0.3, 0.4, 0.5, 0.6], precision=[0.1, 0.2, 0.3])


def methods(ax: Axes, file: str, looks: dict[str, tuple[str, str]]) -> None:
    """The best decodings of each method."""
    for name, (colour, dash) in looks.items():
        edge = best_decodings([*points_of(file, name).values()])
        ax.plot(*zip(*edge, strict=True), color=colour, linestyle=dash, marker="o", markersize=4, label=name)
    ax.figure.legend(loc="outside upper left", ncols=3 if len(looks) > 4 else 2, fontsize=12, columnspacing=1.2)


def growing(ax: Axes) -> None:
    """One start on Countdown, then as many steps of each method."""
    looks = {
        "NLL": (ORANGE, "-"),
        "grown, plain": (GREEN, "-"),
        "NLL on all answers": (INK, ":"),
        "c-Div 1.4": (PINK, "-."),
        "TruncR 0.1": (BLUE, "--"),
    }
    methods(ax, "study_countdown_small_grow.csv", looks)
    ax.set(xlim=(0.19, 0.64), ylim=(0.15, 0.48))
    in_percent(ax, recall=[0.2, 0.3, 0.4, 0.5, 0.6], precision=[0.2, 0.3, 0.4])


def growing_e2e(ax: Axes) -> None:
    """One start on E2E NLG, then as many steps of each method."""
    looks = {"NLL": (ORANGE, "-"), "grown, plain": (GREEN, "-"), "grown, known prompts": (BLUE, "--")}
    methods(ax, "study_e2e_grow.csv", looks)
    ax.set(xlim=(0.42, 0.98), ylim=(0.1, 0.9))
    in_percent(ax, recall=[0.5, 0.6, 0.7, 0.8, 0.9], precision=[0.2, 0.4, 0.6, 0.8])
    ax.set(xlabel="share of the human texts in reach of the samples")


def growing_coverageqa(ax: Axes) -> None:
    """One start for each fold of CoverageQA, then as many steps of each method; means of both folds."""
    looks = {
        "NLL": (ORANGE, "-"),
        "NLL, lowest held-out NLL": (PINK, "-."),
        "grown, plain": (GREEN, "-"),
        "NLL on all answers": (INK, ":"),
    }
    methods(ax, "study_coverageqa_small_grow.csv", looks)
    ax.set(xlim=(0.04, 0.6), ylim=(0.33, 0.69))
    in_percent(ax, recall=[0.1, 0.2, 0.3, 0.4, 0.5], precision=[0.4, 0.5, 0.6])


def losses(ax: Axes) -> None:
    """Losses on Countdown, each with the best of all decodings."""
    looks = {
        "NLL": (ORANGE, "-"),
        "GEM 0.7": (BLUE, "--"),
        "c-Div 1.4": (PINK, "-."),
        "TruncR 0.1": (GREEN, "--"),
        "EAFT": (INK, ":"),
        "smooth 0.05": (GREY, "-"),
    }
    methods(ax, "study_countdown_small_losses.csv", looks)
    ax.set(xlim=(0.2, 0.64), ylim=(0.18, 0.38))
    in_percent(ax, recall=[0.2, 0.3, 0.4, 0.5, 0.6], precision=[0.2, 0.25, 0.3, 0.35])


def losses_coverageqa(ax: Axes) -> None:
    """Losses on CoverageQA, each with the best of all decodings, and NLL without the low cut-offs; means of both folds."""
    file = "study_coverageqa_small_losses.csv"
    few = [at for spec, at in points_of(file, "NLL").items() if spec in few_decodings()]
    ax.plot(*zip(*best_decodings(few), strict=True), color=INK, linestyle=":", linewidth=3, label="NLL, 24 decodings")
    methods(ax, file, {"NLL": (ORANGE, "-"), "GEM 0.7": (BLUE, "--"), "c-Div 1.4": (PINK, "-.")})
    ax.set(xlim=(0.04, 0.49), ylim=(0.33, 0.7))
    in_percent(ax, recall=[0.1, 0.2, 0.3, 0.4], precision=[0.4, 0.5, 0.6, 0.7])


def mathqa(ax: Axes) -> None:
    """Three losses on MathQA-Python, each at three temperatures, with 95 % intervals over seeds."""
    looks = {"NLL": (ORANGE, "-"), "TruncR 0.1": (BLUE, "--"), "c-Div 1.4": (GREEN, "-.")}
    for name, (colour, dash) in looks.items():
        rows = result_rows("mathqa_gain.csv", name)
        one, many, wide, high = (
            [float(row[key]) for row in rows]
            for key in ("pass@1", "pass@100", "pass@100_half_width", "pass@1_half_width")
        )
        ax.errorbar(many, one, xerr=wide, yerr=high, color=colour, linestyle=dash, marker="o", elinewidth=1, label=name)
    ax.set(xlim=(0.5, 0.9), ylim=(0, 0.45))
    in_percent(ax, recall=[0.5, 0.6, 0.7, 0.8, 0.9], precision=[0, 0.1, 0.2, 0.3, 0.4])
    ax.set(xlabel="problems solved in 100 tries (pass@100)", ylabel="right programs (pass@1)")
    legend(ax)


def humaneval(ax: Axes) -> None:
    """A code model as it is: four families of decodings."""
    for family, (colour, dash) in FAMILY_LOOKS.items():
        rows = result_rows("study_code_small.csv", f"HumanEval, {family.removesuffix(' alone')}")
        points = sorted(((float(row["pass@20"]), float(row["pass@1"])) for row in rows), key=lambda at: -at[1])
        ax.plot(*zip(*points, strict=True), color=colour, linestyle=dash, marker="o", markersize=6, label=family)
    ax.set(xlim=(0.86, 0.98), ylim=(0.45, 0.77))
    in_percent(ax, recall=[0.88, 0.9, 0.92, 0.94, 0.96], precision=[0.5, 0.6, 0.7])
    ax.set(xlabel="problems solved in 20 tries (pass@20)", ylabel="right programs (pass@1)")
    ax.figure.legend(loc="outside upper left", ncols=2, fontsize=12, columnspacing=1.2)


def frontier(ax: Axes) -> None:
    """NLL on the integer task: temperature alone, and truncate-then-heat, with the gain at 90 % precision."""
    name, level = "NLL, norm 1", 0.9
    points = integer_task(name)
    hot = [point for text, point in points.items() if "," not in text]
    cut = [point for text, point in points.items() if text.endswith("temperature_last") and "min_p" in text]
    ax.plot(*zip(*hot, strict=True), color=ORANGE, marker="o", markersize=5)
    ax.plot(*zip(*best_decodings(cut), strict=True), color=GREEN, marker="o", markersize=5)
    best = {
        row["family"]: float(row["recall"])
        for row in result_rows("mulmod_rivals_best.csv", name)
        if float(row["level"]) == level
    }
    start, end = best["temperature alone"], best["any decoding"]
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 2.5, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (end, level), (start, level), arrowprops=arrow)
    gain = f"more different right answers\nat the same precision: {100 * start:.1f} % → {100 * end:.1f} %"
    ax.text(0.5, level - 0.016, gain, fontsize=BIG, va="top")
    ax.text(0.535, 0.965, "temperature alone", color=ORANGE, fontsize=BIG)
    ax.text(0.69, 0.985, "truncate, then heat", color=GREEN, fontsize=BIG, ha="center")
    ax.set(xlim=(0.49, 0.76), ylim=(0.81, 1.005))
    in_percent(ax, recall=[0.5, 0.6, 0.7], precision=[0.85, 0.9, 0.95, 1])


RESULT_PICTURES: dict[str, Callable[[Axes], None]] = {
    "levers": levers,
    "coverageqa": coverageqa,
    "countdown": countdown,
    "growing": growing,
    "growing_e2e": growing_e2e,
    "growing_coverageqa": growing_coverageqa,
    "losses": losses,
    "losses_coverageqa": losses_coverageqa,
    "mathqa": mathqa,
    "humaneval": humaneval,
    "frontier": frontier,
}
