"""Which rows count, and numbers that the host asks of the device without making it stand still.

Shapes: N tokens, T rows whose target counts.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from .plan import RowOps


class Answer:
    """A few numbers on their way to the host: asked now, read later. What is launched in between hides the wait.

    ``x.item()`` would wait for all that was launched before it is called, this only for what was launched before it was asked.
    """

    _spare: ClassVar[dict[Any, list[tuple[Tensor, Any]]]] = {}
    """Pinned memory and events of answers that were read, by shape: to make them takes the host longer than the copy."""

    def __init__(self, x: Tensor) -> None:
        self._host = x
        self._ready: Any = None
        self._read: Any = None
        if x.is_cuda:
            self._key = (x.shape, x.dtype, x.device)
            self._host, self._ready = self._room(x)
            self._host.copy_(x, non_blocking=True)
            # On the stream of the copy: the current device need not be that of x.
            self._ready.record(torch.cuda.current_stream(x.device))

    def _room(self, x: Tensor) -> tuple[Tensor, Any]:
        try:
            return self._spare.setdefault(self._key, []).pop()
        except IndexError:
            with torch.inference_mode(False):  # memory made in inference mode could not be written to outside it
                return torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=True), torch.cuda.Event()  # type: ignore[no-untyped-call]

    def read(self) -> Any:
        """The numbers, as `Tensor.tolist` gives them."""
        if self._read is None:
            if self._ready is not None:
                self._ready.synchronize()
            self._read = self._host.tolist()
            if self._ready is not None:
                self._spare[self._key].append((self._host, self._ready))
        return self._read


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
