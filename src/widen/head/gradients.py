"""The backward products of the head: the residual of a chunk times the head, and times the hidden states.

Shapes: N tokens, V vocabulary, D hidden, C rows of a chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .plan import Plan, RowOps, chunks
from .stats import real_dtype

# float16 ends at 65,504: hidden states times a weight of 1e4 would pass it. A power of two costs no digit.
_HALF_HEADROOM = 2.0**-7


class Wanted(NamedTuple):
    """Which gradients somebody will ask for; a product that nobody asked for is not computed."""

    hidden: bool
    head: bool
    bias: bool

    @classmethod
    def of(cls, hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None) -> Wanted:
        """From ``requires_grad``, and nothing under ``torch.no_grad``."""
        on = torch.is_grad_enabled()
        return cls(
            on and hidden_ND.requires_grad,
            on and head_VD.requires_grad,
            on and bias_V is not None and bias_V.requires_grad,
        )


def logits_(z_CV: Tensor, hidden_CD: Tensor, head_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    """``hidden @ head.T + bias`` into ``z_CV``."""
    if bias_V is None:
        return torch.mm(hidden_CD, head_VD.t(), out=z_CV)
    return torch.addmm(bias_V, hidden_CD, head_VD.t(), out=z_CV)


def add_product_(into: Tensor, left: Tensor, right: Tensor, *, alpha: float, fresh: bool) -> None:
    """``into = alpha left @ right``, plus what ``into`` held unless it is ``fresh`` (then its memory may hold anything)."""
    beta = 0 if fresh else 1
    if into.dtype == left.dtype:
        torch.addmm(into, left, right, beta=beta, alpha=alpha, out=into)
    elif into.device.type == "cuda" and into.dtype == torch.float32:
        torch.addmm(into, left, right, out_dtype=into.dtype, beta=beta, alpha=alpha, out=into)
    else:
        torch.addmm(into, left.to(into.dtype), right.to(into.dtype), beta=beta, alpha=alpha, out=into)


class Gradients:
    """The gradients of hidden states, head and bias while they are summed chunk by chunk, times one constant ``alpha``.

    ``hold`` is the dtype in which dX and dW are kept. A row that is never added has gradient 0.
    """

    def __init__(
        self, hidden_ND: Tensor, head_VD: Tensor, wanted: Wanted, *,
        ops: RowOps, hold: tuple[torch.dtype, torch.dtype], alpha: float,
    ) -> None:  # fmt: skip
        self.head_VD, self.ops, self.alpha, self._wide = head_VD, ops, alpha, hold[1]
        self.hidden = hidden_ND.new_empty(hidden_ND.shape, dtype=hold[0]) if wanted.hidden else None
        self.head = head_VD.new_empty(head_VD.shape, dtype=hold[1]) if wanted.head else None
        self.bias = head_VD.new_zeros(len(head_VD), dtype=real_dtype(head_VD.dtype)) if wanted.bias else None
        self._fresh, self._blank = True, False

    def add(
        self, residual_CV: Tensor, hidden_CD: Tensor, row: slice | Tensor, coefficient_C: Tensor | None = None
    ) -> None:
        """Add one chunk. ``coefficient_C`` multiplies its rows where the residual does not hold it yet.

        The coefficient goes on the D columns of the hidden states and of dX, not on the V columns of the residual: so the
        residual can be written before the weights are known, and the logits are read from memory once.
        """
        dx_CD = None if self.hidden is None else self._hidden_product(self.hidden, residual_CV, row, coefficient_C)
        alpha = self.alpha
        if coefficient_C is not None:
            pairs = [] if dx_CD is None else [(dx_CD, dx_CD)]
            if residual_CV.dtype == torch.float16:
                if pairs:
                    self.ops.scale(coefficient_C, *pairs)
                coefficient_C, alpha, pairs = coefficient_C * _HALF_HEADROOM, alpha / _HALF_HEADROOM, []
            if self.head is not None:
                scaled_CD = hidden_CD.new_empty(hidden_CD.shape)
                pairs.append((hidden_CD, scaled_CD))
                hidden_CD = scaled_CD
            if pairs:
                self.ops.scale(coefficient_C, *pairs)  # both in one launch: a small model waits for the host
        if self.hidden is not None and dx_CD is not None:
            self._place(self.hidden, dx_CD, row)
            del dx_CD  # not beside the next product, where it is no part of dX itself
        if self.head is not None:
            add_product_(self.head, residual_CV.t(), hidden_CD, alpha=alpha, fresh=self._fresh)
        if self.bias is not None:
            one_C = residual_CV.new_ones(len(residual_CV)) if coefficient_C is None else coefficient_C
            add_product_(self.bias[:, None], residual_CV.t(), one_C.to(residual_CV)[:, None], alpha=alpha, fresh=False)
        self._fresh = False

    def _hidden_product(
        self, dx_ND: Tensor, residual_CV: Tensor, row: slice | Tensor, coefficient_C: Tensor | None
    ) -> Tensor:
        """The product for dX: in its place where it may lie there, else in memory of its own."""
        # Under `accumulate` the weighted row is rounded once; else the product is rounded, then its multiple.
        wide = self._wide if coefficient_C is not None else dx_ND.dtype
        into_row = isinstance(row, slice) and wide == dx_ND.dtype
        dx_CD = dx_ND[row] if into_row else dx_ND.new_empty(len(residual_CV), dx_ND.shape[1], dtype=wide)
        add_product_(dx_CD, residual_CV, self.head_VD, alpha=self.alpha, fresh=True)
        return dx_CD

    def _place(self, dx_ND: Tensor, dx_CD: Tensor, row: slice | Tensor) -> None:
        """Bring what `_hidden_product` gave, now multiplied, to its rows."""
        if isinstance(row, Tensor):
            if self._fresh:
                self.clear_hidden()  # the rows that nobody adds
            dx_ND.index_copy_(0, row, dx_CD.to(dx_ND.dtype))
        elif dx_CD.dtype != dx_ND.dtype:
            dx_ND[row] = dx_CD

    def clear_hidden(self) -> None:
        """Set dX to 0 before anything is added, for rows that may never be."""
        if self.hidden is not None and not self._blank:
            self.hidden.zero_()
            self._blank = True

    def finished(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """dX, dW and db. Where nothing was added they are 0."""
        if self._fresh:
            self.clear_hidden()
            if self.head is not None:
                self.head.zero_()
        return self.hidden, self.head, self.bias


def add_recomputed(
    gradients: Gradients,
    hidden_ND: Tensor,
    head_VD: Tensor,
    bias_V: Tensor | None,
    plan: Plan,
    *,
    row_T: Tensor | None,
    target_T: Tensor,
    lse_T: Tensor,
    coefficient_T: Tensor,
    buffer: Tensor | None = None,
) -> None:
    """Compute the logits of some rows again, in full chunks, and add their gradients: one product more, no logits kept.

    ``buffer`` is room from an earlier walk; without it there is a new one.
    """
    total = len(target_T)
    rows = plan.rows(total, len(head_VD), None if buffer is None else len(buffer))
    if buffer is None:
        buffer = plan.buffer(rows, head_VD)
    for chunk in chunks(total, rows):
        row = chunk if row_T is None else row_T[chunk]
        hidden_CD = hidden_ND[row].to(plan.dtype)
        z_CV = logits_(buffer[: len(hidden_CD)], hidden_CD, head_VD, bias_V)
        plan.ops.residual_(z_CV, target_T[chunk], lse_T[chunk], coefficient_T[chunk], softcap=plan.softcap)
        gradients.add(z_CV, hidden_CD, row)
