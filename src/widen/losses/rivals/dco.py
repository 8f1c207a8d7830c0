"""DCO, direct coverage optimisation: the loss of drawing n answers of which one should be right.

Shapes: B sequences, L positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from widen.data.rows import Rows

from ..fields import check
from ..weight import Bounded, State


@dataclass(frozen=True, kw_only=True)
class DCO(Bounded):
    r""":math:`-\log(1 - (1-p)^n)` with p = Q(x) of the whole answer (Chen et al., 2025), as the weight with the same gradient.

    .. math::  w(x) = F(\bar p), \qquad F(p) = \frac{n\, p\, (1-p)^{n-1}}{1 - (1-p)^n}

    ``n`` is the number of answers that will be drawn; 1 is NLL. An answer likelier than about 1/n counts little: a soft TruncR with an
    absolute threshold. Flattens P over answers as n grows (:func:`widen.theory.optima.dco`).

    Examples:
      >>> DCO(n=2).factor(torch.tensor([0.5, 0.0]).log()).round(decimals=4)
      tensor([0.6667, 1.0000])
    """

    spec_name: ClassVar[str] = "dco"
    token_local: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    n: float = 16.0

    def __post_init__(self) -> None:
        check(self, "n", 1.0, math.inf)
        super().__post_init__()

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """Refused: the weight of a token depends on its whole sequence."""
        raise TypeError("DCO weighs whole sequences, not tokens: call apply(rows, mask_BL, state)")

    def factor(self, logp: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """F of a probability given by its logarithm: 1 at p = 0, 0 at p = 1 unless n is 1."""
        if self.n == 1:
            return torch.ones_like(logp)
        p, log_rest = logp.exp(), torch.log(-torch.expm1(logp))  # log(1 - p), accurate near p = 1
        hit = -torch.expm1(self.n * torch.log1p(-p))  # 1 - (1-p)^n, accurate near p = 0
        f = self.n * p * ((self.n - 1) * log_rest).exp() / hit
        return torch.where(p == 0, 1.0, f)  # p underflows: n p / (n p)

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """F of each row's probability, on its target tokens."""
        logp_B = torch.where(mask_BL, rows.logq, 0.0).double().sum(-1)
        w_B = self.bounded(self.factor(logp_B).to(rows.logq.dtype))
        return torch.where(mask_BL, w_B[:, None], 0.0), state
