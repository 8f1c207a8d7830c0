"""`linear_logprob`: log Q of every target token, without keeping the N x V logits (what every loss of the paper reads, Sec. 5).

Shapes: N tokens, V vocabulary, D hidden, T rows whose target counts.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from .eager import eager_logp, eager_logq
from .gradients import Gradients, Wanted, add_recomputed, logits_
from .plan import Impl, Plan, TargetRows, beside, check_shapes, chunks, plan_for, product_dtype
from .stats import RowStats, real_dtype


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

    The log-sum-exp is kept and the backward computes the logits again, chunk by chunk: four products instead of three. It
    serves every loss, also those whose weights need whole sequences (Trunc, TruncR). Where the weights are token-local,
    `weighted_linear_nll` needs three. Rows whose upstream gradient is 0 cost nothing in the backward: a loss that drops
    sequences pays only for those it keeps.

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
      workspace: bytes of logits at a time, 64 MB on a CPU, 512 MB on a GPU and 1 GB on one of 40 GB or more unless given.
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
    asked = TargetRows(target_N, len(head_VD), ignore_index)
    dtype = product_dtype(hidden_ND, head_VD, bias_V)
    plan = plan_for(impl, head_VD, dtype, softcap, workspace, accumulate)
    row_T = asked.rows()
    target_T = (target_N if row_T is None else target_N[row_T]).long()
    if plan is None:
        hidden_TD = hidden_ND if row_T is None else hidden_ND[row_T]
        logq_T = eager_logq(eager_logp(hidden_TD, head_VD, bias_V, softcap), target_T)
    else:
        with beside(hidden_ND):
            logq_T = _Logprob.apply(hidden_ND, head_VD, bias_V, target_T, row_T, plan)  # type: ignore[no-untyped-call]
    return logq_T if row_T is None else logq_T.new_zeros(len(target_N)).index_copy(0, row_T, logq_T)


class _Logprob(torch.autograd.Function):
    """Keeps the log-sum-exp of each row, not its logits."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        head_VD: Tensor,
        bias_V: Tensor | None,
        target_T: Tensor,
        row_T: Tensor | None,
        plan: Plan,
    ) -> Tensor:
        head = head_VD.to(plan.dtype)
        bias = None if bias_V is None else bias_V.to(plan.dtype)
        total = len(target_T)
        stats = RowStats.empty(total, head)
        buffer = plan.buffer(plan.rows(total, len(head)), head)
        for chunk in chunks(total, len(buffer)):
            hidden_CD = hidden_ND[chunk if row_T is None else row_T[chunk]].to(plan.dtype)
            z_CV = logits_(buffer[: len(hidden_CD)], hidden_CD, head, bias)
            plan.ops.normalise(z_CV, target_T[chunk], stats.part(chunk), softcap=plan.softcap)
        ctx.save_for_backward(hidden_ND, head_VD, bias_V, target_T, row_T, stats.lse_C)
        ctx.plan = plan
        return stats.logq_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_T: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, head_VD, bias_V, target_T, row_T, lse_T = ctx.saved_tensors
        plan: Plan = ctx.plan
        head = head_VD.to(plan.dtype)
        hold = (plan.dtype, torch.promote_types(plan.dtype, plan.accumulate or plan.dtype))
        gradients = Gradients(hidden_ND, head, Wanted(*ctx.needs_input_grad[:3]), ops=plan.ops, hold=hold, alpha=1.0)
        active = upstream_T.nonzero()[:, 0]  # one wait for the device; what it saves can be most of the backward
        if len(active) < len(target_T):
            row_T = active if row_T is None else row_T[active]
            target_T, lse_T, upstream_T = target_T[active], lse_T[active], upstream_T[active]
        with beside(hidden_ND):
            add_recomputed(
                gradients, hidden_ND, head, None if bias_V is None else bias_V.to(plan.dtype), plan,
                row_T=row_T, target_T=target_T, lse_T=lse_T, coefficient_T=-upstream_T.to(real_dtype(plan.dtype)),
            )  # fmt: skip
        dx, dw, db = gradients.finished()
        like = (hidden_ND, head_VD, bias_V)
        grads = (None if g is None else g.to(x.dtype) for g, x in zip((dx, dw, db), like, strict=True))
        return *grads, None, None, None
