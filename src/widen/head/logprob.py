"""`linear_logprob`: log Q of every target token without the N x V logits. Every loss of the paper reads it (Sec. 5).

Shapes: N tokens, V vocabulary, D hidden, T target rows, C rows of a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from .gradients import Gradients
from .head_config import HeadCall, HeadConfig, Impl, computing_on, config_for, row_ops
from .host_copy import HostCopy, TargetRows
from .logit_buffer import LogitBuffer
from .row_ops import RowStats, real_dtype
from .row_ops_torch import eager_logp, eager_logq


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

    It serves every loss, also those whose weights need whole sequences (Trunc, TruncR). The forward keeps the log-sum-exp of every row and
    the logits of the last chunk; the backward computes the logits of the other chunks again. That takes four matrix products, minus one
    for the rows that were kept: three if all rows fit in one chunk. A row whose upstream gradient is 0 costs nothing in the backward.
    For token-local weights, `weighted_linear_nll` always takes three products.

    The kept chunk takes at most ``workspace`` bytes from the forward to the first backward, or until the graph is dropped. Several calls
    before one backward keep one chunk each, also under activation checkpointing; use a smaller ``workspace`` then. Nothing is kept if no
    gradient is needed. A second backward over a retained graph computes all logits again.

    dW is summed over chunks in the dtype of the products and rounded once per chunk; ``F.linear`` rounds once. In bfloat16 the error
    stays as small as eager's for tens of chunks. ``accumulate=torch.float32`` rounds once and needs a float32 dW until the backward ends.

    Args:
      hidden_ND: hidden states of all sequences, concatenated.
      head_VD: the weight of the head; it may be tied to the embedding, or frozen (then no dW is computed).
      target_N: index of the token to predict, or ``ignore_index``. Any other value outside the vocabulary is an error; this check waits
        for the device once per call.
      bias: added to the logits.
      softcap: c above; None leaves the logits alone.
      impl: ``eager`` keeps all logits and is the oracle; ``chunked`` runs on any device; ``triton`` needs CUDA; ``auto`` takes
        triton on CUDA and chunked elsewhere.
      ignore_index: rows with this target are dropped before the first product.
      workspace: bytes of logits in memory at a time. Default: 64 MB on a CPU; on a GPU 512 MB, 1 GB from 40 GB of memory and 2 GB
        from 80 GB.
      accumulate: dtype in which dW is summed.

    Returns:
      log Q of each target in float32 (float64 for float64 tensors), 0 if the target is ignored. Under autocast the products run in
      autocast's dtype, like those of ``F.linear``.

    Examples:
      >>> hidden, head = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(4, 2)
      >>> linear_logprob(hidden, head, torch.tensor([3, -100])).exp()
      tensor([0.2500, 1.0000])
    """
    call = HeadCall(hidden_ND, head_VD, target_N, bias, softcap, impl, ignore_index, workspace, accumulate)
    run: Any = _linear_logprob
    if torch.compiler.is_compiling():  # shapes depend on data: break the graph and run the head as it is
        run = torch.compiler.disable(run)  # type: ignore[no-untyped-call]
    logq_N: Tensor = run(call)
    return logq_N


def _linear_logprob(call: HeadCall) -> Tensor:
    hidden_ND, head_VD, target_N, bias_V = call[:4]
    config = config_for(call)
    with computing_on(hidden_ND):
        ops = row_ops("chunked") if config is None else config.ops
        targets = TargetRows(target_N, len(head_VD), call.ignore_index, ops)
    if config is None:
        row_T = targets.rows()
        target_T = _take(target_N, row_T)
        logq_T = eager_logq(eager_logp(_take(hidden_ND, row_T), head_VD, bias_V, call.softcap), target_T)
    else:
        with torch.no_grad(), computing_on(hidden_ND):
            head, bias = head_VD.to(config.dtype), None if bias_V is None else bias_V.to(config.dtype)
            # No early launch, which gains nothing here: on an H200 1.247 times the products with it, 1.243 without.
            buffer = LogitBuffer(hidden_ND, head, bias, config, config.new_buffer(len(hidden_ND), head))
        row_T = targets.rows()
        target_T = _take(target_N, row_T)
        with computing_on(hidden_ND):
            logq_T = _Logprob.apply(hidden_ND, head_VD, bias_V, target_T, row_T, buffer)  # type: ignore[no-untyped-call]
    return logq_T if row_T is None else logq_T.new_zeros(len(target_N)).index_copy(0, row_T, logq_T)


def _take(x_N: Tensor, row_T: Tensor | None) -> Tensor:
    """The target rows of ``x_N``."""
    x_T = x_N if row_T is None else x_N[row_T]
    return x_T if x_T.is_floating_point() else x_T.long().contiguous()


