"""Losses that keep a model near a reference model: a KL penalty as a weight on the targets of the data.

Shapes: N target tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from widen.data.rows import Rows

from .weight import Bounded

REF_LOGQ = "ref_logq"
"""Column of the batch with the reference model's log-probability of each target."""


@dataclass(frozen=True, kw_only=True)
class Anchor(Bounded):
    r"""NLL plus ``kl`` times :math:`\tfrac12 (\log q - \log r)^2`, where r is the reference model's probability of the target.

    .. math::  w_l = \max(0,\ 1 - \text{kl}\,(\log \bar q - \log r))

    The square estimates the KL divergence between model and reference from the target alone; the two agree to second order where q is
    near r. A target that the model already prefers more than the reference by the factor exp(1/kl) has weight 0. ``kl = 0`` is NLL.
    Converges to a distribution between P and the reference (:func:`widen.theory.optima.anchor`).

    As a factor, ``cdiv:alpha=1.4 * anchor:kl=0.1``, it anchors another loss.

    Examples:
      >>> import torch
      >>> rows = Rows(torch.tensor([0.5, 0.5]).log(), extra={"ref_logq": torch.tensor([0.5, 0.25]).log()})
      >>> Anchor(kl=1.0).weigh(rows).round(decimals=4)
      tensor([1.0000, 0.3069])
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq", REF_LOGQ})
    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= kl < inf",)
    kl: float = 0.1

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """Falls with the logarithm of q over r."""
        return self.bounded((1 - self.kl * (rows.logq - rows[REF_LOGQ])).clamp(min=0))


@dataclass(frozen=True, kw_only=True)
class ASFT(Bounded):
    r"""Anchored supervised fine-tuning (Zhu et al., 2025): DFT plus ``kl`` times the target's term of KL(reference || model).

    .. math::  w_l = \bar q + \text{kl}\; r

    The authors add :math:`\text{kl} \sum_v r_v (\log r_v - \log q_v)` over the whole vocabulary at every target. Here only the term of the
    target is kept, -kl r log q, since only the reference's log-probability of the target is stored: tokens that the data never shows at a
    place are not anchored. Summed over every token as the target, the gradient is the authors'.

    ``kl = 0`` is DFT; the authors' code uses 0.1. Converges to :math:`q \propto P r / (Z - P)` (:func:`widen.theory.optima.asft`): the
    likeliest token of P as kl -> 0, P times the reference as kl -> inf.

    Examples:
      >>> import torch
      >>> ASFT(kl=0.5).weigh(Rows(torch.tensor([0.25]).log(), extra={"ref_logq": torch.tensor([0.5]).log()}))
      tensor([0.5000])
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq", REF_LOGQ})
    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= kl < inf",)
    kl: float = 0.1

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The model's probability of the target, plus kl times the reference's."""
        return self.bounded(rows.logq.exp() + self.kl * rows[REF_LOGQ].exp())
