"""ASFT, anchored supervised fine-tuning: DFT with a KL penalty to a reference model.

Shapes: N target tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from widen.data.rows import Rows

from ..anchor import REF_LOGQ
from ..fields import check, spec_of
from ..weight import Bounded

__all__ = ["ASFT"]


@dataclass(frozen=True, kw_only=True)
class ASFT(Bounded):
    r"""DFT plus ``kl`` times the target's term of KL(reference || model) (Zhu et al., 2025).

    .. math::  w_l = \bar q + \text{kl}\; r

    where r is the reference model's probability of the target. The authors add :math:`\text{kl} \sum_v r_v (\log r_v - \log q_v)` over the
    whole vocabulary at every target. Here only the term of the target itself is kept, -kl r log q, since only the reference's
    log-probability of the target is stored: tokens that the data never shows at a place are not anchored. Summed over every token as the
    target, the gradient is the authors'.

    ``kl = 0`` is DFT. Converges to :math:`q \propto P r / (Z - P)` (:func:`widen.theory.optima.asft`): the likeliest token of P as kl -> 0,
    P times the reference as kl -> inf.

    Args:
      kl: weight of the penalty, at least 0; the authors' code uses 0.1.

    Examples:
      >>> import torch
      >>> ASFT(kl=0.5).weigh(Rows(torch.tensor([0.25]).log(), extra={"ref_logq": torch.tensor([0.5]).log()}))
      tensor([0.5000])
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq", REF_LOGQ})
    kl: float = 0.1

    def __post_init__(self) -> None:
        check(self, "kl", 0.0, math.inf)
        super().__post_init__()

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The model's probability of the target, plus kl times the reference's."""
        return self.bounded(rows.logq.exp() + self.kl * rows[REF_LOGQ].exp())

    def __str__(self) -> str:
        return spec_of("asft", self)
