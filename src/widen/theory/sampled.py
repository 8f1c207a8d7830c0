r"""What samples show of the PR-curve: expected unique recall in closed form, and Monte Carlo precision.

"Unique correct answers among N samples" is, up to a constant, recall at a lam that N chooses
(:func:`unique_recall_bounds`). So state N with the number.

Shapes: S sequences of the support, N samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .checks import MASS_SLACK, Array, Result, as_floats, as_non_negative, check, plain, same_atoms


class Estimate(NamedTuple):
    """A Monte Carlo mean and its standard error."""

    value: float | Array
    standard_error: float | Array


class Bounds(NamedTuple):
    """A lower and an upper bound."""

    lower: float | Array
    upper: float | Array


def expected_unique_recall(log_q: ArrayLike, n: ArrayLike) -> Result:
    r"""Expected share of the support seen in n samples: :math:`|S|^{-1} \sum_{x \in S} 1 - (1 - Q(x))^n`.

    A perfect model misses too: uniform Q on 9801 answers gives 0.632 in 9801 samples.

    Args:
      log_q: log Q(x) of every sequence of the support, (..., S), as from :func:`~widen.theory.exact_log_likelihood`.
      n: number of samples, integers ≥ 0 of any shape (N...). The result is (..., N...).

    Examples:
      >>> round(expected_unique_recall(np.full(9801, -np.log(9801)), 9801), 6)
      0.632139
    """

    def seen(q: Array, count: float) -> Array:
        with np.errstate(divide="ignore"):
            return -np.expm1(count * np.log1p(-np.minimum(q, 1.0))) if count else np.zeros(q.shape)

    return plain(_mean_over_support(seen, log_q, n))


def unique_recall_bounds(log_q: ArrayLike, n: ArrayLike) -> Bounds:
    r"""Bounds on unique recall for P uniform: it is at most the recall at lam = |S|/n, and at least 1 - 1/e times that.

    .. math::  (1 - 1/e)\, \beta_\lambda \le E[\text{unique recall}] \le \beta_\lambda

    Arguments as in :func:`expected_unique_recall`.
    """
    upper = _mean_over_support(lambda q, count: np.minimum(1.0, count * q), log_q, n)
    return Bounds(plain(-math.expm1(-1.0) * upper), plain(upper))


def _mean_over_support(term: Callable[[Array, float], Array], log_q: ArrayLike, n: ArrayLike) -> Array:
    """The mean over the support of term(Q(x), n), for every n."""
    logs, counts = as_floats(log_q, "log_q"), as_non_negative(n, "n")
    check(logs.ndim >= 1 and logs.shape[-1] >= 1, "log_q", f"shape {logs.shape}", "(..., S) with S at least 1")
    check((logs <= MASS_SLACK).all(), "log_q", float(logs.max()), "logarithms of probabilities, at most 0")
    check((counts == np.floor(counts)).all() and (counts < np.inf).all(), "n", n, "integers, at least 0")
    q = np.exp(logs)
    means = np.array([term(q, float(count)).mean(axis=-1) for count in counts.flat])
    return np.moveaxis(means, 0, -1).reshape(logs.shape[:-1] + counts.shape)


def monte_carlo_precision(log_p: ArrayLike, log_q: ArrayLike, lam: ArrayLike) -> Estimate:
    r"""Precision at lam from samples of **P**, unbiased. Divide by lam for recall.

    .. math::  \alpha_\lambda = E_{x \sim P} \min(\lambda, Q(x)/P(x))

    ``log_p`` and ``log_q`` are those of the samples, (N,), log_p finite; lam in [0, inf) has any shape. Best for small lam;
    for lam above 1 sample Q (:func:`monte_carlo_precision_from_model`).
    """
    at = as_non_negative(lam, "lam")
    check((at < np.inf).all(), "lam", lam, "finite here: sample the model for lam = inf")
    logp_N, logq_N = _samples(log_p, log_q, drawn="log_p")
    with np.errstate(divide="ignore"):
        return _mean_of(np.exp(np.minimum(np.log(at)[..., None], logq_N - logp_N)))


def monte_carlo_precision_from_model(log_p: ArrayLike, log_q: ArrayLike, lam: ArrayLike) -> Estimate:
    r"""Precision at lam from samples of **Q**, unbiased.

    .. math::  \alpha_\lambda = E_{x \sim Q} \min(\lambda P(x)/Q(x), 1)

    As :func:`monte_carlo_precision`, but log_q must be finite, and lam may be inf: there this is the share of samples in
    Supp(P), where log_p is above -inf.
    """
    at = as_non_negative(lam, "lam")
    logp_N, logq_N = _samples(log_p, log_q, drawn="log_q")
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(at)[..., None] + (logp_N - logq_N)
    log_ratio = np.where(np.isneginf(logp_N), -np.inf, log_ratio)  # off Supp(P) even at lam = inf
    return _mean_of(np.exp(np.minimum(log_ratio, 0.0)))


def _samples(log_p: ArrayLike, log_q: ArrayLike, *, drawn: str) -> tuple[Array, Array]:
    logp_N, logq_N = as_floats(log_p, "log_p"), as_floats(log_q, "log_q")
    same_atoms(logp_N, logq_N, "log_p and log_q")
    check(logp_N.ndim == 1 and logp_N.size >= 2, "log_p", f"shape {logp_N.shape}", "one axis of at least 2 samples")
    own = logp_N if drawn == "log_p" else logq_N
    check(np.isfinite(own).all(), drawn, "-inf or inf", "finite: the samples were drawn from that distribution")
    return logp_N, logq_N


def _mean_of(terms: Array) -> Estimate:
    error = terms.std(axis=-1, ddof=1) / math.sqrt(terms.shape[-1])
    return Estimate(plain(terms.mean(axis=-1)), plain(error))
