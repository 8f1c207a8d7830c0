r"""How the artificial case moves with temperature: g, its derivative, h, epsilon_0 and t_0 (lemma ``app:lemma:rate``).

With tau = 1/t, :math:`g(\tau) = f_{a,\mu}(\tau) f_{\epsilon,\nu}(\tau) = (1-\rho) \lambda_{min}`, nu = V/K - 1, and h
has the sign of g'. In logs: ``gap`` = log(a/b) ≥ 0 is how much the over-represented tokens lead, ``log_noise_odds`` =
log R, R = nu (1-epsilon)/epsilon, how much an acceptable token leads a noise token. Both factors are sigmoids of tau
times these, so nothing overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from .checks import Values


def times(tau: Values, x: float) -> Values:
    """tau x as the tempered laws mean it: 0 wherever x = 0, and an infinite x kept even at tau = 0."""
    if x == 0:
        return np.zeros(tau.shape)
    return np.full(tau.shape, x) if math.isinf(x) else tau * x


def log_f(tau: Values, log_nu: float, log_odds: float) -> Values:
    r"""log f_{gamma,nu}(tau) = -log(1 + nu R^-tau), R = nu (1-gamma)/gamma: what the first group keeps at 1/tau.

    Printed as (1-gamma)^tau / ((1-gamma)^tau + nu^(1-tau) gamma^tau), which is 0/0 once both powers underflow.
    """
    return -np.logaddexp(0.0, log_nu - times(tau, log_odds))


def g_prime(tau: Values, *, log_mu: float, gap: float, log_nu: float, log_noise_odds: float) -> Values:
    """Derivative of g in tau: ``g (R-term - gap-term)``, each log-odds times the share that the other group holds.

    Paper note: the line with h(1/tau) prints ``[1 + mu^(tau-1) (mu(1-a)/a)^tau]``, one factor mu^tau too many; at a =
    .7, mu = 1.5, epsilon = .2, V/K = 5, tau = 1.3 it has the wrong sign (+0.000589 instead of -0.012097). The
    definition of h after it is right.
    """
    g = np.exp(log_f(tau, log_mu, -gap) + log_f(tau, log_nu, log_noise_odds))
    over, noise = expit(log_mu + times(tau, gap)), expit(log_nu - times(tau, log_noise_odds))
    return np.asarray(g * (noise * log_noise_odds - over * gap))


def h(t: Values, *, log_mu: float, gap: float, log_nu: float, log_noise_odds: float) -> Values:
    """h(t) of the lemma, with the sign of g'(1/t).

    Increasing, from -inf at t = 0, when R > 1; -inf also where it exceeds float64.
    """
    with np.errstate(over="ignore", divide="ignore"):
        tau = 1.0 / t
        first = (1.0 + np.exp(-log_mu - times(tau, gap))) * log_noise_odds
        if gap == 0:  # a = b; the other bracket may be inf, and 0 * inf is meant as 0
            return np.asarray(first)
        return np.asarray(first - (1.0 + np.exp(times(tau, log_noise_odds) - log_nu)) * gap)


def h_prime(t: Values, *, log_mu: float, gap: float, log_nu: float, log_noise_odds: float) -> Values:
    """Derivative of h in t > 0: ``(1/t²) log R log(a/b) [r_a/mu + r_eps/nu]``.

    Positive when R > 1, which is why t_0 is unique.

    Paper note: the printed line lacks the 1/mu and writes V - 1 for V/K - 1.
    """
    with np.errstate(over="ignore"):
        bracket = np.exp(-log_mu - gap / t) + np.exp(log_noise_odds / t - log_nu)
        return np.asarray(log_noise_odds * gap * bracket / t**2)


def peak_temperature(*, log_mu: float, gap: float, log_nu: float, log_noise_odds: float) -> float:
    """t_0 = 1/tau_0 with h(t_0) = 0, for 0 < gap < inf, R > 1 and epsilon < epsilon_0: where g is greatest.

    Solved as the root of the decreasing ``log1p(e^(-tau gap)/mu) + log log R - log gap - log(1 + R^tau/nu)``, which
    has the sign of h and stays finite where h overflows.
    """

    def phi(tau: float) -> float:
        grow = np.logaddexp(0.0, tau * log_noise_odds - log_nu)
        return float(np.logaddexp(0.0, -tau * gap - log_mu) + math.log(log_noise_odds) - math.log(gap) - grow)

    tau_0 = positive_root(phi)
    return 1.0 / tau_0 if tau_0 > 0 else math.inf


def positive_root(decreasing: Callable[[float], float]) -> float:
    """The root in [0, inf] of a decreasing function, to the last digits even when it is tiny.

    The function is positive at 0 and negative at inf.

    Rounding may hide the sign at an end; that end is then the answer.
    """
    high = 1.0
    while decreasing(high) > 0:
        high *= 2.0
        if high > 1e300:
            return math.inf
    low = high / 2.0
    while decreasing(low) < 0:
        high, low = low, low / 2.0
        if low < 1e-300:
            return 0.0
    return float(brentq(decreasing, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps, maxiter=500))
