"""The walk over the rows that count, a chunk of logits at a time, begun before the host knows which rows those are.

Shapes: N tokens, V vocabulary, D hidden, T rows whose target counts, C rows of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from .gradients import logits_
from .plan import Plan, chunks


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
    """One buffer of logits and the order in which it is filled: `begin` (where a lead may gain something), then `start`, then `parts`."""

    def __init__(self, hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None, plan: Plan) -> None:
        self.plan, self.hidden_ND, self.head_VD, self.bias_V = plan, hidden_ND, head_VD, bias_V
        self.buffer = plan.buffer(plan.rows(len(hidden_ND), len(head_VD)), head_VD)
        self.lead = 0

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
        self._row_T = row_T
        self._chunks = list(chunks(total, self.plan.rows(total, len(self.head_VD), len(self.buffer))))
        self._first = self._fill(self._chunks[0], self.lead) if self._chunks else None

    def parts(self) -> Iterator[Part]:
        """Every row that counts once. Asking for the next part overwrites the chunk before it.

        The first chunk comes in two parts where there is a lead, so that what is asked of the first is answered while the
        second keeps the device busy.
        """
        for chunk in self._chunks:
            filled, self._first = self._first or self._fill(chunk, 0), None
            size = chunk.stop - chunk.start
            lead = min(self.lead, size) if chunk.start == 0 else 0
            for low, high in ((0, lead), (lead, size)):
                if low < high:
                    yield Part(slice(chunk.start + low, chunk.start + high), filled[0][low:high], chunk, *filled)

    def _fill(self, chunk: slice, lead: int) -> tuple[Tensor, Tensor, slice | Tensor]:
        """Launch the logits of a chunk but its first ``lead`` rows: all its logits, its hidden states, its places among the N."""
        row = chunk if self._row_T is None else self._row_T[chunk]
        hidden_CD = self.hidden_ND[row].to(self.plan.dtype)
        z_CV = self.buffer[: len(hidden_CD)]
        if lead < len(hidden_CD):
            logits_(z_CV[lead:], hidden_CD[lead:], self.head_VD, self.bias_V)
        return z_CV, hidden_CD, row
