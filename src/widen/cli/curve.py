"""The exact PR curve of two distributions, or of the paper's artificial case at several temperatures.

  widen curve                                            the artificial case of the paper's figure, t = .2 ... 5
  widen curve --vocab 100 --support 50 --temperatures 0.1 1 10
  widen curve --p reference.json --q model.json          two JSON lists of probabilities over the same atoms
  widen curve --json curves.json                         the numbers, at many more lambdas than the table has

Precision at lambda is sum min(lambda P, Q); recall is that over lambda. A low lambda asks "is P covered?", a high one "does Q stay
within P?". Prints a table and, with --html, leaves a page with the curves.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from widen.disk.atomic import write_json

if TYPE_CHECKING:
    from widen.report.page import Page
    from widen.theory import PRCurve

LAMBDAS = (0.1, 0.5, 1.0, 2.0, np.inf)
CASE = {"vocab": 100, "support": 20, "rho": 0.5, "a": 0.725, "epsilon": 0.15}
"""The artificial case of the paper's main figure; rho is not printed there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    case = parser.add_argument_group("the artificial case (defaults: the paper's main figure, rho assumed 1/2)")
    case.add_argument(
        "--vocab", type=int, default=CASE["vocab"], metavar="V", help="size of the vocabulary (default 100)"
    )
    case.add_argument(
        "--support", type=int, default=CASE["support"], metavar="K", help="acceptable tokens (default 20)"
    )
    case.add_argument(
        "--rho", type=float, default=CASE["rho"], help="share of acceptable tokens that are over-represented"
    )
    case.add_argument("--a", type=float, default=CASE["a"], help="mass on the over-represented ones (default .725)")
    case.add_argument(
        "--epsilon", type=float, default=CASE["epsilon"], help="mass on unacceptable tokens (default .15)"
    )
    case.add_argument("--temperatures", type=float, nargs="+", default=[0.2, 0.5, 1.0, 1.5, 2.0, 5.0], metavar="T")
    two = parser.add_argument_group("two distributions")
    two.add_argument("--p", type=Path, metavar="FILE", help="JSON list: reference probabilities")
    two.add_argument(
        "--q",
        type=Path,
        metavar="FILE",
        help="JSON list: model probabilities, same atoms in the same order; what is missing to 1 lies outside the list",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write precision and recall along the curves")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with the curves")


def main(options: argparse.Namespace) -> int:
    """Compute, print, draw."""
    from widen.theory import ArtificialCase, pr_curve

    if (options.p is None) != (options.q is None):
        raise ValueError("--p and --q go together: the reference and the model")
    console = Console()
    if options.p is not None:
        if given := [name for name, default in CASE.items() if getattr(options, name) != default]:
            raise ValueError(f"--{given[0]} is of the artificial case; --p and --q are two distributions of your own")
        p, q = _read(options.p), _read(options.q)
        curves = {"Q on P": pr_curve(p, q)}
        title, notes = f"{options.q.name} against {options.p.name}", []
        if q.sum() < 1 - 1e-9:
            notes = [
                f"{options.q.name} sums to {q.sum():.6g}: the rest counts as mass outside the list, where P has none."
            ]
    else:
        case = ArtificialCase(
            vocab=options.vocab, support=options.support, rho=options.rho, a=options.a, epsilon=options.epsilon
        )
        curves = {f"t = {t:g}": case.curve(t) for t in options.temperatures}
        title = f"Artificial case: V = {case.vocab}, K = {case.support}, rho = {case.rho:g}, a = {case.a:g}, epsilon = {case.epsilon:g}"
        notes = [
            f"Full coverage (recall 1) reaches furthest at t_0 = {case.t_0:.4g}; beyond it, heat loses recall.",
            f"epsilon_0 = {case.epsilon_0:.4g}: recall has such a peak because epsilon = {case.epsilon:g} lies below it."
            if case.epsilon < case.epsilon_0
            else f"epsilon_0 = {case.epsilon_0:.4g}: epsilon lies above it, so the plateau only grows with temperature.",
        ]
    console.print(_table(title, curves))
    for note in notes:
        console.print(note)
    if options.json is not None:
        _write(options.json, curves)
        console.print(f"numbers: {options.json}")
    if options.html is not None:
        _page(title, notes, curves).write(options.html)
        console.print(f"page: {options.html}")
    return 0


def _read(path: Path) -> np.ndarray:
    try:
        values = json.loads(path.read_text())
        return np.asarray(values, dtype=np.float64)
    except (json.JSONDecodeError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a JSON list of probabilities ({error})") from None


def _table(title: str, curves: dict[str, PRCurve]) -> Table:
    # 80 columns hold it: what is cut off a number cannot be read.
    table = Table(
        title=title,
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
        caption="the number above a column is its lambda",
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for lam in LAMBDAS:
        table.add_column(f"prec.\n{lam:g}", justify="right", no_wrap=True)
    for lam in LAMBDAS[:-1]:
        table.add_column(f"rec.\n{lam:g}", justify="right", no_wrap=True)
    table.add_column("area", justify="right", no_wrap=True)
    for name, curve in curves.items():
        cells = [f"{x:.3f}" for x in curve.precision(np.array(LAMBDAS))]
        cells += [f"{x:.3f}" for x in curve.recall(np.array(LAMBDAS[:-1]))]
        table.add_row(name, *cells, f"{curve.auc:.3f}")
    return table


def _write(path: Path, curves: dict[str, PRCurve]) -> None:
    """The points that a drawing would take; JSON has no infinity, so the last lambda is a string."""
    content = {
        name: {
            "lambda": [*points.lam[:-1].tolist(), "inf"],
            "precision": points.precision.tolist(),
            "recall": points.recall.tolist(),
            "area": float(curve.auc),
        }
        for name, curve in curves.items()
        for points in [curve.points()]
    }
    write_json(path, content)


def _page(title: str, notes: list[str], curves: dict[str, PRCurve]) -> Page:
    from widen.report import pr_curve_plots as draw
    from widen.report.page import Figure, Page, Section
    from widen.report.page import Table as PageTable

    headers = ["curve", *(f"precision at lambda {lam:g}" for lam in LAMBDAS), "recall at lambda 1", "area"]
    rows: list[list[str | float | int | None]] = [
        [name, *map(float, curve.precision(np.array(LAMBDAS))), float(curve.recall(1.0)), float(curve.auc)]
        for name, curve in curves.items()
    ]
    figure = Figure(
        figure=draw.pr_curves(curves, title=title),
        caption="Each line is one distribution; lambda runs from 0 (bottom right) to infinity (top left).",
    )
    table = PageTable(headers=headers, rows=rows, caption="Exact, from the closed form or the sorted ratios.")
    section = Section(title="PR curves", text=notes, parts=[figure, table])
    lead = "How much of P a model covers, and how much of the model lies within P."
    if len(curves) > 1:
        lead = "Lowering the temperature buys precision; raising it often loses recall as well."
    return Page(title=title, lead=lead, sections=[section], made_by="made by `widen curve`")
