"""`linear_logprob`: log Q of every target token, without keeping the N x V logits (what every loss of the paper reads, Sec. 5).

Shapes: N tokens, V vocabulary, D hidden, T rows whose target counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from .answer import Answer
from .chunk_walk import ChunkWalk
from .eager import eager_logp, eager_logq
from .gradients import Gradients, Wanted, add_recomputed
from .held_rows import to_the_front
from .plan import Impl, Plan, check_shapes, computing_on, plan_for, product_dtype, row_ops
from .stats import RowStats, real_dtype
from .targets import TargetRows


def linear_logprob(
    hidden_ND: Float[Tensor, "N D"],
    head_VD: Float[Tensor, "V D"],
    target_N: Int[Tensor, " N"],
    *,
    bias: Float[Tensor, " V"] | None = None,
    softcap: float | None = None,
    impl: Impl = "auto",
    ignore_index: int = -100,
    workspace: int | None = None,
    accumulate: torch.dtype | None = None,
) -> Float[Tensor, " N"]:
    r"""``log_softmax(hidden @ head.T + bias)[target]``, differentiable, with one chunk of logits in memory at a time.

    .. math::  \log Q_n = z_{n, x_n} - \log \sum_v e^{z_{nv}}, \qquad z = c \tanh\big((X W^\top + b) / c\big)

    It serves every loss, also those whose weights need whole sequences (Trunc, TruncR). The forward leaves the log-sum-exp of
    every row and the logits of the last chunk; the backward computes those of the other chunks again: four products less the
    kept rows' share of one, hence three where all rows fit in one chunk. Where the weights are token-local,
    `weighted_linear_nll` never needs more than three. A row whose upstream gradient is 0 costs nothing in the backward: a loss that drops
    sequences pays only for those it keeps.

    The kept chunk is memory: at most ``workspace`` bytes from the forward to the first backward, which needs as much anyway, or
    until the graph is dropped. Several calls before one backward hold that much each, and activation checkpointing does not
    free it: a smaller ``workspace`` is the remedy. Nothing is kept under ``torch.no_grad`` or where no gradient is asked for. A
    second backward over a retained graph computes all logits again.

    dW is summed over chunks in the products' dtype, one rounding a chunk, where ``F.linear`` rounds once: in bfloat16 the
    errors stay of the size of eager's own for tens of chunks. ``accumulate=torch.float32`` rounds once, at the price of a
    float32 dW until the backward ends.

    Args:
      hidden_ND: hidden states, all sequences end to end.
      head_VD: the head's weight; it may be the embedding too (tied), or frozen (then no dW is computed).
      target_N: index of the token to predict, or ``ignore_index``. Anything else outside the vocabulary is refused, at the
        price of one wait for the device per call (the wait tells which rows to drop, too).
      bias: added to the logits.
      softcap: c above; None leaves the logits alone.
      impl: ``eager`` keeps all logits and is the oracle; ``chunked`` runs on any device; ``triton`` needs CUDA; ``auto`` takes
        triton on CUDA and chunked elsewhere.
      ignore_index: rows with this target are dropped before the first product.
      workspace: bytes of logits at a time. Unless given, 64 MB on a CPU; on a GPU 512 MB, 1 GB from 40 GB of memory and 2 GB
        from 80 GB.
      accumulate: dtype in which dW is summed.

    Returns:
      log Q of each target in float32 (float64 for float64 tensors), 0 where the target is ignored. Under autocast the
      products run in autocast's dtype, as those of ``F.linear`` would.

    Examples:
      >>> hidden, head = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(4, 2)
      >>> linear_logprob(hidden, head, torch.tensor([3, -100])).exp()
      tensor([0.2500, 1.0000])
    """
    if torch.compiler.is_compiling():  # data-dependent rows: the graph breaks here, and the head runs as it always does
        run: Any = torch.compiler.disable(_linear_logprob)  # type: ignore[no-untyped-call]
    else:
        run = _linear_logprob
    out_N: Tensor = run(hidden_ND, head_VD, target_N, bias, softcap, impl, ignore_index, workspace, accumulate)
    return out_N


def _linear_logprob(
    hidden_ND: Tensor, head_VD: Tensor, target_N: Tensor, bias_V: Tensor | None, softcap: float | None, impl: Impl,
    ignore_index: int, workspace: int | None, accumulate: torch.dtype | None,
) -> Tensor:  # fmt: skip
    check_shapes(hidden_ND, head_VD, target_N, bias_V)
    plan = plan_for(impl, head_VD, product_dtype(hidden_ND, head_VD, bias_V), softcap, workspace, accumulate)
    with computing_on(hidden_ND):
        asked = TargetRows(target_N, len(head_VD), ignore_index, row_ops("chunked") if plan is None else plan.ops)
    if plan is None:
        row_T = asked.rows()
        target_T = _of(target_N, row_T)
        logq_T = eager_logq(eager_logp(_of(hidden_ND, row_T), head_VD, bias_V, softcap), target_T)
    else:
        with torch.no_grad(), computing_on(hidden_ND):
            head, bias = head_VD.to(plan.dtype), None if bias_V is None else bias_V.to(plan.dtype)
            # Without a lead, which gained nothing here: on an H200 1.247 times the products with it, 1.243 without.
            logits = ChunkWalk(hidden_ND, head, bias, plan)
        row_T = asked.rows()
        target_T = _of(target_N, row_T)
        with computing_on(hidden_ND):
            logq_T = _Logprob.apply(hidden_ND, head_VD, bias_V, target_T, row_T, logits)  # type: ignore[no-untyped-call]
    return logq_T if row_T is None else logq_T.new_zeros(len(target_N)).index_copy(0, row_T, logq_T)


def _of(x_N: Tensor, row_T: Tensor | None) -> Tensor:
    """The rows that count."""
    x_T = x_N if row_T is None else x_N[row_T]
    return x_T if x_T.is_floating_point() else x_T.long().contiguous()


class _Logprob(torch.autograd.Function):
    """Keeps the log-sum-exp of each row and the logits of the last chunk, in the buffer they came in."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        head_VD: Tensor,
        bias_V: Tensor | None,
        target_T: Tensor,
        row_T: Tensor | None,
        logits: ChunkWalk,
    ) -> Tensor:
        plan = logits.plan
        stats = RowStats.empty(len(target_T), logits.head_VD)
        last = None
        logits.start(len(target_T), row_T)
        for part in logits.parts():
            plan.ops.normalise(part.z_CV, target_T[part.at], stats.part(part.at), softcap=plan.softcap)
            last = part
        ctx.save_for_backward(hidden_ND, head_VD, bias_V, target_T, row_T, stats.lse_C)
        ctx.plan = plan
        # Freed with the graph, or where there is none.
        ctx.kept = None if last is None else _Kept(logits.buffer, last.at, last.row)
        return stats.logq_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_T: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, head_VD, bias_V, target_T, row_T, lse_T = ctx.saved_tensors
        plan: Plan = ctx.plan
        kept, ctx.kept = ctx.kept, None  # used up below: a second backward computes these logits again
        head = head_VD.to(plan.dtype)
        hold = (plan.dtype, torch.promote_types(plan.dtype, plan.accumulate or plan.dtype))
        gradients = Gradients(hidden_ND, head, Wanted(*ctx.needs_input_grad[:3]), ops=plan.ops, hold=hold, alpha=1.0)
        rows = _Rows(row_T, target_T, lse_T, -upstream_T.to(real_dtype(plan.dtype)))
        with computing_on(hidden_ND):
            rest = _add_kept(gradients, kept, rows, hidden_ND, plan)
            add_recomputed(
                gradients, hidden_ND, head, None if bias_V is None else bias_V.to(plan.dtype), plan,
                buffer=None if kept is None else kept.buffer,
                row_T=rest.row_T, target_T=rest.target_T, lse_T=rest.lse_T, coefficient_T=rest.coefficient_T,
            )  # fmt: skip
        dx, dw, db = gradients.finished()
        like = (hidden_ND, head_VD, bias_V)
        grads = (None if g is None else g.to(x.dtype) for g, x in zip((dx, dw, db), like, strict=True))
        return *grads, None, None, None


