"""One buffer of logits, filled chunk by chunk with the target rows, and the active rows that wait in it for the backward products.

A row of weight 0 has no gradient. The other rows of a chunk, the active rows, move to the front of the buffer, and the logits of the
next chunk follow them. The products then take half a buffer or more of active rows at a time: one product for every row, two more for
each active row, no logits computed twice, no second buffer. If a fraction a of the rows is active, a(1 - a) of all rows move.

If the weights depend on whole sequences, chunks end where sequences end. Only a sequence that exceeds the buffer is cut.

Shapes: N tokens, V vocabulary, D hidden, T target rows, C rows of a chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .head_config import HeadConfig
from .host_copy import HostCopy
from .row_ops import RowStats

_ALIGNED = 16
"""Align each chunk to 16 rows so that Triton compiles only the fast kernel."""


class Chunk(NamedTuple):
    """Logits just computed: rows ``at`` of the T target rows, which are rows ``row`` of the N tokens."""

    z_CV: Tensor
    hidden_CD: Tensor
    at: slice
    row: slice | Tensor
    ends: bool
    """Whether the last row ends a sequence; True if sequences do not matter."""


class ActiveRows(NamedTuple):
    """Rows for the backward products: residuals, hidden states, and their places among the T and the N."""

    z_CV: Tensor
    hidden_CD: Tensor
    at: slice | Tensor
    row: slice | Tensor


class LogitBuffer:
    """Call `start_early` (optional) and `start`, then iterate over `chunks`; `hold` keeps a chunk's active rows for the products.

    ``memory`` comes from `HeadConfig.new_buffer`.
    """

    def __init__(
        self, hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, config: HeadConfig, memory: Tensor
    ) -> None:  # fmt: skip
        self.config, self.memory = config, memory
        self.hidden_ND, self.head_VD, self.bias_V, self.target_N = hidden_ND, head_VD, bias_V, target_N
        self._right = config.ops.right_factor(head_VD)
        self.early = 0
        self._held = 0  # active rows at the front of the buffer
        self._held_at: list[Tensor] = []  # their places among the T, one tensor per chunk
        self._held_whole: Chunk | None = None  # instead of places, if they are all rows of one chunk

    def start_early(self, row_N: Tensor | None, stats: RowStats) -> None:
        """Launch the logits of the first target rows before the host knows how many there are.

        The device computes while the host waits. If there are fewer target rows, the rest of these logits is wasted.

        Args:
          row_N: the target rows, then zeros (`TargetRows.row_N`); required if the config asks for an early launch.
          stats: of all target rows; its first rows are theirs.
        """
        self.early = self.config.early_rows(len(self.hidden_ND), len(self.memory), self.head_VD)
        if self.early == 0:
            return
        if row_N is None:
            raise ValueError(
                f"an early launch of {self.early} rows needs row operations that find them without a wait, unlike "
                f"{type(self.config.ops).__name__}"
            )
        row_C, at = row_N[: self.early], slice(self.early)
        ops, hidden_CD = self.config.ops, self.hidden_ND[row_C].to(self.config.dtype)
        # Rows without a target, and targets not yet checked, may be among them: any token will do there, but it must exist.
        target_C = self.target_N[row_C].clamp(0, len(self.head_VD) - 1) if ops.needs_targets else None
        ops.product_(self.memory[at], hidden_CD, self._right, self.bias_V, target_C, stats.part(at))

    def start(self, total: int, row_T: Tensor | None, stats: RowStats, ends: list[int] | None = None) -> None:
        """Launch the rest of the first chunk, now that the host knows the ``total`` target rows; ``row_T`` None means all rows.

        Call this before anything else is launched: it keeps the device busy while the host prepares targets and weights.

        Args:
          total, row_T: the target rows.
          stats: of these rows; row operations that compute them with the logits fill them.
          ends: the number of target rows up to the end of each sequence; chunks then hold whole sequences. None: chunks end anywhere.
        """
        self.row_T, self.total, self._ends, self._stats = row_T, total, ends, stats
        self.target_T = (self.target_N[:total] if row_T is None else self.target_N[row_T]).long().contiguous()
        room = len(self.memory)
        self.rows = self.config.chunk_rows(total, len(self.head_VD), room) if ends is None else min(total, room)
        self._next = self._fill(0, self.early) if total else None
        self.early = 0

    def chunks(self) -> Iterator[Chunk]:
        """Every target row once, in order. The next chunk is launched when it is asked for, after the rows that are held."""
        while self._next is not None:
            yield self._next
            stop = self._next.at.stop
            self._next = self._fill(stop, 0) if stop < self.total else None

    def _fill(self, start: int, done: int) -> Chunk:
        """Launch the logits of as many rows from ``start`` on as fit, except the first ``done``, which were launched early."""
        stop, ends = self._stop(start)
        at = slice(start, stop)
        row = at if self.row_T is None else self.row_T[at]
        hidden_CD = self.hidden_ND[row].to(self.config.dtype)
        z_CV = self.memory[self._held : self._held + len(hidden_CD)]
        if done < len(hidden_CD):
            new = slice(start + done, stop)
            self.config.ops.product_(
                z_CV[done:], hidden_CD[done:], self._right, self.bias_V, self.target_T[new], self._stats.part(new)
            )
        return Chunk(z_CV, hidden_CD, at, row, ends)

    def _stop(self, start: int) -> tuple[int, bool]:
        """The last row, exclusive, of the chunk that begins at ``start``, and whether it ends a sequence."""
        room = self.rows - self._held
        if self._ends is None:
            if self._held and room > _ALIGNED:
                room -= room % _ALIGNED
            return min(start + room, self.total), True
        fitting = bisect_right(self._ends, start + room)
        stop = self._ends[fitting - 1] if fitting else 0
        return (stop, True) if stop > start else (start + room, False)

    def hold(self, chunk: Chunk, w_C: Tensor | None) -> ActiveRows | None:
        """Hold the active rows of a chunk; returns all held rows once it is time for their products.

        Waits for the device to count the active rows, unless ``w_C`` is None, which promises that all are. Nothing can be launched
        before: the products need that number.
        """
        ops, size, start = self.config.ops, len(chunk.z_CV), chunk.at.start
        count, order_C = size, None
        if w_C is not None:
            compaction = ops.find_active(w_C)
            count, holes = HostCopy(compaction.counts).read()
            order_C = ops.compact_(chunk.z_CV, compaction, count, holes) if count < size else None
        if self._held == 0 and count == size:
            self._held_whole = chunk  # it fills the buffer or is the last: it is taken below
        else:
            at_C = torch.arange(size, device=chunk.z_CV.device) if order_C is None else order_C
            self._held_at.append(at_C + start if start else at_C)
        self._held += count
        return self._take() if self._held and self._is_time(chunk.at.stop) else None

    def _is_time(self, done: int) -> bool:
        """Whether no rows are left after the first ``done``, or too little room is left for them."""
        rest = self.total - done
        full = 2 * self._held > self.rows
        in_the_way = rest <= self.rows < rest + self._held  # without the held rows, all others would fit at once
        return rest == 0 or full or in_the_way or not self._stop(done)[1]  # the next sequence does not fit

    def _take(self) -> ActiveRows:
        z_CV, whole, at = self.memory[: self._held], self._held_whole, self._held_at
        self._held, self._held_whole, self._held_at = 0, None, []
        if whole is not None:
            return ActiveRows(z_CV, whole.hidden_CD, whole.at, whole.row)
        at_C = at[0] if len(at) == 1 else torch.cat(at)
        row_C = at_C if self.row_T is None else self.row_T[at_C]
        return ActiveRows(z_CV, self.hidden_ND[row_C].to(self.config.dtype), at_C, row_C)
