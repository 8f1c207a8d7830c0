r"""What other people's losses converge to on one context.

Each loss is given by its gradient in the logits z for the target y, a weight times a residual. GEM, and TOFU at gamma =
0, end at a power of P, as decoding at a temperature does. EAFT ends at P. The others end at laws that no temperature gives.

Shapes: V tokens. Every function takes probabilities ``p`` (V,) and returns the optimum (V,).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import wrightomega

from ..checks import Array, as_masses, check
from ..steps import tempered


def gem(p: ArrayLike, *, beta: float) -> Array:
    r"""GEM, linear form: Q ∝ P^beta, the law of NLL at temperature 1/beta.

    .. math::  \nabla_z = \mathrm{softmax}(z/\beta) - \mathrm{onehot}(y)

    The same law as :func:`cdiv` at alpha = 1/beta. beta = 1 is NLL; beta -> 0 tends to the uniform law on the support.

    Examples:
      >>> gem([0.64, 0.36], beta=0.5).round(4).tolist()
      [0.5714, 0.4286]
    """
    mass = as_masses(p, "p")
    check(0 < beta < math.inf, "beta", beta, "in (0, inf)")
    return tempered(mass, 1.0 / beta)


def tofu(p: ArrayLike, *, gamma: float, beta: float) -> Array:
    r"""TOFU: a focal weight times GEM's residual; :math:`q^{1/\beta} \propto P\, w(q)`.

    .. math::  \nabla_z = w(q_y) (\mathrm{softmax}(z/\beta) - \mathrm{onehot}(y)), \qquad
               w(q) = (1-q)^\gamma - \gamma q (1-q)^{\gamma-1} \log q

    gamma = 0 is :func:`gem`, beta = 1 is :func:`focal`. Above beta = 1 the solution need not be unique; it is refused.
    """
    mass = as_masses(p, "p")
    check(0 <= gamma < math.inf, "gamma", gamma, "in [0, inf)")
    check(0 < beta <= 1, "beta", beta, "in (0, 1]")
    if gamma == 0:
        return gem(mass, beta=beta)

    def log_level(log_q: Array, log_rest: Array) -> Array:
        # w = (1-q)^(gamma-1) ((1-q) - gamma q log q): neither factor vanishes before q = 1
        return log_q / beta - (gamma - 1) * log_rest - np.log(np.exp(log_rest) - gamma * np.exp(log_q) * log_q)

    return _balanced(mass, log_level)


def focal(p: ArrayLike, *, gamma: float) -> Array:
    r"""Focal loss, -(1-q)^gamma log q: Q ∝ P w(Q).

    The weight w, that of :func:`tofu`, rises from w(0) = 1 to a peak where -(1 - gamma q) log q = 2 (1 - q), at q = .10
    for gamma = 2, and falls to 0. So focal loss flattens P above the peak and *sharpens* it below. gamma = 0 is NLL;
    gamma -> inf tends to the uniform law on the support.
    """
    return tofu(p, gamma=gamma, beta=1.0)


def dco(p: ArrayLike, *, n: float) -> Array:
    r"""DCO, -log(1 - (1-q)^n) with q = Q(x) of the whole answer: P F(Q)/Q is constant.

    .. math::  \nabla_z = F(q_y) (\mathrm{softmax}(z) - \mathrm{onehot}(y)), \qquad
               F(q) = \frac{n q (1-q)^{n-1}}{1 - (1-q)^n}

    ``p`` lists answers here, not tokens, and n ≥ 1 is the number of samples of which one should be right. F falls around
    q = 1/n, like a soft TruncR. n = 1 is NLL; n -> inf tends to the uniform law on the support.
    """
    mass = as_masses(p, "p")
    check(1 <= n < math.inf, "n", n, "in [1, inf)")
    if n == 1:
        return mass.copy()

    def log_level(log_q: Array, log_rest: Array) -> Array:
        return np.log(-np.expm1(n * log_rest)) - (n - 1) * log_rest

    return _balanced(mass, log_level)


def smooth(p: ArrayLike, *, eps: float) -> Array:
    r"""Label smoothing: Q = (1-eps) P + eps/V.

    .. math::  \nabla_z = \mathrm{softmax}(z) - (1-\epsilon) \mathrm{onehot}(y) - \epsilon/V

    Tokens off the support get eps/V each: truncation can remove them, temperature cannot. eps = 0 is NLL.
    """
    mass = as_masses(p, "p")
    check(0 <= eps <= 1, "eps", eps, "in [0, 1]")
    return np.asarray((1 - eps) * mass + eps / mass.size)


def entropy(p: ArrayLike, *, bonus: float) -> Array:
    r"""NLL minus bonus times the entropy H of Q: P = q (1 + bonus (log q + H)), flatter than P.

    .. math::  \nabla_z = \mathrm{softmax}(z) - \mathrm{onehot}(y) + \text{bonus}\; q (\log q + H)

    A token off the support gets :math:`e^{-1/\text{bonus} - H} > 0`. bonus = 0 is NLL; bonus -> inf tends to the uniform
    law on all V tokens.
    """
    mass = as_masses(p, "p")
    check(0 <= bonus < math.inf, "bonus", bonus, "in [0, inf)")
    if bonus < 1e-12:  # within 1e-10 of P; multiplier/bonus would lose all digits of P
        return mass.copy()

    def law(multiplier: float) -> Array:
        """q with q (bonus log q + multiplier) = P; at the optimum the multiplier is 1 + bonus H."""
        with np.errstate(divide="ignore"):
            # y = log q + multiplier/bonus solves y + log y = log(P/bonus) + multiplier/bonus
            y: Array = wrightomega(np.log(mass / bonus) + multiplier / bonus)
        # P/(bonus y) does not cancel where y is large; the exponential holds where P = 0
        small = np.exp(np.minimum(y, 1.0) - multiplier / bonus)
        return np.where(y > 1, mass / np.maximum(bonus * y, bonus), small)

    top = 1 + bonus * math.log(mass.size)  # H lies in [0, log V]
    slack = 1e-9 * top
    q = law(float(brentq(lambda m: float(law(m).sum()) - 1.0, 1 - slack, top + slack, xtol=1e-15)))
    return np.asarray(q / q.sum())


def eaft(p: ArrayLike) -> Array:
    r"""EAFT, and any loss whose weight depends on the context alone: P itself.

    .. math::  \nabla_z = w(H) (\mathrm{softmax}(z) - \mathrm{onehot}(y))

    The weight decides how fast a context is learned, not what is learned there.
    """
    return as_masses(p, "p").copy()


def _balanced(mass: Array, log_level: Callable[[Array, Array], Array]) -> Array:
    """The law with level(q_i) = c P_i on the support, for a level that rises from 0 to infinity as q goes from 0 to 1.

    ``log_level`` takes log q and log(1 - q). Both come from the log-odds of q, so that no digits are lost near 0 or 1.
    """
    seen = mass > 0
    values, index = np.unique(mass[seen], return_inverse=True)  # equal tokens get equal mass
    if values.size == 1:
        return np.where(seen, 1.0 / seen.sum(), 0.0)
    log_p, count = np.log(values), np.bincount(index)

    def level(odds: Array) -> Array:
        return log_level(-np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds))

    def law(log_c: float) -> Array:
        low, high = np.full(values.size, -745.0), np.full(values.size, 745.0)
        for _ in range(64):
            odds = (low + high) / 2
            above = level(odds) > log_p + log_c
            low, high = np.where(above, low, odds), np.where(above, odds, high)
        return np.asarray(np.exp(-np.logaddexp(0.0, -(low + high) / 2)))

    def excess(log_c: float) -> float:
        return float((count * law(log_c)).sum()) - 1.0

    # The most probable token gets at least 1/(number of tokens); from that c on, double the step until the sum passes 1.
    low = float(level(np.array([-math.log(count.sum() - 1)]))[0] - log_p[-1]) - 1e-9
    step = 1.0
    while excess(low + step) < 0:
        step *= 2
    q = law(float(brentq(excess, low, low + step, xtol=1e-14)))
    q = q / (count * q).sum()
    out = np.zeros(mass.size)
    out[seen] = q[index]
    return out
