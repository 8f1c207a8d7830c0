"""NLL with a regulariser on the whole next-token distribution: label smoothing and the entropy bonus."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..fields import check
from ..nll import Ones
from ..residual import Residual


@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(Ones):
    r"""Label smoothing (Szegedy et al., 2016): a share of each target is spread over the vocabulary.

    .. math::  w_l = 1, \qquad \text{residual} = \mathrm{softmax}(z) - (1-\epsilon)\,\mathrm{onehot} - \epsilon/V

    ``eps = 0`` is NLL. Converges to (1 - eps) P + eps/V (:func:`widen.theory.optima.smooth`): every wrong token gets eps/V.
    """

    spec_name: ClassVar[str] = "smooth"
    eps: float = 0.1

    def __post_init__(self) -> None:
        check(self, "eps", 0.0, 1.0, allow_high=True)
        super().__post_init__()

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """The target is smoothed."""
        return Residual(smooth=self.eps)


@dataclass(frozen=True, kw_only=True)
class EntropyBonus(Ones):
    r"""NLL minus ``bonus`` times the entropy H of the next-token distribution (Pereyra et al., 2017).

    .. math::  w_l = 1, \qquad \text{residual} = q - \mathrm{onehot} + \text{bonus}\; q (\log q + H)

    ``bonus = 0`` is NLL. Converges to the law with P = q (1 + bonus (log q + H)) (:func:`widen.theory.optima.entropy`), flatter than P.
    """

    spec_name: ClassVar[str] = "entropy"
    bonus: float = 0.01

    def __post_init__(self) -> None:
        check(self, "bonus", 0.0, math.inf)
        super().__post_init__()

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """With the gradient of the entropy."""
        return Residual(entropy=self.bonus)
