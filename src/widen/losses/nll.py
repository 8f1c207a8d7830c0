"""Negative log-likelihood: every token counts once (paper, Sec. 2.1). The baseline, and what evaluation always reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from widen.data.rows import Rows

from .weight import Bounded


@dataclass(frozen=True, kw_only=True)
class NLL(Bounded):
    r"""Cross entropy, :math:`w_l = 1`. Converges to P itself (:func:`widen.theory.optima.nll`).

    Other losses can only gain where training is imperfect, or where the training distribution is not the target.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logq"})
    never_zero: ClassVar[bool] = True

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """One."""
        return self.bounded(torch.ones_like(rows.logq))