class _Kept(NamedTuple):
    """Logits that the forward left in its buffer: those of the rows ``at`` of the T, its last; ``row`` of the N."""

    buffer: Tensor
    at: slice
    row: slice | Tensor


class _Rows(NamedTuple):
    """What the backward knows of rows that count; ``row_T`` None: they are the first of the N."""

    row_T: Tensor | None
    target_T: Tensor
    lse_T: Tensor
    coefficient_T: Tensor

    def first(self, count: int) -> _Rows:
        return self if count == len(self.target_T) else _Rows(*(None if x is None else x[:count] for x in self))  # type: ignore[arg-type]

    def some(self, at: Tensor) -> _Rows:
        return _Rows(at if self.row_T is None else self.row_T[at], *(x[at] for x in self[1:]))


def _add_kept(gradients: Gradients, kept: _Kept | None, rows: _Rows, hidden_ND: Tensor, plan: Plan) -> _Rows:
    """Add the rows whose logits are at hand; those of the others that have a gradient, which are still to come.

    One wait for the device, which tells how many rows have one; what it saves can be most of the backward.
    """
    total, ops = len(rows.target_T), plan.ops
    start = total if kept is None else kept.at.start
    others = rows.first(start)
    counts = others.coefficient_T.count_nonzero()[None]
    if kept is None:
        (active,), count = Answer(counts).read(), 0
    else:
        front = ops.front(rows.coefficient_T[kept.at])
        active, count, holes = Answer(torch.cat((counts, front.counts))).read()
    if active + count < total:
        gradients.clear_hidden()  # the rows that nobody adds
    if kept is not None and count:
        target_C, lse_C, coefficient_C = (x[kept.at] for x in rows[1:])
        row, z_CV = kept.row, kept.buffer[:count]
        if count < total - start:
            order_C = to_the_front(kept.buffer, front, (count, holes), ops)
            row = order_C + start if isinstance(row, slice) else row[order_C]
            target_C, lse_C, coefficient_C = target_C[order_C], lse_C[order_C], coefficient_C[order_C]
        ops.residual_(z_CV, target_C, lse_C, coefficient_C, softcap=plan.softcap)
        gradients.add(z_CV, hidden_ND[row].to(plan.dtype), row)
    return others if active == start else others.some(others.coefficient_T.nonzero()[:, 0])
