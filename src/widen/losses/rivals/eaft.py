"""EAFT, entropy-adaptive fine-tuning: contexts where the model is sure count less.

Shapes: N target tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from widen.data.rows import Rows

from ..fields import check
from ..weight import Bounded

LOG_20 = math.log(20)
"""Entropy of 20 equally likely tokens: the scale of the authors' weight."""


@dataclass(frozen=True, kw_only=True)
class EAFT(Bounded):
    r"""The weight of a token is the entropy H of the next-token distribution.

    .. math::  w_l = (H_l / \log 20)^{\text{power}}

    ``power = 0`` is NLL. The weight depends on the context alone, so the optimum is P itself (:func:`widen.theory.optima.eaft`): EAFT
    decides how fast a context is learned, not what is learned there. H is over the whole vocabulary; the authors sum it over the 20
    likeliest tokens and divide by its maximum, LLaMA-Factory by 3.0, axolotl by 1.
    """

    spec_name: ClassVar[str] = "eaft"
    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})
    never_zero: ClassVar[bool] = True  # an entropy of exactly 0 is rare
    power: float = 1.0

    def __post_init__(self) -> None:
        check(self, "power", 0.0, math.inf)
        super().__post_init__()

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """A power of the entropy."""
        return self.bounded((rows.entropy.clamp(min=0) / LOG_20) ** self.power)
