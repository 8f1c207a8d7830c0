r"""Sparsity, and the bounds it puts on precision and recall (section 4, theorem ``thm:PRcurveGeneral``).

Three upper bounds on precision at temperature t: the paper's, a sharper one, and one that a model attains. All are
logarithms, because |Supp(P)| and V^L exceed float64. A bound on recall is the same minus ``log(lam)``.

Shapes: S sequences of Supp(P), L positions, V tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .checks import Array, Result, as_floats, as_non_negative, check, plain
from .continuations import valid_continuations


def log_sparsity(*, log_support: float, vocab: int, length: int) -> float:
    """log of |Supp(P)| / V^L (definition ``def:Pdirac``); with length = 1, of one context."""
    check(vocab >= 1, "vocab", vocab, "at least 1")
    check(length >= 1, "length", length, "at least 1")
    largest = length * float(np.log(vocab))
    check(0 <= log_support <= largest + 1e-9, "log_support", log_support, f"in [0, L log V = {largest:.6g}]")
    return log_support - largest


def acceptable_counts(sequences: ArrayLike) -> Array:
    """The largest number of right tokens after any prefix, K_l, at each position (L,), from all right sequences (S, L)."""
    x_SL = np.asarray(sequences)
    check(x_SL.ndim == 2 and x_SL.size > 0, "sequences", f"shape {x_SL.shape}", "(S, L), not empty")
    found = valid_continuations(np.unique(x_SL, axis=0))
    counts = np.zeros(x_SL.shape[1])
    np.maximum.at(counts, found.position, np.bincount(found.row))
    return counts


def logit_range(logits: ArrayLike) -> float:
    """The largest difference of two logits of one position, Z of theorem ``thm:PRcurveGeneral``; inf if a token has q = 0.

    ``logits`` is (..., V), at the positions reached by prefixes of Supp(P).
    """
    z = as_floats(logits, "logits")
    top = z.max(axis=-1)
    check(np.isfinite(top).all(), "logits", logits, "below inf, with a finite entry in each row")
    return float((top - z.min(axis=-1)).max())


def sparsity_bound(
    *, log_support: float, vocab: int, length: int, logit_range: float, temperature: ArrayLike, lam: ArrayLike = np.inf
) -> Result:
    r"""Log of a bound on the precision at any temperature, sharper than the paper's.

    .. math::  \alpha_\lambda \le \min(1, \lambda, |S| / (1 + (V-1) e^{-Z/t})^L)

    ``log_support`` is log |S|, ``vocab`` V, ``length`` L, ``logit_range`` Z; temperature and lam broadcast. The paper drops
    the 1 before (V-1), so its bound exceeds 1 at moderate temperatures.

    Examples:
      >>> round(float(np.exp(sparsity_bound(log_support=np.log(5), vocab=3, length=3, logit_range=5.121, temperature=10.0))), 6)
      0.470552
    """
    log_sparsity(log_support=log_support, vocab=vocab, length=length)  # checks the three
    decay = np.exp(-_scaled_range(logit_range, temperature))
    with np.errstate(divide="ignore"):
        cap = np.minimum(0.0, np.log(as_non_negative(lam, "lam")))
    return plain(np.minimum(cap, log_support - length * np.log1p((vocab - 1) * decay)))


def sparsity_bound_paper(
    *, log_support: float, vocab: int, length: int, logit_range: float, temperature: ArrayLike
) -> Result:
    r"""log of the paper's bound on precision (eq. ``eqs:PRcurveGeneral1``; recall: ``eqs:PRcurveGeneral2``).

    .. math::  \alpha_\lambda \le \frac{|Supp P|}{V^L} e^{ZL/t}

    Infinite, hence empty, if a token has probability 0 (Z = inf).
    """
    sparsity = log_sparsity(log_support=log_support, vocab=vocab, length=length)
    return plain(sparsity + length * _scaled_range(logit_range, temperature))


def sparsity_bound_attained(
    acceptable: ArrayLike, *, vocab: int, logit_range: float, temperature: ArrayLike, lam: ArrayLike = np.inf
) -> Result:
    r"""log of the bound on precision that a model attains, with K_l acceptable tokens at position l.

    .. math::  \alpha_\lambda \le \min(\lambda, \prod_l K_l / (K_l + (V - K_l) e^{-Z/t}))

    ``acceptable`` holds K_l, (L,), see :func:`acceptable_counts`. Attained, for P uniform, by the model with its acceptable
    tokens at logit 0 and the others at -Z.
    """
    sizes = as_floats(acceptable, "acceptable")
    check(((sizes >= 1) & (sizes <= vocab)).all(), "acceptable", acceptable, f"counts in 1..{vocab}")
    decay = np.exp(-_scaled_range(logit_range, temperature))
    with np.errstate(divide="ignore"):
        cap = np.log(as_non_negative(lam, "lam"))
    return plain(np.minimum(cap, -np.log1p((vocab / sizes - 1.0) * decay[..., None]).sum(axis=-1)))


def tight_temperature(*, vocab: int, acceptable: int, length: int, logit_range: float, lam: float) -> float:
    r"""Least t at which the last step of the paper's bound is an equality, for P uniform.

    The step is :math:`\min(\lambda P, (e^{Z/t}/V)^L) = (e^{Z/t}/V)^L`. It needs
    :math:`t \ge Z / (\log(V/K) + \log(\lambda)/L)`; inf if lam ≤ (K/V)^L.
    """
    check(1 <= acceptable <= vocab, "acceptable", acceptable, f"in 1..{vocab}")
    check(length >= 1, "length", length, "at least 1")
    check(logit_range >= 0, "logit_range", logit_range, "in [0, inf]")
    check(lam >= 0, "lam", lam, "in [0, inf]")
    with np.errstate(divide="ignore"):
        slope = float(np.log(vocab / acceptable) + np.log(lam) / length)
    return logit_range / slope if slope > 0 else np.inf


def _scaled_range(logit_range: float, temperature: ArrayLike) -> Array:
    """Z/t; an infinite Z stays infinite at t = inf, because that token keeps the probability 0."""
    check(logit_range >= 0, "logit_range", logit_range, "in [0, inf]")
    t = as_non_negative(temperature, "temperature")
    if logit_range == 0 or logit_range == np.inf:
        return np.full(t.shape, logit_range)
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(logit_range / t)
