"""Other people's losses. Focal loss, EAFT and DCO change the weight; GEM, label smoothing and the entropy bonus the residual; TOFU both.

docs/reference/rivals/index.md compares what they converge to. DFT is c-Div at alpha = 0 (`widen.losses.dft`); ASFT is in ``anchor.py``.

Shapes: B sequences, N target tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from widen.data.rows import Rows

from .nll import NLL
from .residual import Residual
from .weight import Bounded, SequenceWeight

LOG_20 = math.log(20)
"""Entropy of 20 equally likely tokens: the scale of EAFT's weight."""


@dataclass(frozen=True, kw_only=True)
class GEM(NLL):
    r"""GEM, linear form (Li et al., 2025): NLL with a softmax at temperature ``beta`` in its gradient.

    .. math::  w_l = 1, \qquad \text{residual} = \mathrm{softmax}(z/\beta) - \mathrm{onehot}

    ``beta`` below 1 flattens, 1 is NLL. Converges to P^beta (:func:`widen.theory.optima.gem`), as do NLL decoded at t = 1/beta and c-Div
    at alpha = 1/beta. Unlike c-Div's, its gradients are bounded.
    """

    field_ranges: ClassVar[tuple[str, ...]] = ("0 < beta < inf (0 divides the logits by 0)",)
    beta: float = 0.7

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """softmax(z / beta) - onehot."""
        return Residual(tau=self.beta)


@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(NLL):
    r"""Label smoothing (Szegedy et al., 2016): a share of each target is spread over the vocabulary.

    .. math::  w_l = 1, \qquad \text{residual} = \mathrm{softmax}(z) - (1-\epsilon)\,\mathrm{onehot} - \epsilon/V

    ``eps = 0`` is NLL. Converges to (1 - eps) P + eps/V (:func:`widen.theory.optima.smooth`): every wrong token gets eps/V.
    """

    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= eps <= 1",)
    eps: float = 0.1

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """The target is smoothed."""
        return Residual(smooth=self.eps)


@dataclass(frozen=True, kw_only=True)
class EntropyBonus(NLL):
    r"""NLL minus ``bonus`` times the entropy H of the next-token distribution (Pereyra et al., 2017).

    .. math::  w_l = 1, \qquad \text{residual} = q - \mathrm{onehot} + \text{bonus}\; q (\log q + H)

    ``bonus = 0`` is NLL. Converges to the distribution with P = q (1 + bonus (log q + H)) (:func:`widen.theory.optima.entropy`), flatter
    than P.
    """

    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= bonus < inf",)
    bonus: float = 0.01

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """With the gradient of the entropy."""
        return Residual(entropy=self.bonus)


def focal_weight(logq: Float[Tensor, "*any"], gamma: float) -> Float[Tensor, "*any"]:
    r"""The weight that gives the gradient of :math:`-(1-q)^\gamma \log q`: 0 at q = 1 and 1 at q = 0."""
    if gamma == 0:
        return torch.ones_like(logq)
    logq = logq.clamp(max=0)  # a certain token's may be above 0 by rounding
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

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= gamma < inf",)
    gamma: float = 2.0

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The derivative of the focal loss over that of NLL."""
        return self.bounded(focal_weight(rows.logq, self.gamma))


@dataclass(frozen=True, kw_only=True)
class TOFU(Focal):
    r"""Tempered focal loss (arXiv 2605.00195, 2026): focal loss's weight times GEM's residual. Not the unlearning benchmark.

    .. math::  w_l = w_{\mathrm{focal}}(\bar q), \qquad \text{residual} = \mathrm{softmax}(z/\beta) - \mathrm{onehot}

    ``gamma = 0`` is GEM, ``beta = 1`` is focal loss. At the optimum :math:`q^{1/\beta} \propto P\, w(q)`
    (:func:`widen.theory.optima.tofu`).
    """

    field_ranges: ClassVar[tuple[str, ...]] = ("0 < beta <= 1 (0 divides the logits by 0)",)
    gamma: float = 3.0
    beta: float = 0.8

    @property
    def residual(self) -> Residual:  # type: ignore[override]  # depends on a field here
        """softmax(z / beta) - onehot."""
        return Residual(tau=self.beta)


@dataclass(frozen=True, kw_only=True)
class EAFT(Bounded):
    r"""Entropy-adaptive fine-tuning (Diao et al., 2026): the weight of a token is the entropy H of the next-token distribution.

    .. math::  w_l = (H_l / \log 20)^{\text{power}}

    ``power = 0`` is NLL. The weight depends on the context alone, so the optimum is P itself (:func:`widen.theory.optima.eaft`): EAFT
    decides how fast a context is learned, not what is learned there. H is over the whole vocabulary; the authors sum it over the 20
    likeliest tokens and divide by its maximum, LLaMA-Factory by 3.0, axolotl by 1.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})
    never_zero: ClassVar[bool] = True  # an entropy of exactly 0 is rare
    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= power < inf",)
    power: float = 1.0

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """A power of the entropy."""
        return self.bounded((rows.entropy.clamp(min=0) / LOG_20) ** self.power)


@dataclass(frozen=True, kw_only=True)
class DCO(SequenceWeight, Bounded):
    r"""Direct coverage optimisation: :math:`-\log(1 - (1-p)^n)` with p = Q(x) of the whole answer (Chen et al., 2025).

    .. math::  w(x) = F(\bar p), \qquad F(p) = \frac{n\, p\, (1-p)^{n-1}}{1 - (1-p)^n}

    ``n`` is the number of answers that will be drawn; 1 is NLL. An answer likelier than about 1/n counts little: a soft TruncR with an
    absolute threshold. Flattens P over answers as n grows (:func:`widen.theory.optima.dco`).

    Examples:
      >>> DCO(n=2).factor(torch.tensor([0.5, 0.0]).log()).round(decimals=4)
      tensor([0.6667, 1.0000])
    """

    field_ranges: ClassVar[tuple[str, ...]] = ("1 <= n < inf",)
    n: float = 16.0

    def factor(self, logp: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """F of a probability given by its logarithm: 1 at p = 0, 0 at p = 1 unless n is 1."""
        if self.n == 1:
            return torch.ones_like(logp)
        # F is 1 long before p leaves the normal numbers. Below them log1p(-p) may be 0, and F would be infinite.
        # A certain answer's log p may be above 0 by rounding.
        logp = logp.clamp(min=math.log(torch.finfo(logp.dtype).tiny) + 1, max=0)
        p = logp.exp()
        # The first form is accurate near p = 1, the second near p = 0.
        log_rest = torch.where(logp > -1, torch.log(-torch.expm1(logp)), torch.log1p(-p))
        return -self.n * p * ((self.n - 1) * log_rest).exp() / torch.expm1(self.n * log_rest)

    def weigh_sequences(self, logq_B: Float[Tensor, " B"], length_B: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """F of each answer's probability."""
        return self.bounded(self.factor(logq_B))
