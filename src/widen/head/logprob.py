"""`linear_logprob`: log Q of every target token without the N x V logits. Every loss of the paper reads it (Sec. 5).

Shapes: N tokens, V vocabulary, D hidden, T target rows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from widen.data.rows import Rows

from .gradients import Gradients, KeptRows, add_active_rows, describe
from .head_config import HeadCall, HeadConfig, Impl, computing_on, config_for, uncompiled
from .host_copy import TargetRows
from .logit_buffer import LogitBuffer
from .row_ops import RowOps, RowStats, eager_logits, eager_logq, eager_stats, real_dtype

_FOUND = ("logq", "entropy", "top1")


@overload
def linear_logprob(
    hidden_ND: Float[Tensor, "N D"], head_VD: Float[Tensor, "V D"], target_N: Int[Tensor, " N"], *,
    needs: None = None, bias: Float[Tensor, " V"] | None = None, softcap: float | None = None, impl: Impl = "auto",
    ignore_index: int = -100, workspace: int | None = None, accumulate: torch.dtype | None = None,
) -> Float[Tensor, " N"]: ...  # fmt: skip
@overload
def linear_logprob(
    hidden_ND: Float[Tensor, "N D"], head_VD: Float[Tensor, "V D"], target_N: Int[Tensor, " N"], *,
    needs: Collection[str], bias: Float[Tensor, " V"] | None = None, softcap: float | None = None, impl: Impl = "auto",
    ignore_index: int = -100, workspace: int | None = None, accumulate: torch.dtype | None = None,
) -> Rows: ...  # fmt: skip
def linear_logprob(
    hidden_ND: Float[Tensor, "N D"],
    head_VD: Float[Tensor, "V D"],
    target_N: Int[Tensor, " N"],
    *,
    needs: Collection[str] | None = None,
    bias: Float[Tensor, " V"] | None = None,
    softcap: float | None = None,
    impl: Impl = "auto",
    ignore_index: int = -100,
    workspace: int | None = None,
    accumulate: torch.dtype | None = None,
) -> Float[Tensor, " N"] | Rows:
    r"""``log_softmax(hidden @ head.T + bias)[target]``, differentiable, with one chunk of logits in memory at a time.

    .. math::  \log Q_n = z_{n, x_n} - \log \sum_v e^{z_{nv}}, \qquad z = c \tanh\big((X W^\top + b) / c\big)

    It serves every loss, also those whose weights need whole sequences. The forward keeps the last chunk, and the backward computes the
    logits of the other chunks again. That takes four matrix products, minus one for the rows that were kept: three if all rows fit in one
    chunk. A row whose upstream gradient is 0 costs nothing in the backward.

    The kept chunk takes at most ``workspace`` bytes from the forward to the first backward, or until the graph is dropped. Several calls
    before one backward keep one chunk each; use a smaller ``workspace`` then. A second backward over a retained graph computes all logits
    again. dW is summed over chunks in the dtype of the products and rounded once per chunk.

    Args:
      hidden_ND: hidden states of all sequences, concatenated.
      head_VD: the weight of the head; it may be tied to the embedding, or frozen (then no dW is computed).
      target_N: index of the token to predict, or ``ignore_index``. Any other value outside the vocabulary is an error; this check waits
        for the device once per call.
      needs: columns to return, of ``logq``, ``entropy`` and ``top1``; None returns log Q alone.
      bias: added to the logits.
      softcap: c above; None leaves the logits alone.
      impl: ``eager`` keeps all logits and is the oracle; ``chunked`` runs on any device; ``triton`` needs CUDA; ``auto`` takes
        triton on CUDA and chunked elsewhere.
      ignore_index: rows with this target are dropped before the first product.
      workspace: bytes of logits in memory at a time. Default: 64 MB on a CPU; on a GPU 512 MB, 1 GB from 40 GB of memory and 2 GB
        from 80 GB.
      accumulate: dtype in which dW is summed; ``torch.float32`` rounds once, as ``F.linear`` does.

    Returns:
      log Q of each target in float32 (float64 for float64 tensors), 0 if the target is ignored. Under autocast the products run in
      autocast's dtype, like those of ``F.linear``. With ``needs``, the columns as `widen.losses.Rows`: log Q has a gradient, entropy and
      top-1 have none.

    Examples:
      >>> hidden, head = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(4, 2)
      >>> linear_logprob(hidden, head, torch.tensor([3, -100])).exp()
      tensor([0.2500, 1.0000])
      >>> linear_logprob(hidden, head, torch.tensor([3, -100]), needs={"logq", "entropy"}).entropy.exp()
      tensor([4., 1.])
    """
    if needs is not None and not set(needs) <= set(_FOUND):
        raise ValueError(f"needs={sorted(needs)}; legal: any of {', '.join(_FOUND)}")
    call = HeadCall(
        hidden_ND, head_VD, target_N, bias, impl, ignore_index, workspace, accumulate, RowOps(softcap=softcap)
    )
    found = uncompiled(_linear_logprob)(call, len(_FOUND) if needs is not None else 1)
    return found[0] if needs is None else Rows(found[0], entropy=found[1], top1=found[2]).only(needs)


def _linear_logprob(call: HeadCall, columns: int) -> tuple[Tensor, ...]:
    """The first columns of `_FOUND`."""
    hidden_ND, head_VD, target_N, bias_V = call[:4]
    config = config_for(call)
    with computing_on(hidden_ND):
        targets = TargetRows(target_N, len(head_VD), call.ignore_index, call.ops if config is None else config.ops)
    if config is None:
        row_T = targets.rows()
        target_T = _take(target_N, row_T)
        logp_TV = eager_logits(_take(hidden_ND, row_T), head_VD, bias_V, call.ops.softcap).log_softmax(-1)
        found = eager_logq(logp_TV, target_T), *eager_stats(logp_TV, target_T)[1:]
    else:
        with torch.no_grad(), computing_on(hidden_ND):
            head, bias = head_VD.to(config.dtype), None if bias_V is None else bias_V.to(config.dtype)
            # No early launch, which gains nothing here: on an H200 1.247 times the products with it, 1.243 without.
            buffer = LogitBuffer(hidden_ND, head, bias, target_N, config, config.new_buffer(len(hidden_ND), head))
        row_T = targets.rows()
        keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden_ND, head_VD, bias_V))
        with computing_on(hidden_ND):
            found = _Logprob.apply(hidden_ND, head_VD, bias_V, row_T, buffer, keep)  # type: ignore[no-untyped-call]
    if row_T is None:
        return found[:columns]
    return tuple(x_T.new_zeros(len(target_N)).index_copy(0, row_T, x_T) for x_T in found[:columns])


def _take(x_N: Tensor, row_T: Tensor | None) -> Tensor:
    """The target rows of ``x_N``."""
    x_T = x_N if row_T is None else x_N[row_T]
    return x_T if x_T.is_floating_point() else x_T.long().contiguous()


class _Logprob(torch.autograd.Function):
    """Log q, entropy and top-1 of each target row. Keeps the last chunk for the first backward."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None,
        row_T: Tensor | None, buffer: LogitBuffer, keep: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        total = len(buffer.target_N) if row_T is None else len(row_T)
        stats = RowStats.empty(total, buffer.head_VD, plain=True)
        buffer.start(total, row_T, stats)
        ctx.kept = describe(buffer, stats, keep=keep)  # freed with the graph
        ctx.config = buffer.config
        ctx.save_for_backward(hidden_ND, head_VD, bias_V, buffer.target_N, row_T)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(stats.entropy_C, stats.top1_C)
        return stats.logq_C, stats.entropy_C, stats.top1_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_T: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        hidden_ND, head_VD, bias_V, target_N, row_T = ctx.saved_tensors
        config: HeadConfig = ctx.config
        kept: KeptRows | None = ctx.kept
        ctx.kept = None  # overwritten below: a second backward computes these logits again
        head, bias = head_VD.to(config.dtype), None if bias_V is None else bias_V.to(config.dtype)
        dtypes = (config.dtype, torch.promote_types(config.dtype, config.accumulate or config.dtype))
        gradients = Gradients(hidden_ND, head, needs=ctx.needs_input_grad[:3], dtypes=dtypes, ops=config.ops)
        with computing_on(hidden_ND):
            memory = config.new_buffer(len(upstream_T), head) if kept is None else kept.memory
            buffer = LogitBuffer(hidden_ND, head, bias, target_N, config, memory)
            coefficient_T = -upstream_T.to(real_dtype(config.dtype))
            add_active_rows(gradients, buffer, kept, row_T, coefficient_T)
        like = (hidden_ND, head_VD, bias_V)
        grads = (None if g is None else g.to(x.dtype) for g, x in zip(gradients.finished(), like, strict=True))
        return *grads, None, None, None
