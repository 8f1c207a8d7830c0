"""Every number of the exact figures ``fig:examplePQ``, ``app:fig:PRcurve1``, ``app:fig:PRcurve2`` and ``fig:ineq`` as one table.

widen curve --support 50 --temperatures 0.1 1 10      the curves of app:fig:PRcurve1
widen figures                                         all of them, drawn
python -m widen_recipes.artificial_figures            this table, results/artificial.csv
"""

from __future__ import annotations

from itertools import product

from widen.report.paper_figures.theory_figures import EXAMPLE, PR_CURVE_1, PR_CURVE_2, TEMPERATURES, epsilon_0

__all__ = ["EXAMPLE", "PR_CURVE_1", "PR_CURVE_2", "TEMPERATURES", "epsilon_0", "table"]

EPSILON_0_RATIOS = (2, 10)
"""V/K of the two panels of Fig. ``fig:ineq``."""
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Values of rho, and of b / rho, at which epsilon_0 is listed."""
COLUMNS = "figure,vocab,support,rho,a,epsilon,temperature,lambda_min,lambda_max,precision_inf,precision_1,recall_1,auc,t_0,epsilon_0"


def table() -> str:
    """The table as CSV: both curves at three temperatures, and epsilon_0 over its panels."""
    lines = [COLUMNS]
    for name, case in {"examplePQ": EXAMPLE, "PRcurve1": PR_CURVE_1, "PRcurve2": PR_CURVE_2}.items():
        for t in TEMPERATURES:
            numbers = [case.lambda_min(t), case.lambda_max(t), case.precision(float("inf"), t), case.precision(1.0, t)]
            numbers += [case.recall(1.0, t), case.curve(t).auc, case.t_0, case.epsilon_0]
            setting = f"{name},{case.vocab},{case.support},{case.rho:g},{case.a:g},{case.epsilon:g},{t:g}"
            lines.append(",".join([setting, *(f"{number:.10g}" for number in numbers)]))
    for ratio, rho, share in product(EPSILON_0_RATIOS, SHARES, SHARES):
        value = epsilon_0(ratio, b=share * rho, rho=rho)
        lines.append(f"ineq,{ratio * 1000},1000,{rho:g},{1 - share * (1 - rho):g},,,,,,,,,,{value:.10g}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
