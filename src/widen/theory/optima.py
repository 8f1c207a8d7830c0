r"""What each loss converges to on one context: the best next-token distribution Q, given P.

A loss is given by its gradient in the logits for the target y, a weight times a residual. With weight w(q) and residual
``softmax(z) - onehot(y)`` it stops where :math:`P_i\, w(q_i) / q_i` is the same for all tokens that keep mass. First the
paper's losses (sections 5.2 to 5.4), then other people's, then those with a reference model.

Shapes: V tokens. Every function takes probabilities ``p`` (V,) and returns the optimum (V,). Tokens with p = 0 get 0,
except under label smoothing and the entropy bonus.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, wrightomega

from .checks import Array, as_masses, check
from .steps import tempered


def nll(p: ArrayLike) -> Array:
    """NLL: P itself."""
    return as_masses(p, "p").copy()


def gold(p: ArrayLike) -> Array:
    """GOLD with weight q^(1/2) (eq. ``eq:gold``): Q ∝ P², c-Div at alpha = 1/2."""
    return cdiv(p, alpha=0.5)


def cdiv(p: ArrayLike, *, alpha: float, cap: float = math.inf) -> Array:
    r"""c-Div (theorem ``theorem:tsallis``), weight :math:`\min(q^{1-\alpha}, \text{cap})`: Q ∝ P^(1/alpha).

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
    log_p = np.log(mass[mass > 0])
    return _solved(lambda c: np.minimum((log_p - c) / alpha, math.log(cap) + log_p - c), mass > 0)


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
    m = int(count[down * (1 - gamma + count * gamma) > gamma * total][-1])
    share = mass / total[m - 1]
    # The printed quotient loses all digits as gamma -> 1; this form takes the small difference first.
    q = np.where(mass >= down[m - 1], np.maximum(share + gamma / (1 - gamma) * (m * share - 1.0), 0.0), 0.0)
    return np.asarray(q / q.sum())  # gamma/(1 - gamma) also magnifies the rounding of p


def lambda_pr_threshold(lam: float, length: int, gamma: float) -> float:
    r"""delta of λ-PR (under eq. ``eq:prdiv``); 1 at lam = 1.

    .. math::  \delta = s\gamma / (1 - (1-\gamma) s), \qquad s = \lambda^{1/L}

    Above it a token is not trained. gamma = 0 gives 0 for lam < 1: nothing trains.
    """
    check(0 < lam < math.inf, "lam", lam, "in (0, inf)")
    check(length >= 1, "length", length, "at least 1")
    check(0 <= gamma <= 1, "gamma", gamma, "in [0, 1]")
    growth = math.expm1(-math.log(lam) / length)
    if lam == 1:
        return 1.0
    return gamma / (gamma + growth) if gamma + growth > 0 else math.inf


def lambda_pr_is_unique(lam: float, length: int, gamma: float, *, support: int) -> bool:
    r"""Whether λ-PR has one optimum on a context with ``support`` acceptable tokens.

    .. math::  \gamma (|Supp| - 1) \ge \lambda^{-1/L} - 1

    Otherwise every q with all its support at or above the threshold is stationary, and training keeps its start. With
    one acceptable token that holds for every lam < 1.
    """
    lambda_pr_threshold(lam, length, gamma)  # checks the arguments
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
    seen = mass > 0
    support = int(seen.sum())
    if support * threshold < 1 - 1e-12:
        raise ValueError(
            f"threshold = {threshold!r}: every q of at least that on the {support} tokens of the support is stationary; a unique "
            f"optimum needs threshold >= 1/{support}"
        )
    if gamma == 1:  # maximises sum p q under the cap
        return _filled(mass, np.full(mass.size, threshold))
    offset = gamma / (1 - gamma)

    def log_q(log_kappa: float) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(np.log(np.clip(mass[seen] * np.exp(-log_kappa) - offset, 0.0, threshold)))

    return _solved(log_q, seen)


def trunc(p: ArrayLike, *, drop: float) -> Array:
    r"""Trunc (prop. ``prop:trunc``): P on its most probable part of mass 1 - drop, renormalised.

    The distribution of least entropy with :math:`Q \le P / (1 - \Delta)`; the token at the boundary is kept in part. Any
    P(·|X) with P(X) = 1 - drop is stationary; this one is the best, and the one reached from P.
    """
    mass = as_masses(p, "p")
    check(0 <= drop < 1, "drop", drop, "in [0, 1)")
    return _filled(mass, mass / (1 - drop))


