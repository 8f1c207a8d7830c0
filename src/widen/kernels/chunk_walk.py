"""The walk over the rows that count, a chunk of logits at a time, begun before the host knows which rows those are.

Shapes: N tokens, V vocabulary, D hidden, T rows whose target counts, C rows of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .gradients import logits_
from .plan import Plan, chunks, computing_on


class Part(NamedTuple):
    """Logits that have just been computed: rows ``at`` of the T, in ``z``. A chunk is one part, the first may be two."""

    at: slice
    z: Tensor
    chunk: slice
    """The rows of the whole chunk; its logits, hidden states and places among the N follow."""
    z_CV: Tensor
    hidden_CD: Tensor
    row: slice | Tensor

    @property
    def ends(self) -> bool:
        """Whether the chunk is complete."""
        return bool(self.at.stop == self.chunk.stop)


class ChunkWalk:
    """One buffer of logits and the order in which it is filled."""

    def __init__(self, hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None, plan: Plan) -> None:
        self.plan, self.hidden_ND, self.head_VD, self.bias_V = plan, hidden_ND, head_VD, bias_V
        self.buffer = plan.buffer(plan.rows(len(hidden_ND), len(head_VD)), head_VD)
        self.lead = 0

    def begin(self, row_N: Tensor | None) -> None:
        """Launch the lead: the logits of the first rows that count, before the host has learnt how many count.

        The device works while the host waits, and whatever is asked of those rows is answered while the rest of the first chunk
        is computed. Where fewer rows count than the lead has, the rest of the lead is computed for nothing.

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
        with torch.no_grad(), computing_on(self.hidden_ND):
            hidden_LD = self.hidden_ND[row_N[: self.lead]].to(plan.dtype)
            logits_(self.buffer[: self.lead], hidden_LD, self.head_VD, self.bias_V)

    def parts(self, total: int, row_T: Tensor | None) -> Iterator[Part]:
        """Every row of the T once. Asking for the next part overwrites the chunk before it."""
        for chunk in chunks(total, self.plan.rows(total, len(self.head_VD), len(self.buffer))):
            row = chunk if row_T is None else row_T[chunk]
            hidden_CD = self.hidden_ND[row].to(self.plan.dtype)
            size, lead = len(hidden_CD), self.lead if chunk.start == 0 else 0
            z_CV = self.buffer[:size]
            if lead:
                at = slice(0, min(lead, size))
                yield Part(at, z_CV[at], chunk, z_CV, hidden_CD, row)
            if lead < size:
                z = logits_(z_CV[lead:], hidden_CD[lead:], self.head_VD, self.bias_V)
                yield Part(slice(chunk.start + lead, chunk.stop), z, chunk, z_CV, hidden_CD, row)
