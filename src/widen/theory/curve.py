r"""The PR-curve of two distributions on a finite set, exactly (section 2.3 of the paper, eq. ``eq:prsimon``).

.. math::  \alpha_\lambda = \sum_x \min(\lambda P(x), Q(x)), \qquad  \beta_\lambda = \alpha_\lambda / \lambda

Precision is concave, non-decreasing and piecewise linear in lam, with breakpoints at the ratios Q/P: with the atoms
sorted by ratio, ``precision = A_k + B_k lam`` on [r_k, r_{k+1}], A_k the mass of Q up to the k-th atom and B_k the
mass of P beyond it. So one sort gives every point of the curve, its area and its divergences, without a grid. Only the
atoms where both laws have mass are kept; how much each has elsewhere is one number.

Shapes: n atoms where both P and Q have mass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from . import divergence
from .checks import MASS_SLACK, Array, Many, as_log_masses, as_masses, as_non_negative, check, plain, same_shape
from .prefix import RunningSums


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

    ``swapped()`` is the curve of (Q, P), whose precision is this curve's recall:

    .. math::  \alpha_\lambda(P\|Q) = \lambda\,\alpha_{1/\lambda}(Q\|P)

    Points, area and divergences are computed when asked for, each from the sorted atoms; their error is a few units in
    the last place at any number of atoms (:mod:`widen.theory.prefix`).

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
        """Size and the two ends; nothing that would cost a pass over the atoms."""
        return f"PRCurve(atoms={self.p.size}, p_only={self.p_only:.6g}, q_only={self.q_only:.6g})"

    @cached_property
    def below(self) -> RunningSums:
        """A_k: mass of Q on the k atoms of least ratio, as ``below.at(k)``."""
        return RunningSums(self.q)

    @cached_property
    def above(self) -> RunningSums:
        """B_k: mass of P on all but the k atoms of least ratio, as ``above.at(n - k)``.

        Summed from the far end: 1 minus the sum from the near end would cancel.
        """
        return RunningSums(self.p[::-1])

    @cached_property
    def log_ratio(self) -> Array:
        """log(q/p) of each atom, (n,)."""
        return np.log(self.ratio) if self.log_ratio_given is None else self.log_ratio_given

    @property
    def breakpoints(self) -> Array:
        """The distinct values of Q/P on the common support, ascending: where precision changes slope."""
        return self.ratio[np.diff(self.ratio, prepend=-1.0) > 0]

    @overload
    def precision(self, lam: float) -> float: ...
    @overload
    def precision(self, lam: Many) -> Array: ...
    def precision(self, lam: ArrayLike) -> float | Array:
        """``sum min(lam P, Q)`` (eq. ``eq:prsimon``), for any array of lam in [0, inf]; Q(Supp P) at inf, 0 at 0.

        Examples:
          >>> curve = pr_curve([0.5, 0.5], [0.25, 0.25])  # a quarter each on Supp P, the rest off it
          >>> curve.precision(1.0)
          0.5
          >>> curve.precision([0.0, 0.25, np.inf]).tolist()
          [0.0, 0.25, 0.5]
        """
        at = as_non_negative(lam, name="lam")
        k = np.searchsorted(self.ratio, at, side="right")
        finite = np.where(np.isinf(at), 0.0, at)  # beyond every ratio B is 0, and 0 * inf is meant as 0
        return plain(np.minimum(self.below.at(k) + self.above.at(self.p.size - k) * finite, self.below.total))

    @overload
    def recall(self, lam: float) -> float: ...
    @overload
    def recall(self, lam: Many) -> Array: ...
    def recall(self, lam: ArrayLike) -> float | Array:
        """``sum min(P, Q / lam) = precision / lam``, for any array of lam in [0, inf]; P(Supp Q) at 0, 0 at inf."""
        at = as_non_negative(lam, name="lam")
        k = np.searchsorted(self.ratio, at, side="right")
        value = self.above.at(self.p.size - k) + self.below.at(k) / np.where(at == 0, 1.0, at)
        return plain(np.where(at == 0, self.above.total, np.minimum(value, self.above.total)))

    @overload
    def pr_divergence(self, lam: float) -> float: ...
    @overload
    def pr_divergence(self, lam: Many) -> Array: ...
    def pr_divergence(self, lam: ArrayLike) -> float | Array:
        r"""PR-divergence ``min(lam, 1) - precision(lam)`` ≥ 0 (appendix, before eq. ``eq:expectationPR``).

        .. math::  D_\lambda = \min(\lambda, 1) - \alpha_\lambda = \frac12 \sum |\lambda P - Q| - \frac12 |\lambda - 1|

        Right to about 1e-16 absolutely; ``total_variation`` is its value at lam = 1 with full relative precision.
        """
        at = as_non_negative(lam, name="lam")
        return plain(np.maximum(np.minimum(at, 1.0) - self.precision(at), 0.0))

    @cached_property
    def auc(self) -> float:
        """Area under precision against recall, exact: 1 exactly when Q = P, 0 when the supports are disjoint."""
        return divergence.area(self.below, self.above, self.ratio)

    @property
    def total_variation(self) -> float:
        """Total variation distance, ``1 - precision(1)``."""
        return divergence.total_variation(self.p, self.q, p_only=self.p_only)

    @property
    def kl_pq(self) -> float:
        """KL(P‖Q) = ∫ D_λ / λ² dλ, what NLL minimises; inf when P has mass where Q has none."""
        return divergence.kl(self.p, self.q, self.log_ratio, p_only=self.p_only, q_only=self.q_only)

    @property
    def kl_qp(self) -> float:
        """KL(Q‖P) = ∫ D_λ / λ dλ; inf when Q has mass where P has none."""
        return self.swapped().kl_pq

    def tsallis(self, order: float) -> float:
        """Tsallis divergence D_a(P‖Q) = a ∫ D_λ / λ^(1+a) dλ, ``order`` a ≥ 0; KL(P‖Q) at a = 1.

        The larger the order, the more the small lam, and so recall, count (section 5.3 of the paper).
        """
        check(0 <= order < math.inf, name="order", value=order, legal="in [0, inf)")
        return self.kl_pq if order == 1 else divergence.tsallis(self.p, self.log_ratio, order=order, p_only=self.p_only)

    def at_precision(self, level: ArrayLike) -> PRPoints:
        """The point of least lam, hence of greatest recall, where precision reaches ``level``.

        Levels in [0, 1], of any shape.

        A level above precision(inf) is on no point of the curve; the end of the curve, lam = inf and recall 0, stands
        for it.
        """
        want = as_non_negative(level, name="level")
        check((want <= 1).all(), name="level", value=level, legal="in [0, 1]")
        low, high = np.zeros(want.shape, np.intp), np.full(want.shape, max(self.p.size - 1, 0))
        while (low < high).any():  # least k with precision(r_k) >= level; bisection spares an array of precisions
            middle = (low + high) // 2
            reached = self.below.at(middle) + self.above.at(self.p.size - middle) * self.ratio[middle] >= want
            low, high = np.where(reached | (low == high), low, middle + 1), np.where(reached, middle, high)
        # precision(inf) itself is reached, up to rounding
        reachable = (want > 0) & (want <= self.below.total * (1 + 1e-12))
        with np.errstate(invalid="ignore", divide="ignore"):
            lam = (want - self.below.at(low)) / self.above.at(self.p.size - low)
        lam = np.where(reachable, lam, np.where(want > 0, np.inf, 0.0))
        if self.p.size:
            lam = np.where(reachable, np.minimum(lam, self.ratio[low]), lam)
        return PRPoints(lam, np.asarray(self.precision(lam)), np.asarray(self.recall(lam)))

    def at_recall(self, level: ArrayLike) -> PRPoints:
        """The point of greatest lam, hence of greatest precision, where recall reaches ``level``.

        lam = 0 stands for a level above recall(0), which no point reaches.
        """
        lam, recall, precision = self.swapped().at_precision(level)
        with np.errstate(divide="ignore", over="ignore"):
            return PRPoints(np.asarray(1.0 / lam), precision, recall)

    def points(self, num: int = 257) -> PRPoints:
        """Points for drawing, from lam = 0 to inf.

        Evenly spread angles atan(lam), and the breakpoints when they are fewer than ``num``.

        Between breakpoints the curve is an arc of the hyperbola (precision - A)(recall - B) = A B, not a segment;
        hence the points between.
        """
        check(num >= 2, name="num", value=num, legal="at least 2")
        lam = np.concatenate([np.tan(np.linspace(0.0, np.pi / 2, num)[:-1]), [np.inf]])
        if self.breakpoints.size < num:
            lam = np.union1d(lam, self.breakpoints)
        return PRPoints(lam, np.asarray(self.precision(lam)), np.asarray(self.recall(lam)))

    def swapped(self) -> PRCurve:
        """The curve of (Q, P): precision and recall change places and lam becomes 1/lam."""
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.minimum(1.0 / self.ratio[::-1], np.finfo(np.float64).max)
        return PRCurve(self.q[::-1], self.p[::-1], ratio, self.q_only, self.p_only, -self.log_ratio[::-1])


def pr_curve(p: ArrayLike, q: ArrayLike) -> PRCurve:
    """The exact PR-curve of P and Q on a finite set (eq. ``eq:prsimon``), in O(n log n).

    Atoms may be listed on Supp(P) only: ``q`` may sum to less than 1, and the rest of Q is then off Supp(P). Missing
    mass up to 1e-9 counts as rounding.

    Args:
      p: probabilities of the reference, (n,), sum 1.
      q: probabilities of the model on the same atoms, (n,), sum at most 1.

    Examples:
      >>> curve = pr_curve([0.5, 0.3, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25])
      >>> curve.precision(np.inf), curve.recall(0.0), round(curve.auc, 6), round(curve.total_variation, 12)
      (0.75, 1.0, 0.7044, 0.3)
    """
    p_n, q_n = as_masses(p, name="p"), as_masses(q, name="q", partial=True)
    same_shape(p_n, q_n, names=("p", "q"))
    common = (p_n > 0) & (q_n > 0)
    p_only, q_only = _elsewhere(p_n, common, partial=False), _elsewhere(q_n, common, partial=True)
    if not common.all():
        p_n, q_n = p_n[common], q_n[common]
    del common
    return PRCurve(*_sorted_by_ratio(p_n, q_n), p_only, q_only)


def pr_curve_from_logs(logp: ArrayLike, logq: ArrayLike) -> PRCurve:
    """:func:`pr_curve` of log-probabilities, -inf where there is no mass.

    Mass too small for float64 still counts as support: recall(0) and KL are those of the logarithms.

    Args:
      logp: log-probabilities of the reference, (n,).
      logq: log-probabilities of the model on the same atoms, (n,); may sum to less than 1, as in :func:`pr_curve`.

    Examples:
      >>> pr_curve_from_logs(np.log([0.5, 0.5]), [np.log(0.5), -2000.0]).kl_pq
      999.653426...
    """
    logp_n, logq_n = as_log_masses(logp, name="logp"), as_log_masses(logq, name="logq", partial=True)
    same_shape(logp_n, logq_n, names=("logp", "logq"))
    common = (logp_n > -np.inf) & (logq_n > -np.inf)
    p_only, q_only = _elsewhere(np.exp(logp_n), common, partial=False), _elsewhere(np.exp(logq_n), common, partial=True)
    log_ratio = logq_n[common] - logp_n[common]
    order = np.argsort(log_ratio)
    log_ratio = log_ratio.take(order)
    ratio = np.exp(np.minimum(log_ratio, math.log(np.finfo(np.float64).max)))
    return PRCurve(
        np.exp(logp_n[common].take(order)), np.exp(logq_n[common].take(order)), ratio, p_only, q_only, log_ratio
    )


def _sorted_by_ratio(p: Array, q: Array) -> tuple[Array, Array, Array]:
    """p, q and q/p by ascending q/p.

    Three arrays are allocated and all three are returned: fresh pages cost as much as the gathers (measured at 10
    million atoms).
    """
    with np.errstate(over="ignore"):  # q over a subnormal p
        ratio = q / p
        order = np.argsort(ratio)  # the default kind is the vectorised one; ties need no particular order
        p_sorted = p.take(order)
        q_sorted = q.take(order, out=ratio, mode="clip")  # mode "raise" would gather into a buffer first
        ratio = np.divide(q_sorted, p_sorted, out=order.view(np.float64))
    return p_sorted, q_sorted, np.minimum(ratio, np.finfo(np.float64).max, out=ratio)


def _elsewhere(mass: Array, common: np.ndarray, *, partial: bool) -> float:
    """Mass outside the common support: of atoms listed, and of those not listed if more than rounding is missing."""
    listed = float(mass.sum(where=~common))
    missing = 1.0 - float(mass.sum()) if partial else 0.0
    return listed + (missing if missing > MASS_SLACK else 0.0)


def support_precision_recall(p: ArrayLike, q: ArrayLike) -> SupportPrecisionRecall:
    """Precision Q(Supp P) and recall P(Supp Q) (definition ``def:kynka``): the two ends of the PR-curve.

    Examples:
      >>> support_precision_recall([0.6, 0.4, 0.0, 0.0], [0.0, 0.5, 0.3, 0.2])
      SupportPrecisionRecall(precision=0.5, recall=0.4)
    """
    p_n, q_n = as_masses(p, name="p"), as_masses(q, name="q", partial=True)
    same_shape(p_n, q_n, names=("p", "q"))
    return SupportPrecisionRecall(float(q_n.sum(where=p_n > 0)), float(p_n.sum(where=q_n > 0)))