def truncr(p: ArrayLike, *, drop: float) -> Array:
    r"""TruncR (lemma ``lemma:optimal-q-truncr``): P/(1-Δ) capped at the level where it sums to 1.

    .. math::  Q = \min(\delta, P/(1-\Delta))

    The distribution of greatest entropy with :math:`Q \le P / (1 - \Delta)`: the optimum of the CVaR of the NLL.
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


def gem(p: ArrayLike, *, beta: float) -> Array:
    r"""GEM, linear form: Q ∝ P^beta, as NLL at temperature 1/beta or :func:`cdiv` at alpha = 1/beta.

    .. math::  \nabla_z = \mathrm{softmax}(z/\beta) - \mathrm{onehot}(y)

    beta = 1 is NLL; beta -> 0 tends to uniform on the support.
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
    gamma -> inf tends to uniform on the support.
    """
    return tofu(p, gamma=gamma, beta=1.0)


def dco(p: ArrayLike, *, n: float) -> Array:
    r"""DCO, -log(1 - (1-q)^n) with q = Q(x) of the whole answer: P F(Q)/Q is constant.

    .. math::  \nabla_z = F(q_y) (\mathrm{softmax}(z) - \mathrm{onehot}(y)), \qquad
               F(q) = \frac{n q (1-q)^{n-1}}{1 - (1-q)^n}

    ``p`` lists answers here, not tokens, and n ≥ 1 is the number of samples of which one should be right. F falls around
    q = 1/n, like a soft TruncR. n = 1 is NLL; n -> inf tends to uniform on the support.
    """
    mass = as_masses(p, "p")
    check(1 <= n < math.inf, "n", n, "in [1, inf)")
    if n == 1:
        return mass.copy()
    return _balanced(mass, lambda log_q, log_rest: np.log(-np.expm1(n * log_rest)) - (n - 1) * log_rest)


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

    A token off the support gets :math:`e^{-1/\text{bonus} - H} > 0`. bonus = 0 is NLL; bonus -> inf tends to uniform on
    all V tokens.
    """
    mass = as_masses(p, "p")
    check(0 <= bonus < math.inf, "bonus", bonus, "in [0, inf)")
    if bonus < 1e-12:  # within 1e-10 of P; multiplier/bonus would lose all digits of P
        return mass.copy()
    with np.errstate(divide="ignore"):
        log_p = np.log(mass)

    def log_q(multiplier: float) -> Array:
        """Solves q (bonus log q + multiplier) = P; at the optimum the multiplier is 1 + bonus H."""
        # y = log q + multiplier/bonus solves y + log y = log(P/bonus) + multiplier/bonus
        y: Array = wrightomega(log_p - math.log(bonus) + multiplier / bonus)
        # log P - log(bonus y) does not cancel where y is large; the other form holds where P = 0
        return np.where(y > 1, log_p - np.log(bonus * np.maximum(y, 1.0)), np.minimum(y, 1.0) - multiplier / bonus)

    return _solved(log_q, np.ones(mass.size, bool))


def eaft(p: ArrayLike) -> Array:
    r"""EAFT, and any loss whose weight depends on the context alone: P itself.

    .. math::  \nabla_z = w(H) (\mathrm{softmax}(z) - \mathrm{onehot}(y))

    The weight decides how fast a context is learned, not what is learned there.
    """
    return nll(p)


def anchor(p: ArrayLike, *, ref: ArrayLike, kl: float) -> Array:
    r"""NLL with the KL penalty of `widen.losses.Anchor`: :math:`P (1 - \text{kl} \log(q/r)) = Z q` on the support.

    ``ref`` holds the reference's probabilities r, (V,), above 0 where ``p`` is; ``kl`` is in [0, inf). kl = 0 is NLL. As
    kl -> inf the optimum tends to the reference, restricted to the support of P.

    Examples:
      >>> anchor([0.7, 0.2, 0.1], ref=[0.2, 0.4, 0.4], kl=0.5).round(4).tolist()
      [0.5067, 0.3065, 0.1868]
    """
    mass, seen, log_p, log_r = _with_reference(p, ref)
    check(0 <= kl < math.inf, "kl", kl, "in [0, inf)")
    if kl < 1e-9:
        return mass.copy()

    def log_q(log_z: float) -> Array:
        # y = Z q / (kl P) solves y + log y = log(Z r / (kl P)) + 1/kl, and log(q/r) = 1/kl - y.
        log_klp = math.log(kl) + log_p
        return np.asarray(log_klp - log_z + np.log(wrightomega(log_z + log_r - log_klp + 1 / kl)))

    return _solved(log_q, seen)


