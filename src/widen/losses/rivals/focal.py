"""Focal loss (Lin et al., 2017): tokens that the model is sure of count less.

Shapes: N target tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from widen.data.rows import Rows

from ..fields import check, spec_of
from ..weight import Bounded

__all__ = ["Focal", "focal_weight"]


def focal_weight(logq: Float[Tensor, "*any"], gamma: float) -> Float[Tensor, "*any"]:
    r"""The weight that gives the gradient of :math:`-(1-q)^\gamma \log q`: 0 at q = 1 and 1 at q = 0."""
    if gamma == 0:
        return torch.ones_like(logq)
    log_rest = torch.log(-torch.expm1(logq))  # log(1 - q), accurate near q = 1
    # q log q is 0 at q = 0, where log q is -inf.
    surprise = -torch.where(logq.isinf(), 0.0, logq) * logq.exp()
    # As printed the second term is gamma q (1-q)^(gamma-1) (-log q). At q = 1 and gamma < 1 that is inf * 0, whose limit is 0.
    second = torch.where(surprise == 0, 0.0, gamma * surprise * ((gamma - 1) * log_rest).exp())
    return (gamma * log_rest).exp() + second


@dataclass(frozen=True, kw_only=True)
class Focal(Bounded):
    r"""Focal loss, :math:`-(1-q)^\gamma \log q`, as the weight that has the same gradient.

    .. math::  w_l = (1-\bar q)^\gamma - \gamma\, \bar q\, (1-\bar q)^{\gamma-1} \log \bar q

    ``gamma = 0`` is NLL. It flattens P among likely tokens and sharpens it among rare ones (:func:`widen.theory.optima.focal`).

    Args:
      gamma: exponent, at least 0.

    Examples:
      >>> Focal(gamma=2).weigh(Rows(torch.tensor([0.25, 1.0]).log())).round(decimals=4)
      tensor([1.0824, 0.0000])
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    gamma: float = 2.0

    def __post_init__(self) -> None:
        check(self, "gamma", 0.0, math.inf)
        super().__post_init__()

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The derivative of the focal loss over that of NLL."""
        return self.bounded(focal_weight(rows.logq, self.gamma))

    def __str__(self) -> str:
        return spec_of("focal", self)
