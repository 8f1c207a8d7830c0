r"""The artificial case of section 4 in closed form (propositions ``thm:PRcurve`` and ``thm:rateofchange``).

P is uniform on K of V tokens at each position. Q equals P except at two positions. At l1 a share rho of the K tokens is
over-represented (mass a > rho, eq. ``eq:assumptionsPtheta``); at l2 a mass epsilon falls on the other V - K tokens.
With tau = 1/t, mu = rho/(1-rho), b = mu (1-a), nu = V/K - 1 and R = nu (1-epsilon)/epsilon, the paper's three regimes are

.. math::  \alpha_\lambda = \rho \min(\lambda, \lambda_{max}) + (1-\rho) \min(\lambda, \lambda_{min})

Everything is computed from the logs ``gap`` = log(a/b) and ``log_noise_odds`` = log R, so that nothing overflows.
Temperatures and lam broadcast; t = 0 and t = inf give the limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit

from .checks import Array, Result, Values, as_non_negative, check, plain
from .curve import PRCurve, pr_curve_from_logs
from .steps import tempered_log


class Conditionals(NamedTuple):
    """Next-token probabilities at the two positions where P and Q differ, (V,) each."""

    l1: Array
    l2: Array


@dataclass(frozen=True, kw_only=True)
class ArtificialCase:
    r"""The paper's artificial case (section 4): a model with two faults, and its PR-curve at every temperature.

    Args:
      vocab: V, number of tokens.
      support: K, number of acceptable tokens, 2 ≤ K < V.
      rho: share of the acceptable tokens that is over-represented at l1; rho K must be an integer in 1..K-1.
      a: mass of those tokens, rho ≤ a ≤ 1.
      epsilon: mass off the support at l2, 0 ≤ epsilon < 1.

    Examples:
      >>> case = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)  # figure app:fig:PRcurve1
      >>> round(case.epsilon_0, 6), round(case.t_0, 6), round(case.precision(1.0, 1.0), 6)
      (0.275, 2.497075, 0.73375)
      >>> case.recall([0.3, 1.0], [[0.1], [1.0]]).round(4).tolist()  # rows: temperatures
      [[0.5002, 0.5001], [1.0, 0.7338]]
    """

    vocab: int
    support: int
    rho: float
    a: float
    epsilon: float

    def __post_init__(self) -> None:
        check(2 <= self.support < self.vocab, "support", self.support, f"in 2..vocab-1 = {self.vocab - 1}")
        check(0 < self.rho < 1, "rho", self.rho, "in (0, 1)")
        count = self.rho * self.support
        check(abs(count - round(count)) < 1e-9 * count, "rho", self.rho, f"a multiple of 1/{self.support}")
        check(self.rho <= self.a <= 1, "a", self.a, f"a mass in [rho, 1] = [{self.rho}, 1]")
        check(0 <= self.epsilon < 1, "epsilon", self.epsilon, "in [0, 1)")

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
        """log(a/b) ≥ 0; inf if a = 1."""
        if self.a == self.rho:  # b = rho too, up to rounding
            return 0.0
        return max(0.0, math.log(self.a / self.b)) if self.b > 0 else math.inf

    @cached_property
    def log_noise_odds(self) -> float:
        """log R, the lead of an acceptable token over a noise token at l2; inf if epsilon = 0."""
        if self.epsilon == 0:
            return math.inf
        if abs(self.epsilon - (self.vocab - self.support) / self.vocab) < 1e-15:
            return 0.0  # uniform at l2 up to rounding, and at every t
        return self.log_nu + math.log1p(-self.epsilon) - math.log(self.epsilon)

    @property
    def rare_ratio(self) -> float:
        """b/a = rho (1-a) / ((1-rho) a): an under-represented token at l1, relative to the most probable one there."""
        return math.exp(-self.gap)

    @property
    def noise_ratio(self) -> float:
        """1/R = epsilon K / ((V-K) (1-epsilon)): a noise token at l2, relative to an acceptable one there."""
        return math.exp(-self.log_noise_odds)

    @property
    def separable(self) -> bool:
        """Whether one min-p threshold keeps every acceptable token and no noise: noise_ratio < rare_ratio.

        Then truncating Q and heating the rest reaches P (:mod:`widen.theory.truncated`).
        """
        return self.noise_ratio < self.rare_ratio

    def p(self) -> Conditionals:
        """P at l1 and l2: uniform on the first K tokens at both."""
        p_V = np.where(np.arange(self.vocab) < self.support, 1.0 / self.support, 0.0)
        return Conditionals(p_V, p_V.copy())

    def leads(self) -> Conditionals:
        """Logits of Q at l1 and l2, 0 for the tokens listed first: rho K over-represented, (1-rho) K other right ones, noise."""
        x, over = np.arange(self.vocab), round(self.rho * self.support)
        return Conditionals(
            np.where(x < over, 0.0, np.where(x < self.support, -self.gap, -np.inf)),
            np.where(x < self.support, 0.0, -self.log_noise_odds),
        )

    def q(self, t: float = 1.0) -> Conditionals:
        """Q^t at l1 and l2 (eq. ``eq:assumptionsPtheta`` at t = 1)."""
        return Conditionals(*(np.exp(tempered_log(lead_V, t)) for lead_V in self.leads()))

    def _log_levels(self, t: ArrayLike) -> tuple[Values, Values]:
        """log lambda_min and log lambda_max at t."""
        with np.errstate(divide="ignore", over="ignore"):
            tau = 1.0 / as_non_negative(t, "t")
        # The printed quotient of two powers is 0/0 once both underflow.
        log_kept = -np.logaddexp(0.0, self.log_nu - _times(tau, self.log_noise_odds))
        lead = _times(tau, self.gap)
        log_mean = np.logaddexp(math.log(self.rho), math.log1p(-self.rho) - lead)
        return log_kept - lead - log_mean, log_kept - log_mean

    def lambda_min(self, t: ArrayLike) -> Result:
        """Up to this lam recall is 1 (prop. ``thm:PRcurve``). b (1-epsilon)/rho at t = 1.

        Limits: 0 as t -> 0 if a > b, K/V as t -> inf.
        """
        return plain(np.exp(self._log_levels(t)[0]))

    def lambda_max(self, t: ArrayLike) -> Result:
        """From this lam on precision is that of the support (prop. ``thm:PRcurve``). a (1-epsilon)/rho at t = 1.

        Limit: K/V as t -> inf.
        """
        return plain(np.exp(self._log_levels(t)[1]))

    def precision(self, lam: ArrayLike, t: ArrayLike) -> Result:
        """Precision at lam and temperature t, each in [0, inf] (prop. ``thm:PRcurve``).

        Limits: min(1, rho lam) as t -> 0 (epsilon < 1 - K/V, a > b), min(lam, K/V) as t -> inf.
        """
        at = as_non_negative(lam, "lam")
        low, high = self._log_levels(t)
        return plain(self.rho * np.minimum(at, np.exp(high)) + (1 - self.rho) * np.minimum(at, np.exp(low)))

    def recall(self, lam: ArrayLike, t: ArrayLike) -> Result:
        """Recall at lam and temperature t: precision / lam; the mass of P on Supp(Q^t) at lam = 0, 0 at lam = inf."""
        at = as_non_negative(lam, "lam")
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # min(1, level / lam); 0 where there is no mass, also at lam = 0
            low, high = (
                np.where(np.isneginf(level), 0.0, np.minimum(1.0, np.exp(level - np.log(at))))
                for level in self._log_levels(t)
            )
        return plain(self.rho * high + (1 - self.rho) * low)

    def curve(self, t: float) -> PRCurve:
        """The whole PR-curve at temperature t: two atoms, the over- and the under-represented tokens."""
        low, high = self._log_levels(t)
        logp = np.array([math.log(self.rho), math.log1p(-self.rho)])
        return pr_curve_from_logs(logp, logp + np.array([float(high), float(low)]))

    def g(self, tau: ArrayLike) -> Result:
        """g(tau) = f_{a,mu} f_{epsilon,V/K-1} = (1 - rho) lambda_min at t = 1/tau (lemma ``app:lemma:rate``)."""
        with np.errstate(divide="ignore", over="ignore"):
            return plain((1 - self.rho) * self.lambda_min(1.0 / as_non_negative(tau, "tau")))

    def g_prime(self, tau: ArrayLike) -> Result:
        """dg/dtau, with the sign of :meth:`h` at 1/tau; needs b > 0 and epsilon > 0."""
        self._check_interior()
        at = as_non_negative(tau, "tau")
        over = expit(math.log(self.mu) + _times(at, self.gap))
        noise = expit(self.log_nu - _times(at, self.log_noise_odds))
        return plain(self.g(at) * (noise * self.log_noise_odds - over * self.gap))

    def h(self, t: ArrayLike) -> Result:
        """h(t) of lemma ``app:lemma:rate``: negative while lambda_min rises with t, positive once it falls.

        Increasing from -inf at t = 0 if R > 1; -inf also where it exceeds float64.
        """
        self._check_interior()
        with np.errstate(over="ignore", divide="ignore"):
            tau = 1.0 / as_non_negative(t, "t")
            first = (1.0 + np.exp(-math.log(self.mu) - _times(tau, self.gap))) * self.log_noise_odds
            if self.gap == 0:  # a = b; the other bracket may be inf, and 0 * inf means 0
                return plain(first)
            return plain(first - (1.0 + np.exp(_times(tau, self.log_noise_odds) - self.log_nu)) * self.gap)

    def h_prime(self, t: ArrayLike) -> Result:
        """dh/dt = (1/t²) log R log(a/b) [r_a/mu + r_eps/nu] at t > 0. Positive if R > 1, hence t_0 is unique."""
        self._check_interior()
        at = as_non_negative(t, "t")
        check((at > 0).all(), "t", t, "above 0")
        rate = self.log_noise_odds * self.gap
        if rate == 0:  # the bracket may be inf
            return plain(np.zeros(at.shape))
        with np.errstate(over="ignore"):
            bracket = np.exp(-math.log(self.mu) - self.gap / at) + np.exp(self.log_noise_odds / at - self.log_nu)
            return plain(rate * bracket / at**2)

    @cached_property
    def epsilon_0(self) -> float:
        r"""The noise level below which recall peaks at a finite temperature (eq. ``eq:epsilon0``).

        .. math::  \epsilon_0 = \nu / (\nu + (a/b)^{\rho/(1-K/V)})
        """
        return 0.0 if math.isinf(self.gap) else float(expit(self.log_nu - self.rho / (1 - self.sparsity) * self.gap))

    @cached_property
    def t_0(self) -> float:
        """Temperature of greatest lambda_min, where h is 0; inf if epsilon ≥ epsilon_0 or epsilon = 0, 0 if a = b."""
        if self.epsilon >= self.epsilon_0 or self.epsilon == 0:
            return math.inf
        if self.gap == 0:
            return 0.0

        def minus_h(t: float) -> float:
            """A decreasing function with the sign of -h(t), finite where h overflows."""
            rise = np.logaddexp(0.0, self.log_noise_odds / t - self.log_nu) + math.log(self.gap)
            return float(rise - math.log(self.log_noise_odds) - np.logaddexp(0.0, -self.gap / t - math.log(self.mu)))

        return positive_root(minus_h)

    def best_temperature(self, lam: ArrayLike) -> Result:
        """A temperature of greatest recall and precision at lam: min(t_0, t*), where lambda_max(t*) = lam.

        0 and inf are limits: t* = 0 if lam ≥ 1/rho, inf if lam ≤ K/V. With more noise than 1 - K/V the answer is inf.
        """
        at = as_non_negative(lam, "lam")
        return plain(np.array([self._best(float(x)) for x in at.flat]).reshape(at.shape))

    def _best(self, lam: float) -> float:
        if self.log_noise_odds < 0:
            return math.inf
        if lam >= self.lambda_max(0.0):
            return 0.0
        if lam <= self.lambda_max(math.inf):
            return self.t_0
        return min(self.t_0, positive_root(lambda t: float(self._log_levels(t)[1]) - math.log(lam)))

    @property
    def loses_recall_at_every_high_temperature(self) -> bool:
        """Whether at every lam > K/V recall at high t is below its value at t = 1: K/V ≤ lambda_min at t = 1."""
        level = self.b * (1 - self.epsilon) / self.rho
        return self.epsilon > 0 and (self.sparsity <= level if self.gap > 0 else self.sparsity < level)

    @property
    def satisfies_paper_condition(self) -> bool:
        """K/V ≤ (1-a)(1-epsilon), the condition printed in prop. ``thm:rateofchange``."""
        return self.sparsity <= (1 - self.a) * (1 - self.epsilon)

    def loses_recall(self, lam: float) -> bool:
        """Whether recall at this lam is lower at t = inf than at t = 1."""
        rounding = 1 + 1e-12
        return bool(self.precision(lam, math.inf) * rounding < self.precision(lam, 1.0))

    def _check_interior(self) -> None:
        check(self.b > 0, "a", self.a, "below 1 for rates of change")
        check(self.epsilon > 0, "epsilon", self.epsilon, "above 0 for rates of change")


def _times(tau: Values, x: float) -> Values:
    """tau x, but 0 where x = 0, and an infinite x even at tau = 0."""
    if x == 0:
        return np.zeros(tau.shape)
    return np.full(tau.shape, x) if math.isinf(x) else tau * x


def positive_root(decreasing: Callable[[float], float]) -> float:
    """The root in [0, inf] of a decreasing function, to full relative precision; 0 or inf if the sign never changes."""
    low, high = -690.0, 690.0  # logs of 1e-300 and 1e300
    if decreasing(math.exp(low)) < 0:
        return 0.0
    if decreasing(math.exp(high)) > 0:
        return math.inf
    return math.exp(brentq(lambda s: decreasing(math.exp(s)), low, high, xtol=1e-15, rtol=4 * np.finfo(float).eps))
