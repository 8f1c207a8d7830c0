r"""The exact PR-curve of two distributions on a finite set (section 2.3 of the paper, eq. ``eq:prsimon``).

.. math::  \alpha_\lambda = \sum_x \min(\lambda P(x), Q(x)), \qquad  \beta_\lambda = \alpha_\lambda / \lambda

Precision is concave, non-decreasing and piecewise linear in lam, with breakpoints at the ratios Q/P. With the atoms
sorted by ratio, ``precision = A_k + B_k lam`` on [r_k, r_{k+1}]: A_k is the mass of Q up to the k-th atom, B_k the mass
of P beyond it. One sort gives every point, the area and the divergences, without a grid.

Shapes: n atoms where both P and Q have mass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .checks import MASS_SLACK, Array, Result, as_log_masses, as_masses, as_non_negative, check, plain, same_atoms

LARGEST = np.finfo(np.float64).max


class PRPoints(NamedTuple):
    """Points of a PR-curve: for each ``lam`` its precision and recall, three arrays of one shape."""

    lam: Array
    precision: Array
    recall: Array


class SupportPrecisionRecall(NamedTuple):
    """Precision Q(Supp P) and recall P(Supp Q) (definition ``def:kynka``)."""

    precision: float
    recall: float


@dataclass(frozen=True, eq=False, repr=False)
class PRCurve:
    r"""The PR-curve of P and Q; made by :func:`pr_curve` or :func:`pr_curve_from_logs`.

    Attributes:
      p, q: masses of the atoms of the common support, by ascending ratio, (n,).
      ratio: q/p, ascending, (n,).
      p_only, q_only: mass of P where Q has none, and of Q where P has none.
      log_ratio_given: log(q/p) from log input, where q itself may underflow; None otherwise, (n,).
    """

    p: Array
    q: Array
    ratio: Array
    p_only: float
    q_only: float
    log_ratio_given: Array | None = None

    def __repr__(self) -> str:
        return f"PRCurve(atoms={self.p.size}, p_only={self.p_only:.6g}, q_only={self.q_only:.6g})"

    @cached_property
    def below(self) -> Array:
        """A_k: mass of Q on the k atoms of least ratio, (n + 1,)."""
        return _running_sums(self.q)

    @cached_property
    def above(self) -> Array:
        """B_k: mass of P on all but the k atoms of least ratio, (n + 1,)."""
        return _running_sums(self.p[::-1])[::-1]  # from the far end: 1 minus the sum from the near end would cancel

    @cached_property
    def log_ratio(self) -> Array:
        """log(q/p) of each atom, (n,)."""
        return np.log(self.ratio) if self.log_ratio_given is None else self.log_ratio_given

    @property
    def breakpoints(self) -> Array:
        """The distinct values of Q/P on the common support, ascending: where precision changes slope."""
        return self.ratio[np.diff(self.ratio, prepend=-1.0) > 0]

    def precision(self, lam: ArrayLike) -> Result:
        """``sum min(lam P, Q)`` (eq. ``eq:prsimon``) for lam in [0, inf], any shape; Q(Supp P) at inf, 0 at 0.

        Examples:
          >>> curve = pr_curve([0.5, 0.5], [0.25, 0.25])  # a quarter each on Supp P, the rest off it
          >>> curve.precision(1.0)
          0.5
          >>> curve.precision([0.0, 0.25, np.inf]).tolist()
          [0.0, 0.25, 0.5]
        """
        at = as_non_negative(lam, "lam")
        k = np.searchsorted(self.ratio, at, side="right")
        finite = np.where(np.isinf(at), 0.0, at)  # beyond every ratio B is 0, and 0 * inf means 0
        return plain(np.minimum(self.below[k] + self.above[k] * finite, self.below[-1]))

    def recall(self, lam: ArrayLike) -> Result:
        """``sum min(P, Q / lam) = precision / lam`` for lam in [0, inf], any shape; P(Supp Q) at 0, 0 at inf."""
        at = as_non_negative(lam, "lam")
        k = np.searchsorted(self.ratio, at, side="right")
        value = self.above[k] + self.below[k] / np.where(at == 0, 1.0, at)
        return plain(np.where(at == 0, self.above[0], np.minimum(value, self.above[0])))

    def pr_divergence(self, lam: ArrayLike) -> Result:
        r"""PR-divergence, at least 0 (appendix, before eq. ``eq:expectationPR``).

        .. math::  D_\lambda = \min(\lambda, 1) - \alpha_\lambda = \frac12 \sum |\lambda P - Q| - \frac12 |\lambda - 1|

        The error is about 1e-16 absolute; ``total_variation`` has full relative precision at lam = 1.
        """
        at = as_non_negative(lam, "lam")
        return plain(np.maximum(np.minimum(at, 1.0) - self.precision(at), 0.0))

    @cached_property
    def auc(self) -> float:
        r"""Area under precision against recall, exact: 1 if Q = P, 0 if the supports are disjoint.

        It is :math:`\frac12 \int \beta_\lambda^2 d\lambda`. The piece :math:`[r_k, r_{k+1}]` adds
        :math:`A_k^2 (1/r_k - 1/r_{k+1}) + A_k B_k \log(r_{k+1}/r_k)`, and the part beyond r_n adds :math:`A_n^2 / r_n`.
        """
        first = int(np.searchsorted(self.ratio, 0.0, side="right"))  # a ratio that underflowed has no mass of Q
        if first == self.ratio.size:
            return 0.0
        r, following = self.ratio[first:-1], self.ratio[first + 1 :]
        a, b = self.below[first + 1 : -1], self.above[first + 1 : -1]
        # Differences first: 1/r - 1/r' and log r' - log r would cancel for close ratios.
        step = following - r
        with np.errstate(over="ignore"):
            rise = np.log1p(step / r)
        far = np.isinf(rise)
        rise[far] = np.log(following[far]) - np.log(r[far])
        inner = float(((a / r) * (a * (step / following))).sum() + (a * b * rise).sum())
        total = float(self.below[-1])
        return inner + total / float(self.ratio[-1]) * total

    @property
    def total_variation(self) -> float:
        """Total variation distance, ``1 - precision(1)``, summed as the excess of P over Q."""
        return float(np.maximum(self.p - self.q, 0.0).sum()) + self.p_only

    @property
    def kl_pq(self) -> float:
        """KL(P‖Q) = ∫ D_λ / λ² dλ, which NLL minimises; inf if P has mass where Q has none.

        Summed as ``p (r - 1 - log r)``, whose terms are non-negative, so that close P and Q do not cancel.
        """
        if self.p_only > 0:
            return math.inf
        # Take r - 1 from the rounded log r: its rounding then enters to second order only. Far from 1, r may overflow.
        near = np.abs(self.log_ratio) < 1.0
        rise = np.where(near, self.p * np.expm1(np.where(near, self.log_ratio, 0.0)), self.q - self.p)
        return max(0.0, float((rise - self.p * self.log_ratio).sum()) + self.q_only)

    @property
    def kl_qp(self) -> float:
        """KL(Q‖P) = ∫ D_λ / λ dλ; inf if Q has mass where P has none."""
        return self.swapped().kl_pq

    def tsallis(self, order: float) -> float:
        r"""Tsallis divergence :math:`D_a(P\|Q) = (\sum P^a Q^{1-a} - 1)/(a - 1) = a \int D_\lambda / \lambda^{1+a} d\lambda`.

        ``order`` a ≥ 0; KL(P‖Q) at a = 1. The larger the order, the more small lam, hence recall, count (section 5.3).
        """
        check(0 <= order < math.inf, "order", order, "in [0, inf)")
        if order == 1:
            return self.kl_pq
        if order > 1 and self.p_only > 0:
            return math.inf
        with np.errstate(over="ignore"):
            power = float((self.p * np.expm1((1.0 - order) * self.log_ratio)).sum())
        return max(0.0, (power - self.p_only) / (order - 1.0))

    def at_precision(self, level: ArrayLike) -> PRPoints:
        """The point of least lam, hence of greatest recall, where precision reaches ``level`` in [0, 1], any shape.

        A level above precision(inf) gives the end of the curve: lam = inf and recall 0.
        """
        want = as_non_negative(level, "level")
        check((want <= 1).all(), "level", level, "in [0, 1]")
        at_ratios = np.append(0.0, np.maximum.accumulate(self.below[:-1] + self.above[:-1] * self.ratio))
        lam = np.interp(want, at_ratios, np.append(0.0, self.ratio))  # exact: precision is piecewise linear
        lam = np.where(want > self.below[-1] * (1 + 1e-12), np.inf, lam)  # precision(inf) is reached, up to rounding
        return PRPoints(lam, np.asarray(self.precision(lam)), np.asarray(self.recall(lam)))

    def at_recall(self, level: ArrayLike) -> PRPoints:
        """The point of greatest lam, hence of greatest precision, where recall reaches ``level``.

        A level above recall(0) gives lam = 0.
        """
        lam, recall, precision = self.swapped().at_precision(level)
        with np.errstate(divide="ignore", over="ignore"):
            return PRPoints(np.asarray(1.0 / lam), precision, recall)

    def points(self, num: int = 257) -> PRPoints:
        """Points for drawing: at :func:`slopes`, and at the breakpoints if fewer than ``num``.

        Between breakpoints the curve is an arc of the hyperbola (precision - A)(recall - B) = A B.
        """
        check(num >= 2, "num", num, "at least 2")
        lam = slopes(num)
        if self.breakpoints.size < num:
            lam = np.union1d(lam, self.breakpoints)
        return PRPoints(lam, np.asarray(self.precision(lam)), np.asarray(self.recall(lam)))

    def swapped(self) -> PRCurve:
        r"""The curve of (Q, P), with precision and recall exchanged: :math:`\alpha_\lambda(P\|Q) = \lambda\,\alpha_{1/\lambda}(Q\|P)`."""
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.minimum(1.0 / self.ratio[::-1], LARGEST)
        return PRCurve(self.q[::-1], self.p[::-1], ratio, self.q_only, self.p_only, -self.log_ratio[::-1])


def slopes(num: int) -> Array:
    """lam = tan(angle) for ``num`` evenly spaced angles in [0, pi/2]: from 0 to inf, by the curve's own directions."""
    return np.append(np.tan(np.linspace(0.0, np.pi / 2, num)[:-1]), np.inf)


