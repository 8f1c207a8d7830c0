"""Weights that come with the batch: a column of numbers instead of a function of the model."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from widen.data.rows import Rows

from .residual import PLAIN, Residual
from .weight import TokenWeight

__all__ = ["Column"]


@dataclass(frozen=True)
class Column(TokenWeight):
    """The weight of a token is its entry in a column of the batch.

    Args:
      name: of the column.
      residual: the direction that the weight multiplies.

    Examples:
      >>> import torch
      >>> Column("loss_weights").weigh(Rows(extra={"loss_weights": torch.tensor([0.5, 2.0])}))
      tensor([0.5000, 2.0000])
    """

    name: str
    residual: Residual = PLAIN  # type: ignore[misc]  # a field here, a class attribute elsewhere

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The column."""
        return frozenset({self.name})

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The column."""
        return rows[self.name]
