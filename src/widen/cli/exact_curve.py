"""Print the exact precision-recall (PR) curve of two distributions.

  widen curve                                     the paper's artificial case at t = .2 ... 5
  widen curve --vocab 100 --support 50 --temperatures 0.1 1 10
  widen curve --p reference.json --q model.json   two JSON lists of probabilities
  widen curve --json curves.json                  also write the numbers, at many more lambdas

P is the reference and Q the model. Precision at lambda is sum min(lambda P, Q); recall is
precision / lambda. A low lambda asks whether Q covers P, a high lambda whether Q stays within P.
The command prints a table; --html writes a page with the curves.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from widen.disk.atomic import write_json

from .show import table_of

if TYPE_CHECKING:
    from widen.theory import PRCurve

LAMBDAS = (0.1, 0.5, 1.0, 2.0, np.inf)
CASE = {
    "vocab": (100, "size of the vocabulary"),
    "support": (20, "number of right tokens"),
    "rho": (0.5, "share of the right tokens that are too probable"),
    "a": (0.725, "probability of the tokens that are too probable, together"),
    "epsilon": (0.15, "probability of the wrong tokens, together"),
}
"""The artificial case of the paper's main figure; rho is not printed there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    case = parser.add_argument_group("the artificial case (defaults: the paper's main figure, rho assumed 1/2)")
    for name, (default, text) in CASE.items():
        case.add_argument(f"--{name}", type=type(default), default=default, help=f"{text} (default {default:g})")
    case.add_argument(
        "--temperatures",
        type=float,
        nargs="+",
        default=[0.2, 0.5, 1.0, 1.5, 2.0, 5.0],
        metavar="T",
        help="temperatures (default .2 .5 1 1.5 2 5)",
    )
    two = parser.add_argument_group("two distributions, as JSON lists of probabilities of the same outcomes")
    two.add_argument("--p", type=Path, metavar="FILE", help="probabilities of the reference")
    two.add_argument(
        "--q", type=Path, metavar="FILE", help="probabilities of the model; what is missing to 1 lies outside P"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write precision and recall along the curves")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with the curves")


def main(options: argparse.Namespace) -> int:
    """Compute, print, draw."""
    from widen.theory import ArtificialCase, pr_curve

    if (options.p is None) != (options.q is None):
        raise ValueError("--p and --q go together: the reference and the model")
    console, values = Console(), {name: getattr(options, name) for name in CASE}
    if options.p is not None:
        if given := [name for name, (default, _) in CASE.items() if values[name] != default]:
            raise ValueError(f"--{given[0]} belongs to the artificial case: leave it out with --p and --q")
        p, q = _read(options.p), _read(options.q)
        curves, notes = {"Q on P": pr_curve(p, q)}, []
        title = f"{options.q.name} against {options.p.name}"
        if q.sum() < 1 - 1e-9:
            notes = [f"{options.q.name} sums to {q.sum():.6g}: the rest counts as mass outside P."]
    else:
        case = ArtificialCase(**values)
        curves = {f"t = {t:g}": case.curve(t) for t in options.temperatures}
        title = f"Artificial case: V = {case.vocab}, K = {case.support}, rho = {case.rho:g}, a = {case.a:g}, epsilon = {case.epsilon:g}"
        level = f"epsilon_0 = {case.epsilon_0:.4g}"
        peak = f"is largest at t_0 = {case.t_0:.4g} and falls above it, because epsilon = {case.epsilon:g} is below {level}"
        if case.gap == 0 and case.epsilon == 0:
            peak = "is 1 at every temperature, because Q is P"
        elif not np.isfinite(case.t_0):
            why = f"epsilon = {case.epsilon:g} is not below {level}" if case.epsilon else "epsilon is 0"
            peak = f"rises with every temperature, because {why}"
        notes = ["Recall is 1 for every lambda up to lambda_min.", f"lambda_min {peak}."]
    lams = [("precision", lam) for lam in LAMBDAS] + [("recall", lam) for lam in LAMBDAS[:-1]]
    numbers = {
        name: [*(float(getattr(c, score)(lam)) for score, lam in lams), float(c.auc)] for name, c in curves.items()
    }
    # Kept within 80 columns, so that no number is cut.
    short = {"precision": "prec.", "recall": "rec."}
    headers = ["", *(f"{short[score]}\n{lam:g}" for score, lam in lams), "area"]
    rows = [[name, *(f"{x:.3f}" for x in values)] for name, values in numbers.items()]
    caption = "the number above a column is its lambda"
    console.print(table_of(title, headers, rows, box=None, padding=(0, 2, 0, 0), caption=caption))
    for note in notes:
        console.print(note)
    if options.json is not None:
        write_json(options.json, {name: _along(curve) for name, curve in curves.items()})
        console.print(f"numbers: {options.json}")
    if options.html is not None:
        from widen.report.page import Page
        from widen.report.parts import Figure, Section, Table
        from widen.report.pr_curve_plots import pr_curves

        caption = "Each line is one distribution; lambda runs from 0 (bottom right) to infinity (top left)."
        figure = Figure(figure=pr_curves(curves, title=title), caption=caption)
        table = Table(
            headers=["curve", *(f"{score} at lambda {lam:g}" for score, lam in lams), "area"],
            rows=[[name, *values] for name, values in numbers.items()],
            caption="Exact, from the closed form or the sorted ratios.",
        )
        lead = "How much of P a model covers, and how much of the model lies within P."
        if len(curves) > 1:
            lead = "Lowering the temperature raises precision; raising it often lowers recall as well."
        section = Section(title="PR curves", text=notes, parts=[figure, table])
        Page(title=title, lead=lead, sections=[section], made_by="made by `widen curve`").write(options.html)
        console.print(f"page: {options.html}")
    return 0


def _read(path: Path) -> np.ndarray:
    try:
        return np.asarray(json.loads(path.read_text()), dtype=np.float64)
    except (json.JSONDecodeError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a JSON list of probabilities ({error})") from None


def _along(curve: PRCurve) -> dict[str, Any]:
    """Precision and recall at many lambdas; JSON has no infinity, so the last lambda is a string."""
    points = curve.points()
    return {
        "lambda": [*points.lam[:-1].tolist(), "inf"],
        "precision": points.precision.tolist(),
        "recall": points.recall.tolist(),
        "area": float(curve.auc),
    }
