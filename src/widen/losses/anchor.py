"""A KL penalty that keeps a model near a reference model, as a weight on the targets of the data.

Shapes: N target tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from widen.data.rows import Rows

from .fields import check, spec_of
from .weight import Bounded

__all__ = ["REF_LOGQ", "Anchor"]

REF_LOGQ = "ref_logq"
"""Column of the batch with the reference model's log-probability of each target."""


@dataclass(frozen=True, kw_only=True)
class Anchor(Bounded):
    r"""NLL plus ``kl`` times :math:`\tfrac12 (\log q - \log r)^2`, where r is the reference model's probability of the target.

    .. math::  w_l = \max(0,\ 1 - \text{kl}\,(\log \bar q - \log r))

    The square is an estimate of the KL divergence between model and reference from the target alone; the two agree to second order
    where q is near r. A target that the model already prefers more than the reference by the factor exp(1/kl) has weight 0.
    ``kl = 0`` is NLL. Converges to a law between P and the reference (:func:`widen.theory.optima.anchor`).

    As a factor, ``cdiv:alpha=1.4 * anchor:kl=0.1``, it anchors another loss.

    Args:
      kl: weight of the penalty, at least 0.

    Examples:
      >>> import torch
      >>> rows = Rows(torch.tensor([0.5, 0.5]).log(), extra={"ref_logq": torch.tensor([0.5, 0.25]).log()})
      >>> Anchor(kl=1.0).weigh(rows).round(decimals=4)
      tensor([1.0000, 0.3069])
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq", REF_LOGQ})
    kl: float = 0.1

    def __post_init__(self) -> None:
        check(self, "kl", 0.0, math.inf)
        super().__post_init__()

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """Falls with the logarithm of q over r."""
        return self.bounded((1 - self.kl * (rows.logq - rows[REF_LOGQ])).clamp(min=0))

    def __str__(self) -> str:
        return spec_of("anchor", self)
