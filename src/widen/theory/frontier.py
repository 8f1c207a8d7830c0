r"""The best that any monotone decoding can reach, given how the model ranks the tokens of one context.

A decoding is monotone if, within a context, a token that the model finds more probable is never made less probable than
another: temperature, top-k, top-p, min-p, epsilon, eta, top-n-sigma and all their sequences. It knows of the model's law
only the order of the tokens, v_1, v_2, ..., so it can only keep an upper set U_n = {v_1, ..., v_n} of that order.

**Every monotone law is a mixture of uniform laws on upper sets.** Write d_1 ≥ d_2 ≥ ... ≥ d_V for its probabilities; with
w_n = n (d_n - d_{n+1}) it is d = sum_n w_n Unif(U_n). Let P be uniform on K right tokens, h_n of them in U_n. As a
classifier of right tokens, U_n has precision h_n/n and recall h_n/K. Then, for every monotone decoding,

.. math::  \alpha_\lambda \le \max \Big\{ \sum_n w_n \frac{h_n}{n} : w \ge 0,\ \sum_n w_n \le 1,\
           \sum_n w_n \frac{K}{n} \le \lambda \Big\},

which is the upper concave hull, at lambda, of the origin and the points (K/n, h_n/n), made non-decreasing; and some
monotone decoding reaches it. The proof is in docs/theory.md.

Shapes: V tokens of one context.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import Array, as_non_negative, check, plain


def decoding_frontier(q: ArrayLike, valid: ArrayLike, lam: ArrayLike) -> float | Array:
    """The largest precision at lam that a monotone decoding of q reaches, for P uniform on the valid tokens.

    Recall is the same divided by lam. Equal tokens share one fate: an upper set holds all of them or none. A decoding
    that breaks ties, such as top-p, is covered by giving it a q without ties.

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
    at = as_non_negative(lam, name="lam")
    counts, hits = upper_sets(q, valid)
    total = float(np.sum(valid))
    # From the largest set (least K/n) to the smallest; the origin is the law that keeps nothing.
    x = np.concatenate([[0.0], total / counts[::-1]])
    y = np.concatenate([[0.0], (hits / counts)[::-1]])
    hull: list[int] = []
    for i in range(x.size):
        while len(hull) > 1 and _above(x, y, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    best = int(np.argmax(y[hull]))  # beyond the most precise set the bound stays level
    hull = hull[: best + 1]
    return plain(np.interp(at, x[hull], y[hull]))


def upper_sets(q: ArrayLike, valid: ArrayLike) -> tuple[Array, Array]:
    """Sizes of the upper sets of the ranking by q, and how many valid tokens each holds; tokens with q = 0 are in none.

    Examples:
      >>> sizes, hits = upper_sets([0.4, 0.2, 0.2, 0.2], [True, True, False, False])
      >>> sizes.tolist(), hits.tolist()
      ([1.0, 4.0], [1.0, 2.0])
    """
    mass, right = as_non_negative(q, name="q"), np.asarray(valid)
    check(
        mass.ndim == 1 and mass.shape == right.shape and right.dtype == bool,
        name="valid",
        value=f"{right.dtype} of shape {right.shape}",
        legal=f"bool of the shape of q, {mass.shape}, with one axis",
    )
    check(bool(right.any()), name="valid", value="no True", legal="True for at least one token")
    check(bool((mass > 0).any()), name="q", value="all 0", legal="above 0 for at least one token")
    order = np.argsort(-mass, kind="stable")[: np.count_nonzero(mass)]
    ranked = mass[order]
    last: NDArray[np.bool_] = np.append(ranked[1:] != ranked[:-1], True)  # the last of each run of equal tokens
    return (np.flatnonzero(last) + 1).astype(np.float64), np.cumsum(right[order])[last].astype(np.float64)


def _above(x: Array, y: Array, i: int, j: int, k: int) -> bool:
    """Whether the chord from i to k passes on or above the point j between them."""
    return bool((y[k] - y[i]) * (x[j] - x[i]) >= (y[j] - y[i]) * (x[k] - x[i]))
