r"""Tempered laws (section 2.2 of the paper): what sampling at temperature t draws from.

What temperature can reach: :mod:`widen.theory.sparsity` in general, :mod:`widen.theory.artificial` in closed form.

Shapes: V tokens, T temperatures.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .checks import Array, as_floats, as_non_negative, check


def tempered(q: ArrayLike, temperature: ArrayLike) -> Array:
    r"""The tempered conditional :math:`Q^t(x) = Q(x)^{1/t} / \sum_{i \in V} Q(x_i)^{1/t}` (section 2.2).

    t = 1 changes nothing; t = inf is uniform on Supp(Q); t = 0 is the limit, uniform on the most probable tokens.

    Args:
      q: probabilities, (..., V).
      temperature: t in [0, inf], any shape (T...).

    Returns:
      (T..., ..., V), each row summing to 1.

    Examples:
      >>> tempered([0.5, 0.25, 0.25, 0.0], [0.0, 0.5, np.inf]).round(4).tolist()
      [[1.0, 0.0, 0.0, 0.0], [0.6667, 0.1667, 0.1667, 0.0], [0.3333, 0.3333, 0.3333, 0.0]]

    Paper note: the printed sum runs over V^L, it is over one token; and t -> inf is uniform on the support, not on all
    of V. Tempering each token is not tempering the sequence: the product of the normalisers depends on the prefix.
    """
    mass = as_non_negative(q, name="q")
    check((mass <= 1 + 1e-9).all(), name="q", value=float(mass.max()), legal="probabilities, at most 1")
    with np.errstate(divide="ignore"):
        return np.exp(tempered_log(np.log(mass), temperature))


def tempered_log(logits: ArrayLike, temperature: ArrayLike) -> Array:
    """log Q^t from logits or log-probabilities; -inf is a token off the support.

    The two differ by a constant, which tempering forgets.

    Args:
      logits: (..., V); each row needs a finite entry.
      temperature: t in [0, inf], any shape (T...).

    Returns:
      (T..., ..., V).
    """
    z = as_floats(logits, name="logits")
    top = z.max(axis=-1, keepdims=True)
    check(np.isfinite(top).all(), name="logits", value=logits, legal="below inf, with a finite entry in each row")
    t = as_non_negative(temperature, name="temperature")
    gap, t = z - top, t.reshape(t.shape + (1,) * z.ndim)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = gap / t
    scaled = np.where(t == 0, np.where(gap == 0, 0.0, -np.inf), scaled)  # 0/0: ties at the top share the mass
    scaled = np.where(np.isinf(t), np.where(gap > -np.inf, 0.0, -np.inf), scaled)  # -inf/inf: off the support stays off
    return np.asarray(scaled - np.log(np.exp(scaled).sum(axis=-1, keepdims=True)))
