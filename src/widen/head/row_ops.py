"""The interface between the head and a chunk of logits: what is computed for each row, and the operations that compute it.

`TorchRowOps` runs on any device, `TritonRowOps` on CUDA. A new row statistic is a field of `RowStats` that both fill in `fill_stats`.

Shapes: N tokens, V vocabulary, D hidden, T target rows, C rows of a chunk, H holes, k entries of `SUMS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of log-sums and weights: float32 or better, whatever the model's dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


PLAIN = (1.0, 0.0, 0.0)
"""tau, smooth and entropy of the residual softmax - onehot."""


class RowStats(NamedTuple):
    """One number per row, in float32 (float64 for float64 logits), filled in place chunk by chunk."""

    logq_C: Float[Tensor, " C"]
    """Log-probability of the target."""
    entropy_C: Float[Tensor, " C"]
    top1_C: Float[Tensor, " C"]
    """1 if the target is the most likely token, else 0."""
    factor_C: Float[Tensor, " C"]
    """The residual of a row is this factor times the row that `RowOps.fill_stats` leaves in the buffer."""
    value_C: Float[Tensor, " C"]
    """The function of the logits whose gradient is minus the residual. For softmax - onehot that is log q, and both share memory."""

    @classmethod
    def empty(cls, rows: int, like: Tensor, *, plain: bool) -> RowStats:
        """Uninitialised memory for ``rows`` rows, on the device of ``like``."""
        # One tensor per field. Views of one table could not be edited in place by the caller of `linear_logprob`, and their unaligned
        # starts would make Triton compile another kernel.
        logq_C, *rest = (like.new_empty(rows, dtype=real_dtype(like.dtype)) for _ in range(4 if plain else 5))
        return cls(logq_C, *rest, logq_C) if plain else cls(logq_C, *rest)

    def part(self, chunk: slice) -> RowStats:
        """Views of the rows of one chunk: filling them fills the whole."""
        if chunk.start == 0 and chunk.stop == len(self.logq_C):
            return self
        return RowStats(*(x[chunk] for x in self))


class Compaction(NamedTuple):
    """How to move the active rows (weight other than 0) of a chunk to its front, with the fewest moves. All of it is on the device."""

    order_C: Tensor
    """The row that belongs in each place. Entries after the number of active rows are undefined."""
    hole_C: Tensor
    """The places at the front whose own row is inactive, in ascending order. Entries after the number of holes are undefined."""
    counts: Tensor
    """The number of active rows and the number of holes."""


SUMS = ("weighted", "weight", "squares", "largest", "counted", "logq", "entropy", "top1", "tokens")
"""Names of the sums over the targets of a call, in float64: of w times the value (log q for NLL; a weight of 0 times -inf is 0), of w and
of w^2; the largest weight; the number of weights other than 0; of log q, entropy and top-1; the number of targets. `widen.train.Figures`
has these fields. One launch computes them all: a small model waits for the host, and each launch costs it as much.
"""


@dataclass(frozen=True, kw_only=True)
class RowOps(ABC):
    """Operations on the rows of a chunk. Names that end in _ overwrite an argument.

    Args:
      softcap: c in ``c tanh(z / c)``, applied to the logits before anything else; None leaves them alone.
      tau, smooth, entropy: the residual is softmax(z/tau) - (1-smooth) onehot - smooth/V + entropy q (log q + H).
    """

    softcap: float | None = None
    tau: float = 1.0
    smooth: float = 0.0
    entropy: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether the residual is softmax - onehot."""
        return (self.tau, self.smooth, self.entropy) == PLAIN

    @abstractmethod
    def pitch(self, vocabulary: int) -> int:
        """Elements from the start of one row of the logits buffer to the start of the next."""

    @abstractmethod
    def bytes_per_row(self, vocabulary: int, dtype: torch.dtype) -> int:
        """Workspace that one row of logits takes."""

    @abstractmethod
    def find_targets(self, target_N: Tensor, vocabulary: int, ignore_index: int) -> tuple[Tensor | None, Tensor]:
        """The target rows, and two counts: target rows, and those whose target is outside the vocabulary.

        The rows are followed by zeros. They are None if finding them needs a wait for the device.
        """

    @abstractmethod
    def fill_stats(self, z_CV: Tensor, target_C: Tensor, stats: RowStats, *, residual: bool) -> None:
        """Fill ``stats``. With ``residual`` the logits become the residual / ``stats.factor_C``; without, they stay as they are."""

    @abstractmethod
    def find_active(self, w_C: Tensor) -> Compaction:
        """How to move the rows of weight other than 0 to the front."""

    @abstractmethod
    def move_rows_(self, z_CV: Tensor, order_C: Tensor, hole_H: Tensor) -> None:
        """``z[hole] = z[order[hole]]``. No row is both read and written."""

    @abstractmethod
    def scale_rows(self, coefficient_C: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
        """``out = x * coefficient`` row by row, for one or two pairs (x, out) of one shape; ``out`` may be ``x``."""

    @abstractmethod
    def multiply_(self, factor: Tensor, *tensors: Tensor) -> None:
        """``x *= factor`` for each tensor; free if the factor is 1."""

    @abstractmethod
    def sum_targets(self, each_kT: Tensor, value_T: Tensor) -> Tensor:
        """The `SUMS` from log q, weight, entropy and top-1 of every target row, and its value."""

    def compact_(self, z_CV: Tensor, compaction: Compaction, count: int, holes: int) -> Tensor:
        """Move the ``count`` active rows to the front of ``z_CV``; returns which rows they were."""
        if holes:
            self.move_rows_(z_CV, compaction.order_C, compaction.hole_C[:holes])
        return compaction.order_C[:count]
