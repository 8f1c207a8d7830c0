"""TaiLr and lambda-PR (paper, Sec. 5.4): total variation, and its generalisation to one point of the PR curve.

Shapes: N target tokens. ``l`` = position_N counts from 1, ``L`` = length_N is the number of target tokens of that sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from widen.data.rows import Rows

from .weight import Bounded


def tailr_ratio(logq: Float[Tensor, "*any"], gamma: float) -> Float[Tensor, "*any"]:
    r""":math:`\bar Q / (\gamma + (1-\gamma)\bar Q)`, written so that q = 0 gives 0 and gamma = 0 gives 1."""
    if gamma == 0:
        return torch.ones_like(logq)
    # 1 / ((1 - gamma) + gamma / q): the printed quotient is 0/0 once q underflows in float32. At q = 0 it is 1/inf = 0.
    return 1 / ((1 - gamma) + gamma * (-logq).exp())


@dataclass(frozen=True, kw_only=True)
class TaiLr(Bounded):
    r"""TaiLr: tokens with small probability count less (Ji et al., 2023; paper eq. ``eq:tailr``).

    .. math::  w_l = \frac{\bar Q_{<l}(x_l)}{\gamma + (1-\gamma)\,\bar Q_{<l}(x_l)}

    ``gamma = 0`` is NLL, ``gamma = 1`` is DFT (c-Div at 0). Favours Precision: tokens with q below gamma hardly count.
    At its optimum rare tokens have probability 0 (:func:`widen.theory.optima.tailr`).

    Args:
      gamma: the paper uses 1e-5 and 1e-7 for fine-tuning.

    Examples:
      >>> TaiLr(gamma=0.5).weigh(Rows(torch.tensor([1.0, 0.5]).log()))
      tensor([1.0000, 0.6667])
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    never_zero: ClassVar[bool] = True
    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= gamma <= 1",)
    gamma: float

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """``q / (gamma + (1 - gamma) q)``."""
        return self.bounded(tailr_ratio(rows.logq, self.gamma))


@dataclass(frozen=True, kw_only=True)
class LambdaPR(Bounded):
    r"""λ-PR: TaiLr, but only for tokens with a probability below a threshold (Theorem ``theorem:prdiv``, eq. ``eq:prdiv``).

    .. math::  w_l = \lambda^{(l-1)/L}\; 1[\bar Q_{<l}(x_l) \le \delta]\; \frac{\bar Q_{<l}(x_l)}{\gamma + (1-\gamma)\bar Q_{<l}(x_l)},
               \qquad \delta = \frac{\gamma\,\lambda^{1/L}}{1 - (1-\gamma)\,\lambda^{1/L}}

    ``lam = 1`` is TaiLr. A smaller ``lam`` favours Recall: a token stops counting once its probability passes delta. Start from an NLL
    checkpoint: from scratch, with a tiny gamma, even certain tokens are trained only up to q = delta. Converges to
    :func:`widen.theory.optima.lambda_pr`.

    Args:
      lam: the point of the curve; 0 < lam. The theorem covers lam <= 1; above 1 no token is ever gated.
      gamma: 0 < gamma <= 1 (0 is allowed with lam = 1 only: below it, delta = 0 and nothing would train).

    Examples:
      >>> loss = LambdaPR(lam=0.1, gamma=1e-5)
      >>> f"{loss.threshold(512):.4f}"      # only tokens with q <= 0.0022 train in a sequence of 512 tokens
      '0.0022'
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq", "position", "length"})
    field_ranges: ClassVar[tuple[str, ...]] = (
        "0 < lam < inf (0 gives every token the weight 0; the paper uses 0.1 to 0.9)",
        "0 <= gamma <= 1",
    )
    lam: float
    gamma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma == 0 and self.lam < 1:
            raise ValueError(
                f"LambdaPR: gamma=0 with lam={self.lam:g} makes the threshold 0, so nothing trains; legal: 0 < gamma <= 1"
            )

    def log_threshold(self, length: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """log delta for sequences of ``length`` target tokens; inf where no token is gated."""
        if self.lam >= 1:
            # The printed delta rounds to 0.9986 at lam = 1, gamma = 1e-5 in float32 and would drop certain tokens.
            return torch.full_like(length, math.inf)
        # delta = 1 / (1 + expm1(-log(lam)/L) / gamma): the printed form cancels near lam^(1/L) = 1 and loses 8 digits.
        return -torch.log1p(torch.expm1(-math.log(self.lam) / length) / self.gamma)

    def threshold(self, length: float) -> float:
        """delta, the probability above which a token of a sequence of ``length`` target tokens no longer counts."""
        return float(self.log_threshold(torch.tensor(float(length), dtype=torch.float64)).exp())

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The decay, the gate and TaiLr's ratio."""
        logq_N = rows.logq
        length_N = rows.length.clamp(min=1).to(logq_N.dtype)  # a masked row has length 0; its weights are discarded
        decay_N = (math.log(self.lam) * (rows.position.to(logq_N.dtype) - 1) / length_N).exp()
        gate_N = logq_N <= self.log_threshold(length_N)
        return self.bounded(decay_N * gate_N * tailr_ratio(logq_N, self.gamma))
