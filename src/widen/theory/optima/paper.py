r"""What the paper's losses converge to on one context (sections 5.2 to 5.4).

Shapes: V tokens. Every function takes probabilities ``p`` (V,) and returns the optimum (V,); tokens with p = 0 get 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import logsumexp

from ..checks import Array, as_masses, check
from ..steps import tempered


def nll(p: ArrayLike) -> Array:
    """NLL: P itself."""
    return as_masses(p, "p").copy()


def gold(p: ArrayLike) -> Array:
    """GOLD with weight q^(1/2) (eq. ``eq:gold``): Q ∝ P², c-Div at alpha = 1/2."""
    return cdiv(p, alpha=0.5)


def cdiv(p: ArrayLike, *, alpha: float, cap: float = math.inf) -> Array:
    r"""c-Div (theorem ``theorem:tsallis``), weight :math:`\min(q^{1-\alpha}, \text{cap})`: the escort law, Q ∝ P^(1/alpha).

    Decoded at temperature t it is NLL decoded at alpha t; t = 1/alpha gives P. alpha = 0 is uniform on the most probable
    tokens. With a cap, :math:`q_i = \min((P_i/c)^{1/\alpha}, \text{cap}\, P_i/c)`: rare tokens are treated as by NLL.

    Examples:
      >>> cdiv([0.64, 0.36], alpha=2.0).round(4).tolist()
      [0.5714, 0.4286]
    """
    mass = as_masses(p, "p")
    check(0 <= alpha < math.inf, "alpha", alpha, "in [0, inf)")
    check(cap > 0, "cap", cap, "above 0")
    if alpha == 0 or math.isinf(cap):
        return tempered(mass, alpha)
    with np.errstate(divide="ignore"):
        logp, log_cap = np.log(mass), math.log(cap)

    def log_q(log_c: float) -> Array:
        return np.minimum((logp - log_c) / alpha, log_cap + logp - log_c)

    # where the most probable token alone has q >= 1, and where one branch alone sums to 1; a little wider, for rounding
    low = float(logp.max()) + min(0.0, log_cap) - 1e-9
    high = min(alpha * float(logsumexp(logp / alpha)), log_cap) + 1e-9
    logs = log_q(float(brentq(lambda c: float(logsumexp(log_q(c))), low, high, xtol=1e-15)))
    return np.asarray(np.exp(logs - logsumexp(logs)))


def tailr(p: ArrayLike, *, gamma: float) -> Array:
    r"""TaiLr (prop. ``prop:tailr``), weight q / (gamma + (1-gamma) q): water-filling, 0 for the least probable tokens.

    On the active set A, the largest m tokens with :math:`p_m (1 - \gamma + m\gamma) > \gamma P(A)`, :math:`q_i = [p_i
    (1 - \gamma + m\gamma)/P(A) - \gamma] / (1 - \gamma)`. gamma = 0 is NLL, gamma = 1 the most probable token.
    """
    mass = as_masses(p, "p")
    check(0 <= gamma <= 1, "gamma", gamma, "in [0, 1]")
    if gamma == 1:
        return tempered(mass, 0.0)
    down = np.sort(mass)[::-1]
    count, total = np.arange(1, mass.size + 1), np.cumsum(down)
    active = np.flatnonzero(down * (1 - gamma + count * gamma) > gamma * total)
    m, kept = int(count[active[-1]]), float(total[active[-1]])
    # the printed quotient loses all digits as gamma -> 1; this is the same, with the small difference formed first
    lift = mass / kept + gamma / (1 - gamma) * (m * mass / kept - 1.0)
    q = np.where(mass >= down[m - 1], np.maximum(lift, 0.0), 0.0)
    return np.asarray(q / q.sum())  # gamma/(1 - gamma) also magnifies the rounding of p itself


def lambda_pr_threshold(lam: float, length: int, gamma: float) -> float:
    r"""delta of λ-PR (under eq. ``eq:prdiv``); 1 at lam = 1.

    .. math::  \delta = s\gamma / (1 - (1-\gamma) s), \qquad s = \lambda^{1/L}

    Above it a token is not trained. gamma = 0 gives 0 for lam < 1: nothing trains.
    """
    check(0 < lam < math.inf, "lam", lam, "in (0, inf)")
    check(length >= 1, "length", length, "at least 1")
    check(0 <= gamma <= 1, "gamma", gamma, "in [0, 1]")
    if lam == 1:
        return 1.0
    growth = math.expm1(-math.log(lam) / length)
    return gamma / (gamma + growth) if gamma + growth > 0 else math.inf


def lambda_pr_is_unique(lam: float, length: int, gamma: float, *, support: int) -> bool:
    r"""Whether λ-PR has one optimum on a context with ``support`` acceptable tokens.

    .. math::  \gamma (|Supp| - 1) \ge \lambda^{-1/L} - 1

    Otherwise every q with all its support at or above the threshold is stationary, and training keeps its start. With
    one acceptable token that holds for every lam < 1.
    """
    lambda_pr_threshold(lam, length, gamma)  # refuses what is illegal
    check(support >= 1, "support", support, "at least 1")
    return gamma * (support - 1) >= math.expm1(-math.log(lam) / length)


def lambda_pr(p: ArrayLike, *, threshold: float, gamma: float) -> Array:
    r"""λ-PR (eq. ``eq:prdiv``): TaiLr's water-filling capped at the threshold.

    .. math::  q_i = \min(\delta, \max(0, p_i/\kappa - \gamma/(1-\gamma)))

    ``threshold`` is delta from :func:`lambda_pr_threshold`; from 1 on this is TaiLr. Refused if |Supp(P)| times the
    threshold is below 1: the optimum is then a set (:func:`lambda_pr_is_unique`). At gamma = 1 ties are filled in order.
    """
    mass = as_masses(p, "p")
    check(0 <= gamma <= 1, "gamma", gamma, "in [0, 1]")
    check(threshold > 0, "threshold", threshold, "above 0")
    if threshold >= 1:
        return tailr(mass, gamma=gamma)
    support = int((mass > 0).sum())
    if support * threshold < 1 - 1e-12:
        raise ValueError(
            f"threshold = {threshold!r}: every q of at least that on the {support} tokens of the support is stationary; a unique "
            f"optimum needs threshold >= 1/{support}"
        )
    if gamma == 1:  # maximises sum p q under the cap: fill from the most probable down
        return _filled(mass, np.full(mass.size, threshold))
    offset = gamma / (1 - gamma)
    seen = mass > 0
    q = np.zeros(mass.size)
    q[seen] = np.clip(_slope(mass[seen], offset, threshold) * mass[seen] - offset, 0.0, threshold)
    return np.asarray(q / q.sum())


def trunc(p: ArrayLike, *, drop: float) -> Array:
    r"""Trunc (prop. ``prop:trunc``): P on its most probable part of mass 1 - drop, renormalised.

    The law of least entropy with :math:`Q \le P / (1 - \Delta)`; the token at the boundary is kept in part. Any P(·|X)
    with P(X) = 1 - drop is stationary; this one is the best, and the one reached from P.
    """
    mass = as_masses(p, "p")
    check(0 <= drop < 1, "drop", drop, "in [0, 1)")
    return _filled(mass, mass / (1 - drop))


def truncr(p: ArrayLike, *, drop: float) -> Array:
    r"""TruncR (lemma ``lemma:optimal-q-truncr``): P/(1-Δ) capped at the level where it sums to 1.

    .. math::  Q = \min(\delta, P/(1-\Delta))

    The law of greatest entropy with :math:`Q \le P / (1 - \Delta)`: the optimum of the CVaR of the NLL.
    """
    mass = as_masses(p, "p")
    return np.minimum(truncr_threshold(mass, drop=drop), mass / (1 - drop))


def truncr_threshold(p: ArrayLike, *, drop: float) -> float:
    """delta of TruncR's optimum: the level at which ``min(delta, P/(1-drop))`` sums to 1 (its largest probability)."""
    mass = as_masses(p, "p")
    check(0 <= drop < 1, "drop", drop, "in [0, 1)")
    up = np.sort(mass / (1 - drop))
    below = np.concatenate([[0.0], np.cumsum(up)[:-1]])
    level = (1.0 - below) / np.arange(up.size, 0, -1)  # the k smallest keep their value, the others share the rest
    reached = np.flatnonzero(level <= up)  # the last level always qualifies, but for rounding at drop = 0
    return float(level[reached[0]] if reached.size else level[-1])


def _filled(mass: Array, cap: Array) -> Array:
    """Fill tokens to ``cap`` from the most probable down until the total is 1."""
    order = np.argsort(-mass, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(cap[order])[:-1]])
    q = np.zeros(mass.size)
    q[order] = np.clip(1.0 - before, 0.0, cap[order])
    return np.where(mass > 0, q, 0.0)


def _slope(mass: Array, offset: float, cap: float) -> float:
    """s with sum clip(s p - offset, 0, cap) = 1; the sum is piecewise linear in s, so this is exact."""
    knots = np.concatenate([offset / mass, (offset + cap) / mass])
    turns = np.concatenate([mass, -mass])
    order = np.argsort(knots, kind="stable")
    knots, slopes = knots[order], np.cumsum(turns[order])
    totals = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(knots))])
    k = int(np.flatnonzero(totals <= 1.0)[-1])
    if k == knots.size - 1 or slopes[k] <= 0:
        return float(knots[k])
    exact = knots[k] + (1.0 - totals[k]) / slopes[k]
    return float(min(exact, knots[k + 1]))  # a flat piece has a slope of rounding size
