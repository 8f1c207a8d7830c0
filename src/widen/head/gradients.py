"""The backward products of the head: the residual of a chunk times the head, and times the hidden states.

Shapes: N tokens, V vocabulary, D hidden, C rows of a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .row_ops import RowOps, real_dtype

# float16 ends at 65,504: hidden states times a weight of 1e4 would overflow. A power of two costs no digit.
_HALF_HEADROOM = 2.0**-7


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
            coefficient_C, scale, pairs = coefficient_C * _HALF_HEADROOM, scale / _HALF_HEADROOM, []
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
