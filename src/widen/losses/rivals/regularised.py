"""NLL with a regulariser on the whole next-token distribution: label smoothing and the entropy bonus.

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

__all__ = ["EntropyBonus", "LabelSmoothing"]


@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(Bounded):
    r"""Label smoothing (Szegedy et al., 2016): a share of each target is spread over the vocabulary.

    .. math::  w_l = 1, \qquad \text{residual} = \mathrm{softmax}(z) - (1-\epsilon)\,\mathrm{onehot} - \epsilon/V

    ``eps = 0`` is NLL. Converges to (1 - eps) P + eps/V (:func:`widen.theory.optima.smooth`): every wrong token gets eps/V.

    Args:
      eps: the share that is spread, from 0 to 1.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    never_zero: ClassVar[bool] = True
    eps: float = 0.1

    def __post_init__(self) -> None:
        check(self, "eps", 0.0, 1.0, allow_high=True)
        super().__post_init__()

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """The target is smoothed."""
        return Residual(smooth=self.eps)

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """One."""
        return self.bounded(torch.ones_like(rows.logq))

    def __str__(self) -> str:
        return spec_of("smooth", self)


@dataclass(frozen=True, kw_only=True)
class EntropyBonus(Bounded):
    r"""NLL minus ``bonus`` times the entropy H of the next-token distribution (Pereyra et al., 2017).

    .. math::  w_l = 1, \qquad \text{residual} = q - \mathrm{onehot} + \text{bonus}\; q (\log q + H)

    ``bonus = 0`` is NLL. Converges to the law with P = q (1 + bonus (log q + H)) (:func:`widen.theory.optima.entropy`), flatter than P.

    Args:
      bonus: weight of the entropy, at least 0.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    never_zero: ClassVar[bool] = True
    bonus: float = 0.01

    def __post_init__(self) -> None:
        check(self, "bonus", 0.0, math.inf)
        super().__post_init__()

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """With the gradient of the entropy."""
        return Residual(entropy=self.bonus)

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """One."""
        return self.bounded(torch.ones_like(rows.logq))

    def __str__(self) -> str:
        return spec_of("entropy", self)
