"""GEM changes the residual, focal loss the weight, and TOFU both.

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

from ..fields import check
from ..nll import Ones
from ..residual import Residual
from ..weight import Bounded


@dataclass(frozen=True, kw_only=True)
class GEM(Ones):
    r"""GEM, linear form (Li et al., 2025).

    .. math::  w_l = 1, \qquad \text{residual} = \mathrm{softmax}(z/\beta) - \mathrm{onehot}

    ``beta`` above 0; below 1 flattens, 1 is NLL. Converges to P^beta (:func:`widen.theory.optima.gem`), as do NLL decoded at t = 1/beta
    and c-Div at alpha = 1/beta. Unlike c-Div's, its gradients are bounded.
    """

    spec_name: ClassVar[str] = "gem"
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
    r"""Focal loss (Lin et al., 2017), :math:`-(1-q)^\gamma \log q`, as the weight with the same gradient.

    .. math::  w_l = (1-\bar q)^\gamma - \gamma\, \bar q\, (1-\bar q)^{\gamma-1} \log \bar q

    ``gamma = 0`` is NLL. It flattens P among likely tokens and sharpens it among rare ones (:func:`widen.theory.optima.focal`).

    Examples:
      >>> Focal(gamma=2).weigh(Rows(torch.tensor([0.25, 1.0]).log())).round(decimals=4)
      tensor([1.0824, 0.0000])
    """

    spec_name: ClassVar[str] = "focal"
    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    gamma: float = 2.0

    def __post_init__(self) -> None:
        check(self, "gamma", 0.0, math.inf)
        super().__post_init__()

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The derivative of the focal loss over that of NLL."""
        return self.bounded(focal_weight(rows.logq, self.gamma))


@dataclass(frozen=True, kw_only=True)
class TOFU(Focal):
    r"""Tempered focal loss (2026): focal loss's weight times GEM's residual. Not the unlearning benchmark of that name.

    .. math::  w_l = w_{\mathrm{focal}}(\bar q), \qquad \text{residual} = \mathrm{softmax}(z/\beta) - \mathrm{onehot}

    ``beta`` in (0, 1]. ``gamma = 0`` is GEM, ``beta = 1`` is focal loss. At the optimum :math:`q^{1/\beta} \propto P\, w(q)`
    (:func:`widen.theory.optima.tofu`).
    """

    spec_name: ClassVar[str] = "tofu"
    gamma: float = 3.0
    beta: float = 0.8

    def __post_init__(self) -> None:
        check(self, "beta", 0.0, 1.0, allow_high=True)
        if self.beta == 0:
            raise ValueError("TOFU: beta=0 divides the logits by 0; legal: 0 < beta <= 1")
        super().__post_init__()

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """softmax(z / beta) - onehot."""
        return Residual(tau=self.beta)