def pr_curve(p: ArrayLike, q: ArrayLike) -> PRCurve:
    """The exact PR-curve of P and Q on a finite set (eq. ``eq:prsimon``), in O(n log n).

    Atoms may be listed on Supp(P) only: mass that ``q`` lacks beyond 1e-9 counts as mass off Supp(P).

    Args:
      p: probabilities of the reference, (n,), sum 1.
      q: probabilities of the model on the same atoms, (n,), sum at most 1.

    Examples:
      >>> curve = pr_curve([0.5, 0.3, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25])
      >>> curve.precision(np.inf), curve.recall(0.0), round(curve.auc, 6), round(curve.total_variation, 12)
      (0.75, 1.0, 0.7044, 0.3)
    """
    p_n, q_n = as_masses(p, "p"), as_masses(q, "q", partial=True)
    same_atoms(p_n, q_n, "p and q")
    common = (p_n > 0) & (q_n > 0)
    p_on, q_on = p_n[common], q_n[common]
    with np.errstate(over="ignore"):  # q over a subnormal p
        ratio = np.minimum(q_on / p_on, LARGEST)
    order = np.argsort(ratio)
    return PRCurve(p_on[order], q_on[order], ratio[order], *_elsewhere(p_n, q_n, common))


def pr_curve_from_logs(logp: ArrayLike, logq: ArrayLike) -> PRCurve:
    """:func:`pr_curve` of log-probabilities, -inf where there is no mass.

    Mass too small for float64 still counts as support: recall(0) and KL are those of the logarithms.

    Examples:
      >>> pr_curve_from_logs(np.log([0.5, 0.5]), [np.log(0.5), -2000.0]).kl_pq
      999.653426...
    """
    logp_n, logq_n = as_log_masses(logp, "logp"), as_log_masses(logq, "logq", partial=True)
    same_atoms(logp_n, logq_n, "logp and logq")
    common = (logp_n > -np.inf) & (logq_n > -np.inf)
    log_ratio = logq_n[common] - logp_n[common]
    order = np.argsort(log_ratio)
    p_n, q_n, log_ratio = np.exp(logp_n), np.exp(logq_n), log_ratio[order]
    ratio = np.exp(np.minimum(log_ratio, math.log(LARGEST)))
    return PRCurve(p_n[common][order], q_n[common][order], ratio, *_elsewhere(p_n, q_n, common), log_ratio)


def support_precision_recall(p: ArrayLike, q: ArrayLike) -> SupportPrecisionRecall:
    """Precision Q(Supp P) and recall P(Supp Q) (definition ``def:kynka``): the two ends of the PR-curve."""
    curve = pr_curve(p, q)
    return SupportPrecisionRecall(curve.precision(np.inf), curve.recall(0.0))


def _running_sums(x: Array) -> Array:
    """Sums of the first 0, 1, ..., n entries. In float64 they would be wrong by up to n roundings."""
    return np.concatenate([[0.0], np.cumsum(x, dtype=np.longdouble)]).astype(np.float64)


def _elsewhere(p: Array, q: Array, common: np.ndarray) -> tuple[float, float]:
    """Masses of P and of Q outside the common support. What ``q`` lacks to 1 is off the listed atoms, unless it is rounding."""
    missing = 1.0 - float(q.sum())
    return float(p.sum(where=~common)), float(q.sum(where=~common)) + (missing if missing > MASS_SLACK else 0.0)
