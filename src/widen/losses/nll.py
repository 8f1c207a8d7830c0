"""Negative log-likelihood: every token counts once (paper, Sec. 2.1). The baseline, and what evaluation always reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from widen.data.rows import Rows

from .fields import spec_of
from .weight import Bounded


@dataclass(frozen=True, kw_only=True)
class NLL(Bounded):
    r"""Cross entropy.

    .. math::  w_l = 1

    Converges to P itself (:func:`widen.theory.optima.nll`), and no other loss beats it there. The others can only gain where
    training is imperfect, or where the training law is not the target.

    Examples:
      >>> NLL().weigh(Rows(torch.tensor([0.25, 1.0]).log()))
      tensor([1., 1.])
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    never_zero: ClassVar[bool] = True

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """One."""
        return self.bounded(torch.ones_like(rows.logq))

    def __str__(self) -> str:
        return spec_of("nll", self)
