"""GEM and TOFU: the residual takes the softmax at another temperature than 1.

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
from ..residual import Residual
from ..weight import Bounded
from .focal import focal_weight

__all__ = ["GEM", "TOFU"]


@dataclass(frozen=True, kw_only=True)
class GEM(Bounded):
    r"""GEM, linear form (Li et al., 2025).

    .. math::  w_l = 1, \qquad \text{residual} = \mathrm{softmax}(z/\beta) - \mathrm{onehot}

    ``beta = 1`` is NLL. Converges to P^beta (:func:`widen.theory.optima.gem`): NLL decoded at t = 1/beta has the same law, and so has
    c-Div at alpha = 1/beta. Unlike c-Div's, its gradients are bounded.

    Args:
      beta: temperature of the residual, above 0; below 1 flattens.

    Examples:
      >>> GEM(beta=0.7).residual
      Residual(tau=0.7, smooth=0.0, entropy=0.0)
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    never_zero: ClassVar[bool] = True
    beta: float = 0.7

    def __post_init__(self) -> None:
        check(self, "beta", 0.0, math.inf)
        if self.beta == 0:
            raise ValueError("GEM: beta=0 divides the logits by 0; legal: beta > 0")
        super().__post_init__()

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """softmax(z / beta) - onehot."""
        return Residual(tau=self.beta)

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """One."""
        return self.bounded(torch.ones_like(rows.logq))

    def __str__(self) -> str:
        return spec_of("gem", self)


@dataclass(frozen=True, kw_only=True)
class TOFU(Bounded):
    r"""Tempered focal loss (2026): focal loss's weight times GEM's residual. Not the unlearning benchmark of that name.

    .. math::  w_l = w_{\mathrm{focal}}(\bar q), \qquad \text{residual} = \mathrm{softmax}(z/\beta) - \mathrm{onehot}

    ``gamma = 0`` is GEM, ``beta = 1`` is focal loss. At the optimum :math:`q^{1/\beta} \propto P\, w(q)`
    (:func:`widen.theory.optima.tofu`).

    Args:
      gamma: exponent of the focal weight, at least 0.
      beta: temperature of the residual, in (0, 1].
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    gamma: float = 3.0
    beta: float = 0.8

    def __post_init__(self) -> None:
        check(self, "gamma", 0.0, math.inf)
        check(self, "beta", 0.0, 1.0, allow_high=True)
        if self.beta == 0:
            raise ValueError("TOFU: beta=0 divides the logits by 0; legal: 0 < beta <= 1")
        super().__post_init__()

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """softmax(z / beta) - onehot."""
        return Residual(tau=self.beta)

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The focal weight of the probability at temperature 1."""
        return self.bounded(focal_weight(rows.logq, self.gamma))

    def __str__(self) -> str:
        return spec_of("tofu", self)