def asft(p: ArrayLike, *, ref: ArrayLike, kl: float) -> Array:
    r"""ASFT with the target's term of the penalty (`widen.losses.ASFT`): :math:`q = \text{kl}\, P r / (Z - P)`.

    .. math::  \nabla_z = (q_y + \text{kl}\, r_y) (\mathrm{softmax}(z) - \mathrm{onehot}(y))

    ``ref`` as in :func:`anchor`; ``kl`` is in (0, inf). As kl -> 0 the optimum tends to the most probable token of P, as
    kl -> inf to Q ∝ P r.

    Examples:
      >>> asft([0.6, 0.4], ref=[0.25, 0.75], kl=1.0).round(4).tolist()
      [0.443, 0.557]
    """
    mass, seen, log_p, log_r = _with_reference(p, ref)
    check(0 < kl < math.inf, "kl", kl, "in (0, inf)")
    with np.errstate(divide="ignore"):
        log_gap = np.log(mass.max() - mass[seen])
    log_pull = math.log(kl) + log_p + log_r
    return _solved(lambda x: log_pull - np.logaddexp(x, log_gap), seen)  # Z = max P + exp(x)


def _with_reference(p: ArrayLike, ref: ArrayLike) -> tuple[Array, NDArray[np.bool_], Array, Array]:
    """P, its support, and the logs of P and of the reference there."""
    mass, r = as_masses(p, "p"), as_masses(ref, "ref")
    check(r.shape == mass.shape, "ref", f"{r.size} tokens", f"as many as p, {mass.size}")
    seen = mass > 0
    check(bool((r[seen] > 0).all()), "ref", "0 where p is not", "above 0 wherever p is")
    return mass, seen, np.log(mass[seen]), np.log(r[seen])


def _filled(mass: Array, cap: Array) -> Array:
    """Fill tokens to ``cap`` from the most probable down until the total is 1."""
    order = np.argsort(-mass, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(cap[order])[:-1]])
    q = np.zeros(mass.size)
    q[order] = np.clip(1.0 - before, 0.0, cap[order])
    return np.where(mass > 0, q, 0.0)


def _balanced(mass: Array, log_level: Callable[[Array, Array], Array]) -> Array:
    """The distribution with level(q_i) = c P_i on the support, for a level that rises from 0 to infinity on (0, 1).

    ``log_level`` takes log q and log(1 - q). Both come from the log-odds of q, so that no digits are lost near 0 or 1.
    """
    log_p = np.log(mass[mass > 0])

    def log_q(x: float) -> Array:
        low, high = np.full(log_p.size, -745.0), np.full(log_p.size, 745.0)
        for _ in range(64):
            odds = (low + high) / 2
            above = log_level(-np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds)) > log_p - x
            low, high = np.where(above, low, odds), np.where(above, odds, high)
        return np.asarray(-np.logaddexp(0.0, -(low + high) / 2))

    return _solved(log_q, mass > 0)


def _solved(log_q: Callable[[float], Array], seen: NDArray[np.bool_]) -> Array:
    """exp(log_q(x)) on the tokens ``seen``, at the x where it sums to 1. Its sum must fall as x rises."""

    def excess(x: float) -> float:
        return float(logsumexp(log_q(x)))

    low = high = 0.0
    step = 1.0
    while excess(low) < -1e-12:
        low, step = low - step, 2 * step
    step = 1.0
    while excess(high) > 0:
        high, step = high + step, 2 * step
    # At `low` the sum may be 1 but for rounding: then there is no change of sign.
    logs = log_q(low if excess(low) <= 0 else float(brentq(excess, low, high, xtol=1e-15)))
    q = np.zeros(seen.size)
    q[seen] = np.exp(logs - logsumexp(logs))
    return q
