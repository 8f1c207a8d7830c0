"""`weighted_linear_nll`: head and weighted loss in one pass, the gradient taken in the forward (paper, Algorithm 1).

Shapes: N tokens, V vocabulary, D hidden, T rows whose target counts, C rows of a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from .answer import Answer
from .chunk_walk import ChunkWalk
from .eager import eager_logp, eager_logq, eager_stats
from .gradients import Gradients, Wanted
from .held_rows import HeldRows
from .plan import Impl, Plan, RowOps, check_shapes, computing_on, plan_for, product_dtype, row_ops
from .stats import HeadLoss, RowStats, TokenLocalWeight, real_dtype, target_sums
from .targets import TargetRows


def weighted_linear_nll(
    hidden_ND: Float[Tensor, "N D"],
    head_VD: Float[Tensor, "V D"],
    target_N: Int[Tensor, " N"],
    weight: TokenLocalWeight,
    *,
    position_N: Int[Tensor, " N"] | None,
    length_N: Int[Tensor, " N"] | None,
    num_tokens: float | Tensor,
    bias: Float[Tensor, " V"] | None = None,
    softcap: float | None = None,
    impl: Impl = "auto",
    workspace: int | None = None,
    accumulate: torch.dtype | None = None,
    ignore_index: int = -100,
) -> HeadLoss:
    r"""Weighted NLL of the targets and its gradient in three matrix products, with one chunk of logits in memory at a time.

    .. math::  -\frac1n \sum_{t} \bar w_t \log Q_t, \qquad \bar w_t = w(\log \bar Q_t, l_t, L_t)

    For weights that look at one token (NLL, c-Div, TaiLr, lambda-PR, a five-line class of yours): per chunk the logits, their
    log-sum-exp and softmax - onehot in place, ``weight.at`` in PyTorch, and two products. A row of weight 0 costs no backward
    product: those that count move together before they are multiplied (`held_rows`), 1 + 2a products for a share a of them.

    The gradient is ready when the forward ends and is handed over by ``backward``, times the upstream gradient, once: a second
    backward through the same loss is refused. dW is summed over chunks in the products' dtype, one rounding a chunk;
    ``accumulate=torch.float32`` rounds once, at the price of a float32 dW until the forward ends and of a second read of the logits:
    without it Triton reads them once, and in bfloat16 rounds NLL's hidden states as it does other weights'. In float16 dX and dW
    are always held in float32 until the backward, since a gradient that the loss scale has not multiplied yet would underflow.

    Args:
      hidden_ND, head_VD, target_N, bias, softcap, impl, ignore_index, workspace, accumulate: as for `linear_logprob`.
      weight: ``weight.at(logq, position, length)`` is called on each chunk, in float32.
      position_N: l = 1..L, the place of each target among the targets of its sequence; ignored rows may hold anything. None for
        a weight that looks at neither position nor length.
      length_N: L, the number of targets of the sequence; None likewise.
      num_tokens: targets of the whole optimizer step, all ranks and micro-batches. A tensor is read on the host.

    Returns:
      `HeadLoss`: the loss, and log q, weight, entropy and top-1 of each row, from the same pass in every implementation. A
      batch without targets gives a differentiable 0.

    Examples:
      >>> class Square:
      ...     token_local = True
      ...     def at(self, logq_N, position_N, length_N):
      ...         return (-logq_N).exp()
      >>> hidden, head = torch.ones(2, 3, requires_grad=True), torch.zeros(4, 3, requires_grad=True)
      >>> one = torch.ones(2, dtype=torch.long)
      >>> out = weighted_linear_nll(hidden, head, torch.tensor([1, -100]), Square(), position_N=one, length_N=one, num_tokens=1)
      >>> round(out.loss.item(), 4), out.w_N.tolist(), out.num_targets      # 4 log 4
      (5.5452, [4.0, 0.0], 1)
      >>> out.loss.backward()
      >>> head.grad[:, 0]
      tensor([ 1., -3.,  1.,  1.])
    """
    if torch.compiler.is_compiling():  # data-dependent rows: the graph breaks here, and the head runs as it always does
        run: Any = torch.compiler.disable(_weighted_linear_nll)  # type: ignore[no-untyped-call]
    else:
        run = _weighted_linear_nll
    result: HeadLoss = run(
        hidden_ND, head_VD, target_N, weight, position_N, length_N, num_tokens, bias, softcap, impl, workspace, accumulate,
        ignore_index,
    )  # fmt: skip
    return result


def _weighted_linear_nll(
    hidden_ND: Tensor, head_VD: Tensor, target_N: Tensor, weight: TokenLocalWeight, position_N: Tensor | None,
    length_N: Tensor | None, num_tokens: float | Tensor, bias_V: Tensor | None, softcap: float | None, impl: Impl, workspace: int | None,
    accumulate: torch.dtype | None, ignore_index: int,
) -> HeadLoss:  # fmt: skip
    check_shapes(hidden_ND, head_VD, target_N, bias_V)
    _check_weight(weight)
    plan = plan_for(impl, head_VD, product_dtype(hidden_ND, head_VD, bias_V), softcap, workspace, accumulate)
    told = Answer(num_tokens) if isinstance(num_tokens, Tensor) else num_tokens
    if plan is None:
        row_T = TargetRows(target_N, len(head_VD), ignore_index, row_ops("chunked")).rows()
        targets = _Targets.of(row_T, target_N, position_N, length_N)
        loss, each, sums = _eager(hidden_ND, head_VD, bias_V, softcap, weight, targets, _count(told, targets))
    else:
        wanted = Wanted.of(hidden_ND, head_VD, bias_V)
        with torch.no_grad(), computing_on(hidden_ND):
            asked = TargetRows(target_N, len(head_VD), ignore_index, plan.ops)
            one_pass = _OnePass(hidden_ND, head_VD, bias_V, plan, wanted)
            row_T = one_pass.rows(asked)
            targets = _Targets.of(row_T, target_N, position_N, length_N)
            loss, each, sums, gradients = one_pass.run(weight, targets, _count(told, targets))
        loss = _HandOver.apply(hidden_ND, head_VD, bias_V, loss, gradients, plan.ops)  # type: ignore[no-untyped-call]
    logq_N, w_N, entropy_N, top1_N = _spread(each, row_T, len(target_N)).unbind()
    return HeadLoss(loss, logq_N, w_N, entropy_N, top1_N.bool(), len(targets.target_T), sums)


class _Targets(NamedTuple):
    """The rows that count: where they stand among the N (None: everywhere), and what the weight is told of each."""

    row_T: Tensor | None
    target_T: Tensor
    position_T: Tensor | None
    length_T: Tensor | None

    @classmethod
    def of(cls, row_T: Tensor | None, target_N: Tensor, position_N: Tensor | None, length_N: Tensor | None) -> _Targets:
        """Those rows of what the caller gave."""
        each = (position_N, length_N)
        target_T = (target_N if row_T is None else target_N[row_T]).long().contiguous()
        return cls(row_T, target_T, *(x if row_T is None or x is None else x[row_T] for x in each))

    def weighed_by(self, weight: TokenLocalWeight, logq_C: Tensor, at: slice) -> Tensor:
        """``weight.at`` on the rows ``at`` of the T, its answer checked."""
        position_C, length_C = (None if x is None else x[at] for x in (self.position_T, self.length_T))
        w_C = weight.at(logq_C, position_C, length_C)
        if not isinstance(w_C, Tensor) or w_C.shape != logq_C.shape or not w_C.is_floating_point():
            got = f"{w_C.dtype} {tuple(w_C.shape)}" if isinstance(w_C, Tensor) else type(w_C).__name__
            raise ValueError(
                f"{weight}.at must return one real number per token, shape {tuple(logq_C.shape)}; got {got}"
            )
        return w_C.to(logq_C.dtype)


def _eager(
    hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None, softcap: float | None,
    weight: TokenLocalWeight, targets: _Targets, count: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Loss, what the rows that count give (`_Found.each`) and its sums, with all logits kept and the gradient left to autograd."""
    hidden_TD = hidden_ND if targets.row_T is None else hidden_ND[targets.row_T]
    logp_TV = eager_logp(hidden_TD, head_VD, bias_V, softcap)
    stats, logq_T = eager_stats(logp_TV, targets.target_T), eager_logq(logp_TV, targets.target_T)
    with torch.no_grad():
        w_T = targets.weighed_by(weight, stats.logq_C, slice(None))
    loss = -torch.where(w_T == 0, 0.0, w_T * torch.where(w_T == 0, 0.0, logq_T)).sum() / count
    each_kT = torch.stack((stats.logq_C, w_T, stats.entropy_C, stats.top1_C))
    return loss, each_kT, target_sums(*each_kT, tokens=len(w_T))


