"""GOLD and c-Div (paper, Sec. 5.3): weight a token by a power of its own probability. The baseline and its reversal.

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

from .fields import check
from .weight import Bounded

DEFAULT_CAP = 10.0
"""Cap of c-Div above alpha = 1, where the weight grows without bound as Q -> 0. At alpha = 1.4 it binds below Q = .003.

With a cap of 10,000 c-Div loses the integer task from alpha = 1.5 on; with 10 it learns the task (docs/log.md). Weights between 1 and 10
keep the effective sample size above 4 * 10 / 11^2 = 33 %. Clip gradients to norm 1 as well: that helps more than the cap.
"""


@dataclass(frozen=True, kw_only=True)
class CDiv(Bounded):
    r"""c-Div: a token is weighted by a power of its own probability (Theorem ``theorem:tsallis``).

    .. math::  w_l = \bar Q_{<l}(x_l)^{1 - \alpha}

    ``alpha = 1`` is NLL, ``1/2`` is GOLD, ``0`` is DFT; the paper uses 1.3 and 1.4 for fine-tuning. ``alpha > 1`` favours Recall: rare
    tokens weigh more, without bound as Q -> 0, so there is a ``cap``: 10 unless given. ``cap=inf`` is the paper's loss and converges to
    P^(1/alpha) (:func:`widen.theory.optima.cdiv`). With a cap, tokens below ``cap ** (-1 / (alpha - 1))`` are treated as by NLL.

    Examples:
      >>> CDiv(alpha=2.0).weigh(Rows(torch.tensor([0.25]).log()))
      tensor([4.])
      >>> print(CDiv(alpha=1.4))
      cdiv:alpha=1.4,cap=10.0
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    never_zero: ClassVar[bool] = True
    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= alpha < inf",)
    alpha: float
    cap: float = None  # type: ignore[assignment]  # None: decided from alpha, below

    def __post_init__(self) -> None:
        check(self, *self.field_ranges)  # before `alpha` decides about `cap`
        if self.cap is None:
            object.__setattr__(self, "cap", DEFAULT_CAP if self.alpha > 1 else math.inf)
        super().__post_init__()

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """``q ** (1 - alpha)``."""
        if self.alpha == 1:
            return self.bounded(torch.ones_like(rows.logq))  # 0 * -inf would be nan where q = 0
        return self.bounded(((1 - self.alpha) * rows.logq).exp())  # in logs: q ** (1 - alpha) is inf once q underflows

    def __str__(self) -> str:
        shown = super().__str__()
        return shown.replace(",cap=inf", "") if self.alpha <= 1 else shown


def gold(*, floor: float = 0.0, cap: float = math.inf) -> CDiv:
    """GOLD (Pang and He, 2021) as the paper uses it (eq. ``eq:gold``): c-Div at alpha = 1/2, so Q -> P^2. Not TRL's GOLD trainer."""
    return CDiv(alpha=0.5, floor=floor, cap=cap)


def dft(*, floor: float = 0.0, cap: float = math.inf) -> CDiv:
    """DFT, dynamic fine-tuning (Wu et al., 2025): c-Div at alpha = 0. It converges to the most likely token."""
    return CDiv(alpha=0.0, floor=floor, cap=cap)
