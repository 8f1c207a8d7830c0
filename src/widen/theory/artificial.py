r"""The artificial case of section 4 in closed form (propositions ``thm:PRcurve`` and ``thm:rateofchange``).

P is uniform on K of V tokens at each position. Q equals P except at two positions: at l1 a share rho of the K tokens is
over-represented (mass a > rho, eq. ``eq:assumptionsPtheta``), at l2 a mass epsilon falls on the other V - K tokens.
Tempered, with tau = 1/t, mu = rho/(1-rho), b = mu (1-a), nu = V/K - 1, R = nu (1-epsilon)/epsilon:

.. math::  \alpha_\lambda = \rho \min(\lambda, \lambda_{max}) + (1-\rho) \min(\lambda, \lambda_{min})

which is the paper's three regimes on one line. Temperatures and lam broadcast; t = 0 and t = inf give the limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from . import rate
from .checks import Array, Many, Values, as_non_negative, check, plain
from .curve import PRCurve, pr_curve_from_logs
from .temperature import tempered_log


class Conditionals(NamedTuple):
    """Next-token probabilities at the two positions where P and Q differ, (V,) each."""

    l1: Array
    l2: Array


@dataclass(frozen=True, kw_only=True)
class ArtificialCase:
    r"""P and Q of section 4 and their PR-curve at every temperature.

    Args:
      vocab: V, number of tokens.
      support: K, number of acceptable tokens, 2 ≤ K < V.
      rho: share of the acceptable tokens that is over-represented at l1; rho K must be an integer in 1..K-1.
      a: mass of those tokens, rho ≤ a ≤ 1 (at a = rho nothing is over-represented, at a = 1 the other tokens never appear).
      epsilon: mass off the support at l2, 0 ≤ epsilon < 1.

    Examples:
      >>> case = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)  # figure app:fig:PRcurve1
      >>> round(case.epsilon_0, 6), round(case.t_0, 6), round(case.precision(1.0, 1.0), 6)
      (0.275, 2.497075, 0.73375)
      >>> case.recall([0.3, 1.0], [[0.1], [1.0]]).round(4).tolist()  # rows: temperatures
      [[0.5002, 0.5001], [1.0, 0.7338]]

    Paper note: a is a mass, so 0 ≤ a ≤ 1, not up to floor(rho K); rho is the over-represented share (the caption of
    ``fig:examplePQ`` says under-represented); the bounds rho K ≤ x ≤ K mean x < K.
    """

    vocab: int
    support: int
    rho: float
    a: float
    epsilon: float

    def __post_init__(self) -> None:
        """Refuse parameters whose masses do not sum to 1."""
        check(
            2 <= self.support < self.vocab,
            name="support",
            value=self.support,
            legal=f"in 2..vocab-1 = {self.vocab - 1}",
        )
        check(0 < self.rho < 1, name="rho", value=self.rho, legal="in (0, 1)")
        count = self.rho * self.support
        check(
            abs(count - round(count)) < 1e-9 * count,
            name="rho",
            value=self.rho,
            legal=f"a multiple of 1/{self.support}",
        )
        check(self.rho <= self.a <= 1, name="a", value=self.a, legal=f"a mass in [rho, 1] = [{self.rho}, 1]")
        check(0 <= self.epsilon < 1, name="epsilon", value=self.epsilon, legal="in [0, 1)")

    @property
    def mu(self) -> float:
        """rho / (1 - rho)."""
        return self.rho / (1 - self.rho)

    @property
    def b(self) -> float:
        """b = mu (1 - a): an under-represented token has probability b / (rho K)."""
        return self.mu * (1 - self.a)

    @property
    def sparsity(self) -> float:
        """K/V, the sparsity of P at one position (definition ``def:Pdirac``)."""
        return self.support / self.vocab

    @cached_property
    def log_nu(self) -> float:
        """log(V/K - 1)."""
        return math.log((self.vocab - self.support) / self.support)

    @cached_property
    def gap(self) -> float:
        """log(a/b) ≥ 0; inf when a = 1."""
        if self.a == self.rho:  # b = rho too, up to rounding
            return 0.0
        return max(0.0, math.log(self.a / self.b)) if self.b > 0 else math.inf

    @cached_property
    def log_noise_odds(self) -> float:
        """log R, an acceptable token's lead over a noise token at l2; inf when epsilon = 0."""
        if self.epsilon == 0:
            return math.inf
        if abs(self.epsilon - (self.vocab - self.support) / self.vocab) < 1e-15:
            return 0.0  # uniform at l2 up to rounding: every t leaves it so, t = 0 included
        return self.log_nu + math.log1p(-self.epsilon) - math.log(self.epsilon)

    @property
    def rare_ratio(self) -> float:
        """rho (1-a) / ((1-rho) a) = b/a: an under-represented token at l1, relative to the most probable one there."""
        return math.exp(-self.gap)

    @property
    def noise_ratio(self) -> float:
        """epsilon K / ((V-K) (1-epsilon)): a noise token at l2, relative to an acceptable one there; above 1 it leads."""
        return math.exp(-self.log_noise_odds)

    @property
    def separable(self) -> bool:
        """Whether one min-p threshold keeps every acceptable token and no noise: iff noise_ratio < rare_ratio.

        Then truncating the model's own law and heating what is left reaches P (:mod:`widen.theory.truncated`).
        """
        return self.noise_ratio < self.rare_ratio

    def p(self) -> Conditionals:
        """P at l1 and l2: uniform on the first K tokens at both."""
        p_V = np.where(np.arange(self.vocab) < self.support, 1.0 / self.support, 0.0)
        return Conditionals(p_V, p_V.copy())

    def q(self, t: float = 1.0) -> Conditionals:
        """Q^t at l1 and l2, tempered token by token (eq. ``eq:assumptionsPtheta`` at t = 1).

        Computed from log-ratios instead of masses, so that equal tokens stay exactly equal and share the mass at t = 0.
        """
        x, over = np.arange(self.vocab), round(self.rho * self.support)
        lead1_V = np.where(x < over, 0.0, np.where(x < self.support, -self.gap, -np.inf))
        lead2_V = np.where(x < self.support, 0.0, -self.log_noise_odds)
        return Conditionals(np.exp(tempered_log(lead1_V, t)), np.exp(tempered_log(lead2_V, t)))

    def _log_levels(self, t: ArrayLike) -> tuple[Values, Values]:
        """log lambda_min and log lambda_max at t."""
        with np.errstate(divide="ignore", over="ignore"):
            tau = 1.0 / as_non_negative(t, name="t")
        log_kept = rate.log_f(tau, self.log_nu, self.log_noise_odds)
        lead = rate.times(tau, self.gap)
        log_mean = np.logaddexp(math.log(self.rho), math.log1p(-self.rho) - lead)
        return log_kept - lead - log_mean, log_kept - log_mean

    @overload
    def lambda_min(self, t: float) -> float: ...
    @overload
    def lambda_min(self, t: Many) -> Array: ...
    def lambda_min(self, t: ArrayLike) -> float | Array:
        """Up to this lam recall is 1 (prop. ``thm:PRcurve``).

        At t = 1: b (1-epsilon)/rho. Limits: 0 as t -> 0 when a > b, K/V as t -> inf.
        """
        return plain(np.exp(self._log_levels(t)[0]))

    @overload
    def lambda_max(self, t: float) -> float: ...
    @overload
    def lambda_max(self, t: Many) -> Array: ...
    def lambda_max(self, t: ArrayLike) -> float | Array:
        """From this lam on precision is that of the support (prop. ``thm:PRcurve``).

        At t = 1: a (1-epsilon)/rho. Limit: K/V as t -> inf.

        Paper note: the limit as t -> 0 is 1/rho (epsilon < 1 - K/V), not infinity.
        """
        return plain(np.exp(self._log_levels(t)[1]))

    @overload
    def precision(self, lam: float, t: float) -> float: ...
    @overload
    def precision(self, lam: Many, t: float | Many) -> Array: ...
    @overload
    def precision(self, lam: float, t: Many) -> Array: ...
    def precision(self, lam: ArrayLike, t: ArrayLike) -> float | Array:
        """Precision at lam and temperature t (prop. ``thm:PRcurve``); lam and t broadcast, each in [0, inf].

        Limits: min(1, rho lam) as t -> 0 (epsilon < 1 - K/V, a > b), min(lam, K/V) as t -> inf.

        Paper note: the limits printed for the middle regime, and "from 1 to K/V", hold only for particular lam; a
        fixed lam leaves the middle regime at a finite temperature unless lam = K/V.
        """
        at = as_non_negative(lam, name="lam")
        low, high = self._log_levels(t)
        return plain(np.asarray(self.rho * np.minimum(at, np.exp(high)) + (1 - self.rho) * np.minimum(at, np.exp(low))))

    @overload
    def recall(self, lam: float, t: float) -> float: ...
    @overload
    def recall(self, lam: Many, t: float | Many) -> Array: ...
    @overload
    def recall(self, lam: float, t: Many) -> Array: ...
    def recall(self, lam: ArrayLike, t: ArrayLike) -> float | Array:
        """Recall at lam and temperature t: precision / lam; at lam = 0 the mass of P on Supp(Q^t), at lam = inf 0."""
        at = as_non_negative(lam, name="lam")
        low, high = self._log_levels(t)

        def share(level: Values) -> Array:
            """min(1, level / lam) in logs; 0 where there is no mass at all, also at lam = 0."""
            return np.where(np.isneginf(level), 0.0, np.minimum(1.0, np.exp(level - np.log(at))))

        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return plain(np.asarray(self.rho * share(high) + (1 - self.rho) * share(low)))

    def curve(self, t: float) -> PRCurve:
        """The whole PR-curve at temperature t: two atoms, the over- and the under-represented tokens."""
        low, high = self._log_levels(t)
        logp = np.array([math.log(self.rho), math.log1p(-self.rho)])
        return pr_curve_from_logs(logp, logp + np.array([float(high), float(low)]))

    @property
    def _rates(self) -> dict[str, float]:
        return {
            "log_mu": math.log(self.mu),
            "gap": self.gap,
            "log_nu": self.log_nu,
            "log_noise_odds": self.log_noise_odds,
        }

    def g(self, tau: ArrayLike) -> float | Array:
        """g(tau) = f_{a,mu} f_{epsilon,V/K-1} = (1 - rho) lambda_min at t = 1/tau (at lemma ``app:lemma:rate``)."""
        at = as_non_negative(tau, name="tau")
        kept = rate.log_f(at, self.log_nu, self.log_noise_odds)
        return plain(np.exp(rate.log_f(at, math.log(self.mu), -self.gap) + kept))

    def g_prime(self, tau: ArrayLike) -> float | Array:
        """dg/dtau, with the sign of :meth:`h` at 1/tau (needs b > 0 and epsilon > 0)."""
        self._check_interior()
        return plain(rate.g_prime(as_non_negative(tau, name="tau"), **self._rates))

    def h(self, t: ArrayLike) -> float | Array:
        """h(t) of lemma ``app:lemma:rate``: negative while lambda_min rises with t, positive once it falls."""
        self._check_interior()
        return plain(rate.h(as_non_negative(t, name="t"), **self._rates))

    def h_prime(self, t: ArrayLike) -> float | Array:
        """dh/dt at t > 0: positive when epsilon < 1 - K/V, so that h has at most one zero, t_0."""
        self._check_interior()
        at = as_non_negative(t, name="t")
        check((at > 0).all(), name="t", value=t, legal="above 0")
        return plain(rate.h_prime(at, **self._rates))

    @cached_property
    def epsilon_0(self) -> float:
        r"""The noise level below which recall peaks at a finite temperature (eq. ``eq:epsilon0``).

        .. math::  \epsilon_0 = \nu / (\nu + (a/b)^{\rho/(1-K/V)})

        Paper note: the lemma swaps its two cases: from epsilon_0 on g falls in tau, below it g rises and then falls.
        And epsilon_0 falls, not grows, with lower b and higher rho (caption of ``fig:ineq``).
        """
        return 0.0 if math.isinf(self.gap) else float(expit(self.log_nu - self.rho / (1 - self.sparsity) * self.gap))

    @cached_property
    def t_0(self) -> float:
        """Temperature of greatest lambda_min: the longest stretch of recall 1.

        inf when epsilon ≥ epsilon_0 or epsilon = 0; 0 when a = b.

        Paper note: it is not where recall at a given lam is greatest; that is :meth:`best_temperature`. It can lie
        below 1.
        """
        if self.epsilon >= self.epsilon_0 or self.epsilon == 0:
            return math.inf
        return 0.0 if self.gap == 0 else rate.peak_temperature(**self._rates)

    @overload
    def best_temperature(self, lam: float) -> float: ...
    @overload
    def best_temperature(self, lam: Many) -> Array: ...
    def best_temperature(self, lam: ArrayLike) -> float | Array:
        """A temperature of greatest recall, and so of greatest precision, at lam.

        min(t_0, t*), t* the temperature at which lambda_max has fallen to lam.

        0 and inf stand for the limits: t* = 0 when lam ≥ 1/rho, inf when lam ≤ K/V. If a whole interval is best, this is
        one temperature of it. With more noise than 1 - K/V everything grows with t, and the answer is inf.
        """
        at = as_non_negative(lam, name="lam")
        return plain(np.array([self._best(float(x)) for x in at.flat]).reshape(at.shape))

    def _best(self, lam: float) -> float:
        if self.log_noise_odds < 0:
            return math.inf
        if lam >= self.lambda_max(0.0):
            return 0.0
        if lam <= self.lambda_max(math.inf):
            return self.t_0
        tau = rate.positive_root(lambda x: math.log(lam) - float(self._log_levels(1.0 / x)[1]))
        return min(self.t_0, 1.0 / tau if tau > 0 else math.inf)

    @property
    def loses_recall_at_every_high_temperature(self) -> bool:
        """Whether for every lam > K/V recall ends, at high t, under its value at t = 1: iff K/V ≤ lambda_min at t = 1.

        Paper note: the last claim of prop. ``thm:rateofchange`` needs lam > K/V, and its condition
        (:attr:`satisfies_paper_condition`) is sufficient but loose by a factor 1/(1-rho).
        """
        level = self.b * (1 - self.epsilon) / self.rho
        return self.epsilon > 0 and (self.sparsity <= level if self.gap > 0 else self.sparsity < level)

    @property
    def satisfies_paper_condition(self) -> bool:
        """K/V ≤ (1-a)(1-epsilon), the condition printed in prop. ``thm:rateofchange``."""
        return self.sparsity <= (1 - self.a) * (1 - self.epsilon)

    def loses_recall(self, lam: float) -> bool:
        """Whether recall at this one lam ends, at high t, under its value at t = 1.

        That is, whether precision(lam) at t = 1 exceeds its limit at t = inf.
        """
        return self.precision(lam, math.inf) * (1 + 1e-12) < self.precision(lam, 1.0)  # equal up to rounding is no loss

    def _check_interior(self) -> None:
        check(self.b > 0, name="a", value=self.a, legal="below 1 for rates of change")
        check(self.epsilon > 0, name="epsilon", value=self.epsilon, legal="above 0 for rates of change")