class _Found:
    """What is found of each row, in one piece of memory: the last four of its lines are what `HeadLoss` holds.

    A line begins every 16 bytes, for which Triton has a faster kernel.
    """

    def __init__(self, rows: int, like: Tensor) -> None:
        self.table = like.new_empty(6, -(-rows // 4) * 4, dtype=real_dtype(like.dtype))
        lse, factor, logq, self.w_N, entropy, top1 = self.table.unbind()
        self.stats = RowStats(lse, logq, entropy, top1, factor)

    def each(self, total: int) -> Tensor:
        """log q, weight, entropy and top-1 of the first rows."""
        return self.table[2:, :total]


class _OnePass:
    """Head, weights and gradients of one call. All memory is taken when it is made, before the device says which rows count."""

    def __init__(self, hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None, plan: Plan, wanted: Wanted) -> None:
        self.plan, self.hidden_ND, self.wanted = plan, hidden_ND, wanted
        narrow = torch.float32 if plan.dtype == torch.float16 else plan.dtype
        wide = torch.promote_types(narrow, plan.accumulate or narrow)
        self.dtype = torch.float32 if plan.dtype == torch.float16 else head_VD.dtype
        self.head, self.bias = head_VD.to(plan.dtype), None if bias_V is None else bias_V.to(plan.dtype)
        self.gradients = Gradients(hidden_ND, self.head, wanted, ops=plan.ops, hold=(narrow, wide), alpha=1.0)
        self.found = _Found(len(hidden_ND), self.head)
        self.logits = ChunkWalk(hidden_ND, self.head, self.bias, plan)

    def rows(self, asked: TargetRows) -> Tensor | None:
        """Wait for the rows that count (None: all), with the device at work before and after."""
        self.logits.begin(asked.row_N)
        row_T = asked.rows()
        self.logits.start(len(self.hidden_ND) if row_T is None else len(row_T), row_T)
        return row_T

    def run(
        self, weight: TokenLocalWeight, targets: _Targets, count: float
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor | None, ...]]:
        """Loss, what `_Found.each` has and its sums, and the gradients of the loss by hidden states, head and bias; once."""
        total = len(targets.target_T)
        self.gradients.alpha = 1.0 / count
        stats, w_T = self.found.stats.part(slice(0, total)), self.found.w_N[:total]
        self._walk(weight, targets, stats, w_T)
        del self.logits  # dW may need a copy in another dtype now
        dx, dw, db = self.gradients.finished()
        each_kT = self.found.each(total)
        sums = self.plan.ops.sums(each_kT)
        loss = (sums[0] / -count).to(w_T.dtype)
        return loss, each_kT, sums, (dx, None if dw is None else dw.to(self.dtype), db)

    def _walk(self, weight: TokenLocalWeight, targets: _Targets, stats: RowStats, w_T: Tensor) -> None:
        """Fill ``stats`` and ``w_T`` part by part, adding the gradients of the rows that count on the way."""
        wanted, sure = any(self.wanted), getattr(weight, "never_zero", False)
        held = HeldRows(self.logits)
        if wanted and not sure:
            self.gradients.clear_hidden()  # for the rows of weight 0
        for part in self.logits.parts():
            at = part.at
            self.plan.describe(part.z_CV, targets.target_T[at], stats.part(at), residual=wanted)
            w_T[at] = targets.weighed_by(weight, stats.logq_C[at], at)
            if not wanted:
                continue
            stats.factor_C[at].mul_(w_T[at])  # the coefficient of each row, before the wait that follows
            held.add(part, None if sure else w_T[at])
            if held.ready:
                z_CV, hidden_CD, at_C, row_C = held.take()
                self.gradients.add(z_CV, hidden_CD, row_C, stats.factor_C[at_C])


class _HandOver(torch.autograd.Function):
    """Joins a loss to gradients that are already known."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        head_VD: Tensor,
        bias_V: Tensor | None,
        loss: Tensor,
        gradients: tuple[Any, ...],
        ops: RowOps,
    ) -> Tensor:
        ctx.gradients, ctx.ops = gradients, ops
        ctx.dtypes = [None if x is None else x.dtype for x in (hidden_ND, head_VD, bias_V)]
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError(
                "weighted_linear_nll hands its gradient over once, and this is a second backward through the same loss; "
                "add the losses up before backward, or use linear_logprob, which computes the gradient anew each time"
            )
        gradients, ctx.gradients = ctx.gradients, None  # no second owner: the optimizer may take dW without a copy
        # Times the upstream gradient (loss scale, accumulation), in the wider of the two dtypes.
        wide = [
            None if g is None else g.to(torch.promote_types(g.dtype, d))
            for g, d in zip(gradients, ctx.dtypes, strict=True)
        ]
        ctx.ops.multiply_(upstream, *(g for g in wide if g is not None))
        return *(None if g is None else g.to(d) for g, d in zip(wide, ctx.dtypes, strict=True)), None, None, None


def _check_weight(weight: TokenLocalWeight) -> None:
    if not getattr(weight, "token_local", False) or not callable(getattr(weight, "at", None)):
        raise ValueError(
            f"weight={weight} is not token-local (token_local = True and a method at): its weights need whole sequences, and "
            "the gradient here is taken a chunk of tokens at a time. Use logq = linear_logprob(hidden, head, target), which "
            "serves every loss, then losses.weighted_nll(logq, mask, weight, state, num_tokens=n)"
        )


def _count(told: float | Answer, targets: _Targets) -> float:
    """What the sum is divided by; 1 for a call without targets, whose sum is 0."""
    count, number = float(told.read() if isinstance(told, Answer) else told), len(targets.target_T)
    if not count > 0 and number:
        raise ValueError(
            f"num_tokens={count:g} with {number} targets in this call; legal: the targets of the whole step, above 0"
        )
    return count if number else 1.0


def _spread(each_kT: Tensor, row_T: Tensor | None, total: int) -> Tensor:
    """Back to one entry a token; 0 where the target was ignored."""
    if row_T is None:
        return each_kT
    return each_kT.new_zeros(len(each_kT), total).index_copy_(1, row_T, each_kT)
