r"""Vendi score: the effective number of different points in a set (Friedman and Dieng, 2023), exactly, in d x d memory.

.. math::  VS_q = \Big(\sum_i \lambda_i^q\Big)^{1/(1-q)}, \qquad VS_1 = \exp\Big(-\sum_i \lambda_i \log \lambda_i\Big),

with the eigenvalues of K / N, K the cosine similarities. Those of the d x d matrix X^T X / N are the same but for zeros.

Shapes: N points, D features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from .knn_points import Features, as_points, pieces

VERSION = 1


@dataclass(frozen=True)
class Vendi:
    """Effective number of different points: between 1 (all alike) and N.

    Args:
      value: the score.
      order: q; larger orders listen to the common kinds, smaller ones to the rare.
      n: points; only sets of one size compare.
      dimensions: features; the score cannot exceed them.
    """

    value: float
    order: float
    n: int
    dimensions: int
    version: int = VERSION


def vendi_score(generated: Features, *, order: float = 1.0) -> Vendi:
    """How many different points the set amounts to, by cosine similarity.

    Args:
      generated: (N, D) features, no row all zero.
      order: q >= 0; 1 is the entropy's, 2 counts pairs, ``inf`` the largest kind alone, 0 the rank.

    Examples:
      >>> round(vendi_score([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 2.0]]).value, 12)
      2.0
    """
    if not order >= 0:
        raise ValueError(f"order must be at least 0, got {order}")
    points = as_points(generated, "generated")
    n, dims = points.n, points.rows.shape[1]
    gram = torch.zeros(dims, dims, dtype=torch.float64, device=points.rows.device)
    weights = torch.split(points.weight.double(), len(pieces(points.rows)[0]))
    for piece, weight in zip(pieces(points.rows), weights, strict=True):
        rows = piece.double()
        norms = torch.linalg.vector_norm(rows, dim=1)
        if bool((norms == 0).any()):
            raise ValueError("generated must have no row of zeros: it has no direction to compare")
        rows /= norms[:, None]
        gram += (rows * weight[:, None]).T @ rows
    eigenvalues = torch.linalg.eigvalsh(gram / n).cpu().numpy().clip(0)
    return Vendi(effective_number(eigenvalues / eigenvalues.sum(), order), order, n, dims)


def effective_number(shares: np.ndarray, order: float) -> float:
    """Hill number of a law: how many equally likely kinds have its diversity.

    Examples:
      >>> [round(effective_number(np.array([0.5, 0.25, 0.25]), q), 6) for q in (0.0, 1.0, 2.0, math.inf)]
      [3.0, 2.828427, 2.666667, 2.0]
    """
    shares = shares[shares > 1e-14]  # below that an eigenvalue is rounding
    if order == 1:
        return float(np.exp(-(shares * np.log(shares)).sum()))
    if math.isinf(order):
        return float(1 / shares.max())
    logs = order * np.log(shares)
    return float(np.exp((logs.max() + np.log(np.exp(logs - logs.max()).sum())) / (1 - order)))
