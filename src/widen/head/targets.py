"""Which rows count, asked of the device and awaited later.

Shapes: N tokens, T rows whose target counts.
"""

from __future__ import annotations

from torch import Tensor

from .answer import Answer
from .plan import RowOps


class TargetRows:
    """The rows whose target counts: asked of the device when made, awaited in `rows`.

    Whatever the host has to prepare belongs between the two, and whatever the device can do for any answer: it would stand still
    otherwise, from its answer to the first launch that follows. ``row_N`` holds the rows that count, end to end, before the host
    knows how many there are; what follows them is 0. None where the row operations cannot tell without a wait.
    """

    def __init__(self, target_N: Tensor, vocabulary: int, ignore_index: int, ops: RowOps) -> None:
        self._target_N, self._vocabulary, self._ignore = target_N, vocabulary, ignore_index
        self.row_N, counts = ops.pick(target_N, vocabulary, ignore_index)
        self._counts = Answer(counts)

    def rows(self) -> Tensor | None:
        """Their indices, or None where all rows count.

        One wait for the device, which tells two things at once: how many rows count, and whether any target lies outside the
        vocabulary. That is refused here, since further on it would read a stranger's logit and give a wrong number.
        """
        count, wrong = self._counts.read()
        if wrong:
            wrong_N = (self._target_N != self._ignore) & ((self._target_N < 0) | (self._target_N >= self._vocabulary))
            raise ValueError(
                f"target_N has {wrong} value(s) outside the vocabulary, the first {self._target_N[wrong_N][0].item()}; "
                f"legal: 0 <= target < {self._vocabulary}, or ignore_index={self._ignore}"
            )
        if count == len(self._target_N):
            return None
        return (self._target_N != self._ignore).nonzero()[:, 0] if self.row_N is None else self.row_N[:count]
