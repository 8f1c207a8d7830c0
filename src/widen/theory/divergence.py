r"""Divergences read off a PR-curve: total variation, KL both ways, Tsallis (sections 2 and 5.3 of the paper).

The curve determines every f-divergence, because :math:`D_f(P\|Q) = \int_0^\infty \lambda^{-3} f''(1/\lambda) D_\lambda
\, d\lambda` with :math:`D_\lambda = \min(\lambda, 1) - \alpha_\lambda`: KL(P‖Q) = ∫ D/λ² dλ, KL(Q‖P) = ∫ D/λ dλ,
Tsallis of order a = a ∫ D/λ^(1+a) dλ. On a finite set the precision is piecewise linear in λ, so each piece integrates
in closed form, and two integrations by parts leave one term per breakpoint: the drop of slope there (the mass p) times
f at the breakpoint (r = q/p). That is what is computed. Mass of one law where the other has none enters by itself, and
makes infinite what is infinite.

Shapes: n atoms of the common support; p, q, ratio = q/p and its logarithm, each (n,).
"""

from __future__ import annotations

import math

import numpy as np

from .checks import Array
from .prefix import RunningSums

SLICE = (
    1 << 16
)  # pieces of the area summed at a time: they stay in the cache, and ten million atoms need no more memory


def total_variation(p: Array, q: Array, *, p_only: float) -> float:
    """``TV = D_1 = 1 - precision(1)``, summed as the excess of P over Q so that close laws do not cancel.

    Paper note: section 5.4 writes ``1 - precision(1)/2``; half an L1 distance is ``1 - precision(1)``.
    """
    return float(np.maximum(p - q, 0.0).sum()) + p_only


def kl(p: Array, q: Array, log_ratio: Array, *, p_only: float, q_only: float) -> float:
    """``KL(P‖Q) = sum p log(p/q)``, infinite when P has mass where Q has none.

    Summed as ``p (r - 1 - log r)``, whose terms are all non-negative, plus Q's mass elsewhere: for close laws the
    plain sum is a difference of numbers of order 1.
    """
    if p_only > 0:
        return math.inf
    # r - 1 from the same rounded log r: then the rounding enters to second order only; q - p where r may overflow
    near = np.abs(log_ratio) < 1.0
    excess = np.where(near, p * np.expm1(np.where(near, log_ratio, 0.0)), q - p) - p * log_ratio
    return max(0.0, float(excess.sum()) + q_only)


def tsallis(p: Array, log_ratio: Array, *, order: float, p_only: float) -> float:
    r"""Tsallis divergence :math:`(\sum_x P^a Q^{1-a} - 1)/(a - 1)`, a = ``order`` ≥ 0, a ≠ 1.

    Infinite when a > 1 and P has mass where Q has none; also when it exceeds float64.
    """
    if order > 1 and p_only > 0:
        return math.inf
    with np.errstate(over="ignore"):
        power = float((p * np.expm1((1.0 - order) * log_ratio)).sum())
    return max(0.0, (power - p_only) / (order - 1.0))


def area(below: RunningSums, above: RunningSums, ratio: Array) -> float:
    r"""Area under precision against recall, ``1/2 ∫ recall² dlam``, one closed term per linear piece.

    On :math:`[r_k, r_{k+1}]` precision is :math:`A_k + B_k \lambda` and the piece adds
    :math:`A_k^2 (1/r_k - 1/r_{k+1}) + A_k B_k \log(r_{k+1}/r_k)`; beyond the last breakpoint :math:`A_n^2 / r_n`.

    Args:
      below: A_k = below.at(k), mass of Q at ratios up to the k-th.
      above: B_k = above.at(n - k), mass of P at ratios beyond the k-th.
      ratio: breakpoints r_1..r_n, ascending, (n,).
    """
    first = int(np.searchsorted(ratio, 0.0, side="right"))  # a ratio that underflowed to 0 carries no mass of Q
    total, last = 0.0, ratio.size - 1
    if first > last:
        return 0.0
    for start in range(first, last, SLICE):
        stop = min(start + SLICE, last)
        r, following = ratio[start:stop], ratio[start + 1 : stop + 1]
        a, b = below.between(start + 1, stop), above.between(last + 1 - stop, last - start)[::-1]
        # differences first: 1/r - 1/r' and log r' - log r would cancel for the close ratios of a large set
        step = following - r
        with np.errstate(over="ignore"):
            rise = np.log1p(step / r)
        far = np.isinf(rise)
        rise[far] = np.log(following[far]) - np.log(r[far])
        total += float(((a / r) * (a * (step / following))).sum() + (a * b * rise).sum())
    return total + below.total / float(ratio[-1]) * below.total
