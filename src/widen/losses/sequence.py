"""The base of losses that weigh whole sequences: every target token of a sequence gets one weight.

Shapes: B sequences (one per row), L positions.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from widen.data.rows import Rows

from .weight import State, TokenWeight


class SequenceWeight(TokenWeight):
    """A weight of whole sequences, defined by `weigh_sequences`. Inherit from it to write such a loss of your own.

    A loss f(log Q(x)) of the sequence's log-probability has the weight -f'(log Q(x)) on each of its tokens: that gives its gradient.

    Examples:
      >>> class Rare(SequenceWeight):
      ...     def weigh_sequences(self, logq_B, length_B):
      ...         return 1 - logq_B.exp()
      >>> w, _ = Rare().apply(Rows(torch.tensor([[0.5, 0.5]]).log()), torch.tensor([[True, True]]), ())
      >>> w
      tensor([[0.7500, 0.7500]])
    """

    token_local: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"logq"})

    def weigh_sequences(self, logq_B: Float[Tensor, " B"], length_B: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """The weight of each sequence, at least 0.

        Args:
          logq_B: log-probability of all target tokens of each sequence, detached, in float64.
          length_B: the number of these tokens; 0 for a row without targets, whose weight is not used.
        """
        raise TypeError(f"{type(self).__name__} must define weigh_sequences(logq_B, length_B)")

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """Refused: the weight of a token depends on its whole sequence."""
        raise TypeError(f"{type(self).__name__} weighs whole sequences, not tokens: call apply(rows, mask_BL, state)")

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """The weight of each row on its target tokens, 0 elsewhere."""
        logq_B = torch.where(mask_BL, rows.logq, 0.0).double().sum(-1)
        w_B = self.weigh_sequences(logq_B, mask_BL.sum(-1)).to(rows.logq.dtype)
        return torch.where(mask_BL, w_B[:, None], 0.0), state
