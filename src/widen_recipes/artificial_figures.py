"""The exact figures of the artificial case: ``fig:examplePQ``, ``app:fig:PRcurve1``, ``app:fig:PRcurve2``, ``fig:ineq``.

widen curve --support 50 --temperatures 0.1 1 10      the curves of app:fig:PRcurve1
widen figures                                         all of them, drawn
"""

from __future__ import annotations

from itertools import product

from widen.theory import ArtificialCase

EXAMPLE = ArtificialCase(
    vocab=100,  # "V=100"
    support=20,  # "K=20"
    rho=0.5,  # the caption omits rho; with 1/2, a/rho = 1.45 gives a = .725
    a=0.725,  # "a/rho=1.45": a density ratio to the uniform law, not a mass
    epsilon=0.15,  # "epsilon=0.15"
)
"""Fig. ``fig:examplePQ``: the two conditionals of Q~."""

PR_CURVE_1 = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)
"""Fig. ``app:fig:PRcurve1``: "V=100, K=50, a/rho=1.45, epsilon=0.15 and rho=0.5"."""

PR_CURVE_2 = ArtificialCase(vocab=100, support=10, rho=0.5, a=0.525, epsilon=0.05)
"""Fig. ``app:fig:PRcurve2``: "V=100, K=10, a/rho=1.05, epsilon=0.05 and rho=0.5"."""

TEMPERATURES = (0.1, 1.0, 10.0)
"""The three panels of both figures."""

EPSILON_0_RATIOS = (2, 10)
"""V/K of the two panels of Fig. ``fig:ineq``."""


SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Values of rho, and of b / rho, at which `table` lists epsilon_0."""
COLUMNS = "figure,vocab,support,rho,a,epsilon,temperature,lambda_min,lambda_max,precision_inf,precision_1,recall_1,auc,t_0,epsilon_0"


def epsilon_0(ratio: int, *, b: float, rho: float) -> float:
    """epsilon_0 for V/K = ``ratio``, one point of Fig. ``fig:ineq``; ``b`` is the mass of the under-represented tokens, 0 < b < rho.

    Paper note: the caption says that epsilon_0 stays large when b is low and rho high; the opposite holds.

    >>> round(epsilon_0(2, b=0.1, rho=0.9), 3), round(epsilon_0(10, b=0.05, rho=0.5), 2)
    (0.016, 0.64)
    """
    support = 1000  # any K with rho K whole gives the same value
    mass = 1 - b * (1 - rho) / rho
    return ArtificialCase(vocab=ratio * support, support=support, rho=rho, a=mass, epsilon=0.1).epsilon_0


def table() -> str:
    """Every number of these figures as CSV: both curves at three temperatures, and epsilon_0 over its panels."""
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
