r"""Guarantees: what a small loss implies for precision and recall, and how tokens bound sequences.

Sections 5.2 to 5.4 of the paper and the proofs of its appendix ``sec:App:PRtrain``.

Shapes: V tokens, L positions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import logsumexp

from .checks import Array, as_masses, as_non_negative, check
from .optima import cdiv


class PRGuarantee(NamedTuple):
    """A point of the PR-curve: at ``lam`` precision and recall are at least these."""

    lam: float
    precision: float
    recall: float


def gamma_proxy(q: ArrayLike, token: int, *, gamma: float) -> Array:
    """The gamma-proxy of P (definition ``hyp:gamma``): ``gamma 1[x = token] + (1-gamma) q``, q detached; (V,).

    Examples:
      >>> gamma_proxy([0.5, 0.25, 0.25], 1, gamma=0.2).round(6).tolist()
      [0.4, 0.4, 0.2]
    """
    mass = as_masses(q, "q")
    check(0 <= gamma <= 1, "gamma", gamma, "in [0, 1]")
    check(0 <= token < mass.size, "token", token, f"in 0..{mass.size - 1}")
    return np.asarray((1 - gamma) * mass + gamma * (np.arange(mass.size) == token))


def trunc_guarantee(excess: float, *, drop: float) -> PRGuarantee:
    r"""Near-optimal Trunc has high precision at recall near 1 - drop (formal statement of prop. ``prop:trunc``).

    If the loss exceeds its minimum (1-Δ) H(P^Trunc) by at most ``excess``, then at :math:`\lambda = 1/(1-\Delta)`
    precision is at least :math:`1 - \sqrt{\epsilon / (2(1-\Delta))}` and recall at least (1-Δ) times that (Pinsker).
    """
    check(excess >= 0, "excess", excess, "at least 0")
    check(0 <= drop < 1, "drop", drop, "in [0, 1)")
    precision = max(0.0, 1.0 - math.sqrt(excess / (2 * (1 - drop))))
    return PRGuarantee(1 / (1 - drop), precision, (1 - drop) * precision)


def trunc_guarantee_paper(excess: float, *, drop: float) -> PRGuarantee:
    """:func:`trunc_guarantee` with the recall that the paper's statement prints, (1-Δ) - sqrt(ε)."""
    sharp = trunc_guarantee(excess, drop=drop)
    return sharp._replace(recall=max(0.0, 1 - drop - math.sqrt(excess)))


def truncr_guarantee(*, drop: float) -> PRGuarantee:
    r"""TruncR's optimum has precision 1 and recall 1-Δ at lam = 1/(1-Δ), and recall 1 at lam = 0 (prop. ``prop:truncdiv``).

    Hence wherever precision is 1-Δ, recall is at least 1-Δ. The optimum is :func:`~widen.theory.optima.truncr`.
    """
    check(0 <= drop < 1, "drop", drop, "in [0, 1)")
    return PRGuarantee(1 / (1 - drop), 1.0, 1 - drop)


def position_weights(lam: float, length: int) -> Array:
    r""":math:`\lambda^{(l-1)/L}` for l = 1..L, (L,): the prefactor of λ-PR and of the additive bound.

    :math:`|\lambda^{1/L} - 1|` times their sum is :math:`|\lambda - 1|`.
    """
    check(0 < lam < math.inf, "lam", lam, "in (0, inf)")
    check(length >= 1, "length", length, "at least 1")
    return np.asarray(np.exp(math.log(lam) / length * np.arange(length)))


def sequence_divergence_bound(divergences: ArrayLike, *, lam: float) -> float:
    r"""Additive bound on the PR-divergence of sequences by that of tokens (theorem ``theorem:prdiv``).

    .. math::  D_\lambda(P\|Q) \le \sum_l \lambda^{(l-1)/L}\, E_{x_{<l} \sim P}\, D_{\lambda^{1/L}}(P_{<l}\|Q_{<l})

    Precision of the sequences is at least min(lam, 1) minus this. The bound is empty for long sequences.

    Args:
      divergences: for each position the mean over prefixes of P of the PR-divergence at :math:`\lambda^{1/L}`, (L,).
    """
    token_L = as_non_negative(divergences, "divergences")
    check(token_L.ndim == 1 and token_L.size >= 1, "divergences", f"shape {token_L.shape}", "(L,) with L at least 1")
    return float(position_weights(lam, token_L.size) @ token_L)


def sequence_precision_bound(precisions: ArrayLike) -> float:
    r"""Multiplicative bound on the precision of sequences by that of tokens; never empty, unlike the additive one.

    .. math::  \alpha_\lambda(P\|Q) \ge \prod_l \min_{x_{<l}} \alpha_{\lambda_l}(P_{<l}\|Q_{<l}), \quad \prod_l \lambda_l = \lambda

    Args:
      precisions: for each position the least precision at :math:`\lambda_l` over the prefixes of Supp(P), (L,).
    """
    token_L = as_non_negative(precisions, "precisions")
    check((token_L <= 1 + 1e-9).all(), "precisions", precisions, "in [0, 1]")
    return float(np.prod(token_L))


def cdiv_scale(p: ArrayLike, *, alpha: float) -> float:
    r"""C, the scale of c-Div's gradients at its optimum relative to NLL's: the common value of P w / q.

    .. math::  C = (\sum_i P_i^{1/\alpha})^\alpha

    Between 1 and V^(alpha-1) for alpha > 1: part of what c-Div does is a C times larger learning rate.
    """
    check(0 < alpha < math.inf, "alpha", alpha, "in (0, inf)")
    with np.errstate(divide="ignore"):
        logp = np.log(as_masses(p, "p"))
    return float(np.exp(alpha * logsumexp(logp / alpha)))


def cdiv_learning_rate_limit(p: ArrayLike, *, alpha: float) -> float:
    r"""Gradient descent on one context's logits is stable at c-Div's optimum iff its learning rate is below this.

    :math:`\eta < 2 / (\alpha C \lambda_{max}(\mathrm{diag}\,q - q q^\top))` with q the optimum and C its
    :func:`cdiv_scale`; inf on a one-token support.
    """
    scale = cdiv_scale(p, alpha=alpha)
    curvature = softmax_curvature(cdiv(p, alpha=alpha))
    return 2.0 / (alpha * scale * curvature) if curvature > 0 else math.inf


def cdiv_safe_learning_rate(p: ArrayLike, *, alpha: float) -> float:
    """4 / (alpha C), at most :func:`cdiv_learning_rate_limit` for any P, as a softmax has curvature at most 1/2."""
    return 4.0 / (alpha * cdiv_scale(p, alpha=alpha))


def softmax_curvature(q: ArrayLike) -> float:
    """Largest eigenvalue of diag(q) - q qᵀ, the Hessian of log-sum-exp at the logits of q; at most 1/2.

    The root of 1 = sum q_i² / (q_i - x) between the two largest q: the matrix is a rank-one change of a diagonal.
    """
    down = np.sort(as_masses(q, "q"))[::-1]
    down = down[down > 0]
    if down.size == 1:
        return 0.0
    first, second = down[0], down[1]
    if first == second:
        return float(first)
    ties, rest = int((down == second).sum()), down[down < second]

    def secular(x: float) -> float:  # times (first - x)(x - second), which removes the two poles at the ends
        wide, near = first - x, x - second
        return float(wide * near * (1.0 - (rest**2 / (rest - x)).sum()) - near * first**2 + wide * ties * second**2)

    return float(brentq(secular, second, first, xtol=1e-300, rtol=4 * np.finfo(float).eps, maxiter=500))
