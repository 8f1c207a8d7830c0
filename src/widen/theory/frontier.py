r"""The best that any monotone decoding can reach, given how the model ranks the tokens of one context.

A decoding is monotone if it never makes a token less probable than one that the model ranks below it: temperature,
top-k, top-p, min-p, epsilon, top-n-sigma and all their sequences. It can only keep an upper set U_n = {v_1, ..., v_n} of
the ranking, and all it can sample from are mixtures of uniform distributions on upper sets. Let P be uniform on K right
tokens, h_n of them in U_n. Then

.. math::  \alpha_\lambda \le \max \Big\{ \sum_n w_n \frac{h_n}{n} : w \ge 0,\ \sum_n w_n \le 1,\
           \sum_n w_n \frac{K}{n} \le \lambda \Big\},

the upper concave hull, at lambda, of the origin and the points (K/n, h_n/n), made non-decreasing. Some monotone decoding
reaches it. The proof is in docs/why/theory.md.

Shapes: V tokens of one context.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import Array, Result, as_non_negative, check, plain


def decoding_frontier(q: ArrayLike, valid: ArrayLike, lam: ArrayLike) -> Result:
    """The largest precision at lam that a monotone decoding of q reaches, for P uniform on the valid tokens.

    Recall is this divided by lam. An upper set holds all tokens of equal q or none; for a decoding that breaks ties,
    such as top-p, give a q without ties.

    Args:
      q: probabilities of one context, (V,). Only their order matters, and which are 0: no decoding brings those back.
      valid: True for the tokens that P allows, (V,).
      lam: in [0, inf], any shape.

    Examples:
      >>> decoding_frontier([0.5, 0.3, 0.2, 0.0], [True, True, False, False], [0.5, 1.0, np.inf]).tolist()
      [0.5, 1.0, 1.0]
      >>> decoding_frontier([0.5, 0.3, 0.2], [True, False, True], [1.0, np.inf]).round(4).tolist()
      [0.75, 1.0]
    """
    at = as_non_negative(lam, "lam")
    counts, hits = upper_sets(q, valid)
    # From the largest set (least K/n) to the smallest; the origin keeps nothing.
    x = np.concatenate([[0.0], float(np.sum(valid)) / counts[::-1]])
    y = np.concatenate([[0.0], (hits / counts)[::-1]])
    hull: list[int] = []
    for k in range(x.size):
        while len(hull) > 1:
            i, j = hull[-2:]
            if (y[k] - y[i]) * (x[j] - x[i]) < (y[j] - y[i]) * (x[k] - x[i]):  # j lies above the chord from i to k
                break
            hull.pop()
        hull.append(k)
    hull = hull[: int(np.argmax(y[hull])) + 1]  # beyond the most precise set the bound is constant
    return plain(np.interp(at, x[hull], y[hull]))


def upper_sets(q: ArrayLike, valid: ArrayLike) -> tuple[Array, Array]:
    """Sizes of the upper sets of the ranking by q, and how many valid tokens each holds. Tokens with q = 0 are in none."""
    mass, right = as_non_negative(q, "q"), np.asarray(valid)
    check(
        mass.ndim == 1 and mass.shape == right.shape and right.dtype == bool,
        "valid",
        f"{right.dtype} of shape {right.shape}",
        f"bool of the shape of q, {mass.shape}, with one axis",
    )
    check(bool(right.any()), "valid", "no True", "True for at least one token")
    check(bool((mass > 0).any()), "q", "all 0", "above 0 for at least one token")
    order = np.argsort(-mass, kind="stable")[: np.count_nonzero(mass)]
    ranked = mass[order]
    last: NDArray[np.bool_] = np.append(ranked[1:] != ranked[:-1], True)  # the last of each run of equal tokens
    return (np.flatnonzero(last) + 1).astype(np.float64), np.cumsum(right[order])[last].astype(np.float64)