class _KeptLogits(NamedTuple):
    """The last chunk of the forward, at the start of ``memory``: rows ``at`` of the T, ``row`` of the N."""

    memory: Tensor
    at: slice
    row: slice | Tensor


class _BackwardRows(NamedTuple):
    """What the backward needs of some target rows; ``row_T`` None means that they are the first rows of the N."""

    row_T: Tensor | None
    target_T: Tensor
    lse_T: Tensor
    coefficient_T: Tensor

    def first(self, count: int) -> _BackwardRows:
        if count == len(self.target_T):
            return self
        return _BackwardRows(None if self.row_T is None else self.row_T[:count], *(x[:count] for x in self[1:]))

    def select(self, at: Tensor) -> _BackwardRows:
        return _BackwardRows(at if self.row_T is None else self.row_T[at], *(x[at] for x in self[1:]))


class _Logprob(torch.autograd.Function):
    """Saves the log-sum-exp of each row and the logits of the last chunk."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None,
        target_T: Tensor, row_T: Tensor | None, buffer: LogitBuffer,
    ) -> Tensor:  # fmt: skip
        stats = RowStats.empty(len(target_T), buffer.head_VD)
        last = None
        buffer.start(len(target_T), row_T)
        for chunk in buffer.chunks():
            buffer.config.ops.fill_logq(chunk.z_CV, target_T[chunk.at], stats.part(chunk.at))
            last = chunk
        ctx.save_for_backward(hidden_ND, head_VD, bias_V, target_T, row_T, stats.lse_C)
        ctx.config = buffer.config
        ctx.kept = None if last is None else _KeptLogits(buffer.memory, last.at, last.row)  # freed with the graph
        return stats.logq_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_T: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, head_VD, bias_V, target_T, row_T, lse_T = ctx.saved_tensors
        config: HeadConfig = ctx.config
        kept, ctx.kept = ctx.kept, None  # overwritten below: a second backward computes these logits again
        head, bias = head_VD.to(config.dtype), None if bias_V is None else bias_V.to(config.dtype)
        dtypes = (config.dtype, torch.promote_types(config.dtype, config.accumulate or config.dtype))
        gradients = Gradients(hidden_ND, head, needs=ctx.needs_input_grad[:3], dtypes=dtypes, ops=config.ops)
        rows = _BackwardRows(row_T, target_T, lse_T, -upstream_T.to(real_dtype(config.dtype)))
        with computing_on(hidden_ND):
            rest = _add_kept(gradients, kept, rows, hidden_ND, config)
            memory = config.new_buffer(len(rest.target_T), head) if kept is None else kept.memory
            buffer = LogitBuffer(hidden_ND, head, bias, config, memory)
            buffer.start(len(rest.target_T), rest.row_T)
            for chunk in buffer.chunks():  # the logits that were not kept, again
                config.ops.residual_(chunk.z_CV, *(x[chunk.at] for x in rest[1:]))
                gradients.add(chunk.z_CV, chunk.hidden_CD, chunk.row)
        like = (hidden_ND, head_VD, bias_V)
        grads = (None if g is None else g.to(x.dtype) for g, x in zip(gradients.finished(), like, strict=True))
        return *grads, None, None, None


def _add_kept(
    gradients: Gradients, kept: _KeptLogits | None, rows: _BackwardRows, hidden_ND: Tensor, config: HeadConfig
) -> _BackwardRows:
    """Add the active rows whose logits were kept; returns the other active rows.

    Waits for the device once, to count the active rows: this can save most of the backward.
    """
    total, ops = len(rows.target_T), config.ops
    start = total if kept is None else kept.at.start
    others = rows.first(start)
    active = others.coefficient_T.count_nonzero()[None]
    if kept is None:
        (others_active,), count = HostCopy(active).read(), 0
    else:
        compaction = ops.find_active(rows.coefficient_T[kept.at])
        others_active, count, holes = HostCopy(torch.cat((active, compaction.counts))).read()
    if others_active + count < total:
        gradients.clear_hidden()  # inactive rows are never added
    if kept is not None and count:
        target_C, lse_C, coefficient_C = (x[kept.at] for x in rows[1:])
        row, z_CV = kept.row, kept.memory[:count]
        if count < total - start:
            order_C = ops.compact_(kept.memory, compaction, count, holes)
            row = order_C + start if isinstance(row, slice) else row[order_C]
            target_C, lse_C, coefficient_C = target_C[order_C], lse_C[order_C], coefficient_C[order_C]
        ops.residual_(z_CV, target_C, lse_C, coefficient_C)
        gradients.add(z_CV, hidden_ND[row].to(config.dtype), row)
    return others if others_active == start else others.select(others.coefficient_T.nonzero()[:, 0])
