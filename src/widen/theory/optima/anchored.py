r"""What losses with a reference model converge to on one context.

Shapes: V tokens. Each function takes probabilities ``p`` (V,) and the reference's ``ref`` (V,), and returns the optimum (V,).
Tokens with p = 0 get 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import wrightomega

from ..checks import Array, as_masses, check


def anchor(p: ArrayLike, *, ref: ArrayLike, kl: float) -> Array:
    r"""NLL with the KL penalty of `widen.losses.Anchor`: :math:`P (1 - \text{kl} \log(q/r)) = Z q` on the support.

    kl = 0 is NLL, whose optimum is P. As kl -> inf the optimum tends to the reference, restricted to the support of P.

    Args:
      p: probabilities, (V,).
      ref: the reference's probabilities, (V,), above 0 where ``p`` is.
      kl: weight of the penalty, in [0, inf).

    Examples:
      >>> anchor([0.7, 0.2, 0.1], ref=[0.2, 0.4, 0.4], kl=0.5).round(4).tolist()
      [0.5067, 0.3065, 0.1868]
    """
    mass, r, seen = _both(p, ref)
    check(0 <= kl < math.inf, name="kl", value=kl, legal="in [0, inf)")
    if kl < 1e-9:
        return mass.copy()

    def law(log_z: float) -> Array:
        # y = Z q / (kl P) solves y + log y = log(Z r / (kl P)) + 1/kl, and log(q/r) = 1/kl - y.
        y: Array = wrightomega(log_z + np.log(r / (kl * mass[seen])) + 1 / kl)
        return np.exp(np.log(kl * mass[seen] * y) - log_z)

    low, high = -1.0, 1.0
    while law(low).sum() < 1:
        low *= 2
    while law(high).sum() > 1:
        high *= 2
    return _spread(law(float(brentq(lambda x: float(law(x).sum()) - 1.0, low, high, xtol=1e-14))), seen)


def asft(p: ArrayLike, *, ref: ArrayLike, kl: float) -> Array:
    r"""ASFT with the target's term of the penalty (`widen.losses.ASFT`): :math:`q = \text{kl}\, P r / (Z - P)`.

    .. math::  \nabla_z = (q_y + \text{kl}\, r_y) (\mathrm{softmax}(z) - \mathrm{onehot}(y))

    As kl -> 0 the optimum tends to the likeliest token of P, as kl -> inf to the law proportional to P r.

    Args:
      p: probabilities, (V,).
      ref: the reference's probabilities, (V,), above 0 where ``p`` is.
      kl: weight of the penalty, in (0, inf).

    Examples:
      >>> asft([0.6, 0.4], ref=[0.25, 0.75], kl=1.0).round(4).tolist()
      [0.443, 0.557]
    """
    mass, r, seen = _both(p, ref)
    check(0 < kl < math.inf, name="kl", value=kl, legal="in (0, inf)")
    on = mass[seen]
    pull, gap = kl * on * r, on.max() - on

    def law(log_slack: float) -> Array:
        return np.asarray(pull / (math.exp(log_slack) + gap))  # Z = max P + slack

    high = math.log(pull.sum())
    low = high - 1.0
    while law(low).sum() < 1:
        low -= 1.0
    return _spread(law(float(brentq(lambda x: float(law(x).sum()) - 1.0, low, high + 1e-9, xtol=1e-14))), seen)


def _both(p: ArrayLike, ref: ArrayLike) -> tuple[Array, Array, NDArray[np.bool_]]:
    """P, the reference on the support of P, and that support."""
    mass, r = as_masses(p, name="p"), as_masses(ref, name="ref")
    check(r.shape == mass.shape, name="ref", value=f"{r.size} tokens", legal=f"as many as p, {mass.size}")
    seen = mass > 0
    check(bool((r[seen] > 0).all()), name="ref", value="0 where p is not", legal="above 0 wherever p is")
    return mass, r[seen], seen


def _spread(q: Array, seen: NDArray[np.bool_]) -> Array:
    out = np.zeros(seen.size)
    out[seen] = q / q.sum()
    return out
