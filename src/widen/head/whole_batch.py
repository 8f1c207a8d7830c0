"""Two steps for weights that depend on more than one chunk: describe all rows, then the backward products of the active ones.

The first step keeps the last chunk in the buffer, as residuals. The second multiplies the active rows of that chunk and computes the logits
of the other active rows again. With a fraction a of active rows this takes 1 + 2a products if all rows fit in the buffer, and at most
1 + 3a if they do not.

Shapes: N tokens, V vocabulary, D hidden, T target rows, C rows of a chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .gradients import Gradients
from .host_copy import HostCopy
from .logit_buffer import LogitBuffer
from .row_ops import RowStats


class KeptRows(NamedTuple):
    """The last chunk, at the start of ``memory``: rows from ``start`` on of the T, rows ``row`` of the N."""

    memory: Tensor
    start: int
    row: slice | Tensor
    factor_C: Tensor
    """`RowStats.factor_C` of these rows."""


def describe(buffer: LogitBuffer, target_T: Tensor, stats: RowStats, *, keep: bool) -> KeptRows | None:
    """Fill ``stats`` of all target rows; with ``keep``, returns the last chunk. The buffer has been started."""
    kept = None
    for chunk in buffer.chunks():
        last, here = keep and chunk.at.stop == len(target_T), stats.part(chunk.at)
        buffer.config.ops.fill_stats(chunk.z_CV, target_T[chunk.at], here, residual=last)
        if last:
            kept = KeptRows(buffer.memory, chunk.at.start, chunk.row, here.factor_C)
    return kept


def add_active_rows(
    gradients: Gradients, buffer: LogitBuffer, kept: KeptRows | None,
    target_T: Tensor, row_T: Tensor | None, coefficient_T: Tensor, *, scale: float = 1.0,
) -> None:  # fmt: skip
    """Add the gradients of the rows whose coefficient is not 0. ``row_T`` None means that the target rows are the first of the N.

    Waits for the device once, to count the active rows. The kept rows are overwritten.
    """
    total, ops = len(target_T), buffer.config.ops
    start = total if kept is None else kept.start
    active = coefficient_T[:start].count_nonzero()[None]
    count = holes = 0
    if kept is None:
        (others,) = HostCopy(active).read()
    else:
        compaction = ops.find_active(coefficient_T[start:])
        others, count, holes = HostCopy(torch.cat((active, compaction.counts))).read()
    if others + count < total:
        gradients.clear_hidden()  # inactive rows are never added
    if kept is not None and count:
        row, coefficient_C = kept.row, kept.factor_C * coefficient_T[start:]
        if count < total - start:
            order_C = ops.compact_(kept.memory, compaction, count, holes)
            row = order_C + start if isinstance(row, slice) else row[order_C]
            coefficient_C = coefficient_C[order_C]
        hidden_CD = buffer.hidden_ND[row].to(buffer.config.dtype)
        gradients.add(kept.memory[:count], hidden_CD, row, coefficient_C, scale=scale)
    if others:
        at = slice(start) if others == start else coefficient_T[:start].nonzero()[:, 0]
        row_A = at if row_T is None and isinstance(at, Tensor) else None if row_T is None else row_T[at]
        _add_again(gradients, buffer, target_T[at], row_A, coefficient_T[at], scale)


def _add_again(
    gradients: Gradients, buffer: LogitBuffer, target_T: Tensor, row_T: Tensor | None, coefficient_T: Tensor, scale: float
) -> None:  # fmt: skip
    """Compute the logits of these rows again, and add their gradients chunk by chunk."""
    ops, stats = buffer.config.ops, RowStats.empty(len(target_T), buffer.head_VD, plain=buffer.config.ops.plain)
    buffer.start(len(target_T), row_T)
    for chunk in buffer.chunks():
        here = stats.part(chunk.at)
        ops.fill_stats(chunk.z_CV, target_T[chunk.at], here, residual=True)
        here.factor_C.mul_(coefficient_T[chunk.at])
        gradients.add(chunk.z_CV, chunk.hidden_CD, chunk.row, here.factor_C, scale=scale)
