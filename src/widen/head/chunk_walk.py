"""The walk over the rows that count, a chunk of logits at a time, begun before the host knows which rows those are.

Shapes: N tokens, V vocabulary, D hidden, T rows whose target counts, C rows of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from .gradients import logits_
from .plan import Plan

_ALIGNED = 16
"""Rows: parts behind others begin at a multiple of it, where Triton has a faster kernel, and needs no other."""


class Part(NamedTuple):
    """Logits that have just been computed: rows ``at`` of the T, which are ``row`` of the N."""

    at: slice
    z_CV: Tensor
    hidden_CD: Tensor
    row: slice | Tensor


class ChunkWalk:
    """One buffer of logits and the order in which it is filled: `begin` (where a lead may gain something), then `start`, then `parts`."""

    def __init__(self, hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None, plan: Plan) -> None:
        self.plan, self.hidden_ND, self.head_VD, self.bias_V = plan, hidden_ND, head_VD, bias_V
        self.buffer = plan.buffer(plan.rows(len(hidden_ND), len(head_VD)), head_VD)
        self.lead = 0
        self.held = 0
        """Rows at the front of the buffer that the next part leaves alone."""

    def begin(self, row_N: Tensor | None) -> None:
        """Launch the lead: the logits of the first rows that count, before the host has learnt how many count.

        The device works while the host waits. Where fewer rows count than the lead has, the rest of the lead is computed for
        nothing.

        Args:
          row_N: the rows that count, end to end, then zeros: `TargetRows.row_N`. A plan with a lead needs it.
        """
        plan = self.plan
        self.lead = plan.lead_rows(len(self.hidden_ND), len(self.buffer), self.head_VD)
        if self.lead == 0:
            return
        if row_N is None:
            raise ValueError(
                f"a lead of {self.lead} rows needs row operations that find them without a wait, unlike {plan.ops}"
            )
        hidden_LD = self.hidden_ND[row_N[: self.lead]].to(plan.dtype)
        logits_(self.buffer[: self.lead], hidden_LD, self.head_VD, self.bias_V)

    def start(self, total: int, row_T: Tensor | None) -> None:
        """The host has learnt that ``total`` rows count, ``row_T`` of the N: launch what the lead left of the first chunk.

        Nothing comes before that launch, neither the targets nor the weights of the lead: it is what the device has to do while
        the host prepares them.
        """
        self.row_T, self.total = row_T, total
        self.rows = self.plan.rows(total, len(self.head_VD), len(self.buffer))
        self._next = self._fill(0, self.lead) if total else None

    def parts(self) -> Iterator[Part]:
        """Every row that counts once, in the order of the T. The next part goes behind the rows that are `held` when it is asked for."""
        while self._next is not None:
            yield self._next
            stop = self._next.at.stop
            self._next = self._fill(stop, 0) if stop < self.total else None

    def _fill(self, start: int, lead: int) -> Part:
        """Launch the logits of the rows from ``start`` on that there is room for, but the first ``lead``, which have been launched."""
        room = self.rows - self.held
        if self.held and room > _ALIGNED:
            room -= room % _ALIGNED
        at = slice(start, min(start + room, self.total))
        row = at if self.row_T is None else self.row_T[at]
        hidden_CD = self.hidden_ND[row].to(self.plan.dtype)
        z_CV = self.buffer[self.held : self.held + len(hidden_CD)]
        if lead < len(hidden_CD):
            logits_(z_CV[lead:], hidden_CD[lead:], self.head_VD, self.bias_V)
        return Part(at, z_CV, hidden_CD, row)
