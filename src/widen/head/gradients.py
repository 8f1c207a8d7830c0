"""The backward products of the head: the residual of a chunk times the head, and times the hidden states.

`linear_logprob` learns the coefficients of its rows only in the backward. So it takes two steps: `describe` all rows, then
`add_active_rows`. The first keeps the last chunk in the buffer, as residuals. The second multiplies the active rows of that chunk and
computes the logits of the other active rows again. With a fraction a of active rows this takes 1 + 2a products if all rows fit in the
buffer, and at most 1 + 3a if they do not.

Shapes: N tokens, V vocabulary, D hidden, T target rows, C rows of a chunk.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .host_copy import HostCopy
from .logit_buffer import LogitBuffer
from .row_ops import RowOps, RowStats, real_dtype


def _power_of_two(x_C: Tensor) -> float:
    """The power of two next above the largest absolute value; 1 if that is 0 or not finite."""
    top = float(x_C.abs().amax())
    return 2.0 ** math.ceil(math.log2(top)) if 0 < top < math.inf else 1.0


def add_product_(into: Tensor, left: Tensor, right: Tensor, *, scale: float, fresh: bool) -> None:
    """``into += scale * left @ right``, or ``=`` if ``into`` is ``fresh``: its memory is then uninitialised."""
    beta = 0 if fresh else 1
    if into.dtype == left.dtype:
        torch.addmm(into, left, right, beta=beta, alpha=scale, out=into)
    elif into.device.type == "cuda" and into.dtype == torch.float32:
        torch.addmm(into, left, right, out_dtype=into.dtype, beta=beta, alpha=scale, out=into)
    else:
        torch.addmm(into, left.to(into.dtype), right.to(into.dtype), beta=beta, alpha=scale, out=into)


class Gradients:
    """Gradients of hidden states (dX), head (dW) and bias, summed chunk by chunk. Rows that are never added have gradient 0.

    Args:
      needs: whether the gradients of hidden states, head and bias are needed; the products of the others are not computed.
      dtypes: of dX and dW.
    """

    def __init__(
        self, hidden_ND: Tensor, head_VD: Tensor, *,
        needs: tuple[bool, ...], dtypes: tuple[torch.dtype, torch.dtype], ops: RowOps,
    ) -> None:  # fmt: skip
        self._head_VD, self._ops, self._wide = head_VD, ops, dtypes[1]
        self.hidden = hidden_ND.new_empty(hidden_ND.shape, dtype=dtypes[0]) if needs[0] else None
        self.head = head_VD.new_empty(head_VD.shape, dtype=dtypes[1]) if needs[1] else None
        self.bias = head_VD.new_zeros(len(head_VD), dtype=real_dtype(head_VD.dtype)) if needs[2] else None
        self._fresh, self._cleared = True, False

    def add(
        self, residual_CV: Tensor, hidden_CD: Tensor, row: slice | Tensor, coefficient_C: Tensor, *, scale: float = 1.0
    ) -> None:
        """Add ``scale`` times the gradients of one chunk, whose rows ``coefficient_C`` multiplies.

        The coefficient multiplies the D columns of the hidden states and of dX, not the V columns of the residual: the residual can be
        written before the weights are known, and the logits are read from memory once.
        """
        dx_CD = None if self.hidden is None else self._hidden_product(self.hidden, residual_CV, row, scale)
        pairs = [] if dx_CD is None else [(dx_CD, dx_CD)]
        if residual_CV.dtype == torch.float16:
            if pairs:
                self._ops.scale_rows(coefficient_C, *pairs)
            # float16 holds 6e-8 to 65,504: hidden states times a weight of 1e4 overflow, times 1e-6 they underflow.
            step = _power_of_two(coefficient_C)  # costs no digit
            coefficient_C, scale, pairs = coefficient_C / step, scale * step, []
        if self.head is not None:
            scaled_CD = hidden_CD.new_empty(hidden_CD.shape)
            pairs.append((hidden_CD, scaled_CD))
            hidden_CD = scaled_CD
        if pairs:
            self._ops.scale_rows(coefficient_C, *pairs)  # both in one launch: a small model waits for the host
        if self.hidden is not None and dx_CD is not None:
            self._place(self.hidden, dx_CD, row)
            del dx_CD, pairs  # free it before the next product, if it is not part of dX itself
        if self.head is not None:
            add_product_(self.head, residual_CV.t(), hidden_CD, scale=scale, fresh=self._fresh)
        if self.bias is not None:
            one_C1 = coefficient_C.to(residual_CV)[:, None]
            add_product_(self.bias[:, None], residual_CV.t(), one_C1, scale=scale, fresh=False)
        self._fresh = False

    def _hidden_product(self, dx_ND: Tensor, residual_CV: Tensor, row: slice | Tensor, scale: float) -> Tensor:
        """The product for dX: in its final place if possible, else in memory of its own."""
        # With `accumulate` the weighted row is rounded once; without, the product is rounded and then its multiple.
        into_row = isinstance(row, slice) and self._wide == dx_ND.dtype
        dx_CD = dx_ND[row] if into_row else dx_ND.new_empty(len(residual_CV), dx_ND.shape[1], dtype=self._wide)
        add_product_(dx_CD, residual_CV, self._head_VD, scale=scale, fresh=True)
        return dx_CD

    def _place(self, dx_ND: Tensor, dx_CD: Tensor, row: slice | Tensor) -> None:
        """Copy the result of `_hidden_product`, now weighted, to its rows, unless it is there."""
        if isinstance(row, Tensor):
            if self._fresh:
                self.clear_hidden()  # some rows may never be added
            dx_ND.index_copy_(0, row, dx_CD.to(dx_ND.dtype))
        elif dx_CD.dtype != dx_ND.dtype:
            dx_ND[row] = dx_CD

    def clear_hidden(self) -> None:
        """Set dX to 0. Call this before the first `add` if some rows may never be added."""
        if self.hidden is not None and not self._cleared:
            self.hidden.zero_()
            self._cleared = True

    def finished(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """dX, dW and the gradient of the bias; 0 if nothing was added."""
        if self._fresh:
            self.clear_hidden()
            if self.head is not None:
                self.head.zero_()
        return self.hidden, self.head, self.bias


class KeptRows(NamedTuple):
    """The last chunk, at the start of ``memory``: rows from ``start`` on of the T, rows ``row`` of the N."""

    memory: Tensor
    start: int
    row: slice | Tensor
    factor_C: Tensor
    """`RowStats.factor_C` of these rows."""


def describe(buffer: LogitBuffer, stats: RowStats, *, keep: bool) -> KeptRows | None:
    """Fill ``stats`` of all target rows; with ``keep``, returns the last chunk. The buffer has been started."""
    kept = None
    for chunk in buffer.chunks():
        last, here = keep and chunk.at.stop == buffer.total, stats.part(chunk.at)
        buffer.config.ops.fill_stats(chunk.z_CV, buffer.target_T[chunk.at], here, residual=last)
        if last:
            kept = KeptRows(buffer.memory, chunk.at.start, chunk.row, here.factor_C)
    return kept


def add_active_rows(
    gradients: Gradients, buffer: LogitBuffer, kept: KeptRows | None,
    row_T: Tensor | None, coefficient_T: Tensor, *, scale: float = 1.0,
) -> None:  # fmt: skip
    """Add the gradients of the rows whose coefficient is not 0. ``row_T`` None means that the target rows are the first of the N.

    Waits for the device once, to count the active rows. The kept rows are overwritten.
    """
    total, ops = len(coefficient_T), buffer.config.ops
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
        add_again(gradients, buffer, row_A, coefficient_T[at], scale)


def add_again(
    gradients: Gradients, buffer: LogitBuffer, row_T: Tensor | None, coefficient_T: Tensor, scale: float
) -> None:
    """Compute the logits of these rows again, and add their gradients chunk by chunk."""
    ops, total = buffer.config.ops, len(coefficient_T)
    stats = RowStats.empty(total, buffer.head_VD, plain=ops.plain)
    buffer.start(total, row_T, stats)
    for chunk in buffer.chunks():
        here = stats.part(chunk.at)
        ops.fill_stats(chunk.z_CV, buffer.target_T[chunk.at], here, residual=True)
        here.factor_C.mul_(coefficient_T[chunk.at])
        gradients.add(chunk.z_CV, chunk.hidden_CD, chunk.row, here.factor_C, scale=scale)
