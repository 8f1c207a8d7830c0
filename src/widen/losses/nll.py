"""Negative log-likelihood: every token counts once (paper, Sec. 2.1). The baseline, and what evaluation always reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .weight import Bounded, spec_of


@dataclass(frozen=True, kw_only=True)
class NLL(Bounded):
    r"""Cross entropy.

    .. math::  w_l = 1

    Converges to P itself (:func:`widen.theory.optima.nll`), and no other loss beats it there. The others can only gain where
    training is imperfect, or where the training law is not the target.

    Examples:
      >>> NLL().at(torch.tensor([0.25, 1.0]).log(), None, None)
      tensor([1., 1.])
    """

    uses_position: ClassVar[bool] = False
    never_zero: ClassVar[bool] = True

    def at(
        self, logq_N: Float[Tensor, " N"], position_N: Int[Tensor, " N"] | None, length_N: Int[Tensor, " N"] | None
    ) -> Float[Tensor, " N"]:
        """One."""
        return self.bounded(torch.ones_like(logq_N))

    def __str__(self) -> str:
        return spec_of("nll", self)
