r"""Vendi score: the effective number of different points in a set (Friedman and Dieng, 2023), exact in float64.

.. math::  VS_q = \Big(\sum_i \lambda_i^q\Big)^{1/(1-q)}, \qquad VS_1 = \exp\Big(-\sum_i \lambda_i \log \lambda_i\Big),

where the lambda_i are the eigenvalues of K / N, and K holds the cosine similarities. The D x D matrix X^T X / N has the same non-zero
eigenvalues.

Shapes: N points, D features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import logsumexp

from .features import Features, as_tensor

VERSION = 1


@dataclass(frozen=True)
class Vendi:
    """Effective number of different points: between 1 (all alike) and the smaller of ``n`` and ``dimensions``.

    Compare only sets of the same size. A larger order weighs common kinds more.
    """

    value: float
    order: float
    n: int
    dimensions: int
    version: int = VERSION


def vendi_score(generated: Features, *, order: float = 1.0) -> Vendi:
    """The effective number of different points in a set, by cosine similarity.

    Args:
      generated: (N, D) features, no row all zero.
      order: q >= 0; 1 uses the entropy, 2 the pairs, ``inf`` the largest kind alone, 0 the rank.

    Examples:
      >>> round(vendi_score([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 2.0]]).value, 12)
      2.0
    """
    if not order >= 0:
        raise ValueError(f"order must be at least 0, got {order}")
    rows = as_tensor(generated, "generated").double()
    n, dims = rows.shape
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    if bool((norms == 0).any()):
        raise ValueError("generated must have no row of zeros: it has no direction to compare")
    rows = rows / norms
    gram = rows @ rows.T if n < dims else rows.T @ rows  # both have the same eigenvalues above 0
    eigenvalues = torch.linalg.eigvalsh(gram / n).cpu().numpy().clip(0)
    return Vendi(effective_number(eigenvalues / eigenvalues.sum(), order), order, n, dims)


def effective_number(shares: np.ndarray, order: float) -> float:
    """Hill number of a distribution: the number of equally likely kinds with the same diversity."""
    shares = shares[shares > 1e-14]  # smaller eigenvalues are rounding errors
    if order == 1:
        return float(np.exp(-(shares * np.log(shares)).sum()))
    if math.isinf(order):
        return float(1 / shares.max())
    return float(np.exp(logsumexp(order * np.log(shares)) / (1 - order)))
