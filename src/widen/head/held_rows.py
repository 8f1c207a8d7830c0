"""The rows of weight other than 0, end to end at the front of the buffer until the backward products take them.

A row of weight 0 has no gradient. So the rows that have one move into the places of those that have none, and the logits of the next
rows come behind them: the products take nothing else, and take them half a buffer or more at a time. One product for every row and two
for those that count, no logits twice, no second buffer. Of a share a of rows that count, a (1 - a) move.

Shapes: N tokens, V vocabulary, D hidden, T rows whose target counts, C rows of a chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .answer import Answer
from .chunk_walk import ChunkWalk, Part
from .plan import RowOps
from .stats import Front


def to_the_front(z_CV: Tensor, front: Front, counts: tuple[int, int], ops: RowOps) -> Tensor:
    """Move the rows that count to the front of ``z_CV``; which they were."""
    count, holes = counts
    if holes:
        ops.move_(z_CV, front.order_C, front.hole_C[:holes])
    return front.order_C[:count]


class Taken(NamedTuple):
    """Rows for the products: their residuals and hidden states, places among the T and among the N."""

    z_CV: Tensor
    hidden_CD: Tensor
    at: slice | Tensor
    row: slice | Tensor


class HeldRows:
    """Those rows of a walk: `add` part by part, `take` where they are `ready`."""

    def __init__(self, walk: ChunkWalk) -> None:
        self._walk = walk
        self._whole: Part | None = None
        self._at: list[Tensor] = []
        self._end = 0

    def add(self, part: Part, w_C: Tensor | None) -> None:
        """Hold the rows of a part that weigh something; None where the weight promises that all do.

        A wait for the device, which tells how many they are: nothing can be launched before, since the products want that number.
        """
        walk, ops, size = self._walk, self._walk.plan.ops, len(part.z_CV)
        self._end = part.at.stop
        count, order_C = size, None
        if w_C is not None:
            front = ops.front(w_C)
            count, holes = Answer(front.counts).read()
            order_C = to_the_front(part.z_CV, front, (count, holes), ops) if count < size else None
        if walk.held == 0 and count == size:
            self._whole = part  # no room is left then, or no row is to come: it is taken before the next
        else:
            at_C = torch.arange(size, device=part.z_CV.device) if order_C is None else order_C
            self._at.append(at_C + part.at.start if part.at.start else at_C)
        walk.held += count

    @property
    def ready(self) -> bool:
        """Whether it is time for the products: no row is to come, or too little room is left for those that are."""
        walk, rest = self._walk, self._walk.total - self._end
        full = 2 * walk.held > walk.rows
        in_the_way = rest <= walk.rows < rest + walk.held  # of all others at once
        return walk.held > 0 and (rest == 0 or full or in_the_way)

    def take(self) -> Taken:
        """All that is held; from here on nothing is."""
        walk, whole, at = self._walk, self._whole, self._at
        z_CV = walk.buffer[: walk.held]
        self._whole, self._at, walk.held = None, [], 0
        if whole is not None:
            return Taken(z_CV, whole.hidden_CD, whole.at, whole.row)
        at_C = at[0] if len(at) == 1 else torch.cat(at)
        row_C = at_C if walk.row_T is None else walk.row_T[at_C]
        return Taken(z_CV, walk.hidden_ND[row_C].to(walk.plan.dtype), at_C, row_C)
