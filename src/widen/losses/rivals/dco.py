"""DCO, direct coverage optimisation: the loss of drawing n answers of which one should be right.

Shapes: B sequences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..fields import check
from ..sequence import SequenceWeight
from ..weight import Bounded


@dataclass(frozen=True, kw_only=True)
class DCO(SequenceWeight, Bounded):
    r""":math:`-\log(1 - (1-p)^n)` with p = Q(x) of the whole answer (Chen et al., 2025), as the weight with the same gradient.

    .. math::  w(x) = F(\bar p), \qquad F(p) = \frac{n\, p\, (1-p)^{n-1}}{1 - (1-p)^n}

    ``n`` is the number of answers that will be drawn; 1 is NLL. An answer likelier than about 1/n counts little: a soft TruncR with an
    absolute threshold. Flattens P over answers as n grows (:func:`widen.theory.optima.dco`).

    Examples:
      >>> DCO(n=2).factor(torch.tensor([0.5, 0.0]).log()).round(decimals=4)
      tensor([0.6667, 1.0000])
    """

    spec_name: ClassVar[str] = "dco"
    n: float = 16.0

    def __post_init__(self) -> None:
        check(self, "n", 1.0, math.inf)
        super().__post_init__()

    def factor(self, logp: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """F of a probability given by its logarithm: 1 at p = 0, 0 at p = 1 unless n is 1."""
        if self.n == 1:
            return torch.ones_like(logp)
        p, log_rest = logp.exp(), torch.log(-torch.expm1(logp))  # log(1 - p), accurate near p = 1
        hit = -torch.expm1(self.n * torch.log1p(-p))  # 1 - (1-p)^n, accurate near p = 0
        f = self.n * p * ((self.n - 1) * log_rest).exp() / hit
        return torch.where(p == 0, 1.0, f)  # p underflows: n p / (n p)

    def weigh_sequences(self, logq_B: Float[Tensor, " B"], length_B: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """F of each answer's probability."""
        return self.bounded(self.factor(logq_B))
