"""`weighted_linear_nll`: head and weighted loss in one pass, with the gradient computed in the forward (paper, Algorithm 1).

Shapes: N tokens, V vocabulary, D hidden, T target rows, C rows of a chunk, k entries of `SUMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from widen.data.rows import Rows, needs_of

from .gradients import Gradients, add_again
from .head_config import HeadCall, HeadConfig, Impl, computing_on, config_for, uncompiled
from .host_copy import HostCopy, TargetRows
from .logit_buffer import LogitBuffer
from .row_ops import (
    PLAIN,
    RowOps,
    RowStats,
    call_rows_fn,
    eager_logits,
    eager_stats,
    eager_value,
    real_dtype,
    target_sums,
)  # fmt: skip


@runtime_checkable
class TokenLocalWeight(Protocol):
    """What the head needs to know of a loss: the weight of a token, from that token alone. `widen.losses` has them.

    Examples:
      Five lines make a loss that runs as fast as any other:

      >>> class Unsure:
      ...     token_local = True
      ...     def weigh(self, rows):
      ...         return -torch.expm1(rows.logq)
      >>> round(Unsure().weigh(Rows(torch.tensor([0.25]).log())).item(), 6)
      0.75

    Optional attributes:

    - ``needs`` names the columns of `Rows` that `weigh` reads (default: logq, position, length). No other is passed.
    - ``residual``, with the attributes tau, smooth and entropy, replaces softmax - onehot (`RowOps`).
    - ``rows_fn(z_CV, target_C) -> loss_C, dz_CV`` replaces -log q and its gradient by any function of a row of logits. The logits come in
      float32 or better, after a soft cap; do not change them. It runs in PyTorch, one chunk at a time. ``eager`` takes the gradient of
      ``loss_C`` by autograd instead of ``dz_CV``: compare the two to test your function.
    - ``never_zero = True`` promises that no weight is 0: the head then does not wait for the device once per chunk to skip rows. A broken
      promise costs products, not correctness.
    - ``sequence_ends(row_T) -> list[int]`` is for weights that depend on whole sequences: `weigh` then gets whole sequences in every call.
      It returns, for each sequence in order, how many target rows there are up to its end. ``row_T`` holds the indices of the target rows
      (None: all rows are targets). The head calls it only if not all logits fit in the workspace.
    """

    @property
    def token_local(self) -> bool:
        """True: the weight of a token depends on that token alone, or on its sequence if there is a method ``sequence_ends``."""
        ...

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The weight of each token. Columns are detached, in float32, one chunk of tokens at a time."""
        ...


class HeadLoss(NamedTuple):
    """A loss, and what its pass over the vocabulary found. Only ``loss`` has a gradient; the rest is for the log.

    Rows whose target is ignored hold 0 (False). Every implementation fills every field.
    """

    loss: Float[Tensor, ""]
    """Sum of -w log q over the targets / num_tokens. Another residual replaces log q by the function that it is the gradient of."""
    logq_N: Float[Tensor, " N"]
    """log Q of each target token."""
    w_N: Float[Tensor, " N"]
    """The weight of each token."""
    entropy_N: Float[Tensor, " N"]
    """Entropy of the model's next-token distribution, in nats."""
    is_top1_N: Bool[Tensor, " N"]
    """Whether the target is the model's most likely token: the mean is the token accuracy."""
    num_targets: int
    """Rows of this call whose target is not ignored."""
    sums: Float[Tensor, " k"]
    """The `SUMS` of those rows: ``dict(zip(SUMS, out.sums.tolist()))``."""


def weighted_linear_nll(
    hidden_ND: Float[Tensor, "N D"],
    head_VD: Float[Tensor, "V D"],
    target_N: Int[Tensor, " N"],
    weight: TokenLocalWeight,
    *,
    num_tokens: float | Tensor,
    position_N: Int[Tensor, " N"] | None = None,
    length_N: Int[Tensor, " N"] | None = None,
    extra: Mapping[str, Tensor] | None = None,
    bias: Float[Tensor, " V"] | None = None,
    softcap: float | None = None,
    impl: Impl = "auto",
    workspace: int | None = None,
    accumulate: torch.dtype | None = None,
    ignore_index: int = -100,
) -> HeadLoss:
    r"""Weighted NLL of the targets and its gradient in three matrix products, with one chunk of logits in memory at a time.

    .. math::  -\frac1n \sum_{t} \bar w_t \log Q_t, \qquad \bar w_t = w(\log \bar Q_t, \bar H_t, l_t, L_t, \dots)

    For weights that look at one token (NLL, c-Div, TaiLr, lambda-PR, a five-line class of yours). Each chunk takes the logits, softmax -
    onehot in place, ``weight.weigh`` in PyTorch, and two products. A row of weight 0 costs no backward product (``logit_buffer.py``):
    1 + 2a products if a fraction a of the rows is active.

    A weight with ``sequence_ends`` (Trunc, TruncR and DCO in the trainers) takes 1 + 2a products too: chunks then end where sequences end.
    Only if the logits of one sequence exceed ``workspace``, that sequence is cut, and its active rows outside its last chunk are multiplied
    once more: at most 1 + 3a for the rows of that sequence.

    The gradient is ready when the forward ends. ``backward`` multiplies it by the upstream gradient and hands it over, once; a second
    backward through the same loss is an error. dW is summed over chunks in the dtype of the products and rounded once per chunk.
    ``accumulate=torch.float32`` rounds once; it needs a float32 dW until the forward ends, and Triton then reads the logits twice.
    In float16, dX and dW are kept in float32 until the backward: without the loss scale they would underflow.

    A loss with another ``residual`` than softmax - onehot takes the same products. A loss with a ``rows_fn`` runs its rows in PyTorch also
    on a GPU: ``auto`` then takes ``chunked``, and ``triton`` is refused.

    Args:
      hidden_ND, head_VD, target_N, bias, softcap, impl, ignore_index, workspace, accumulate: as for `linear_logprob`.
      weight: ``weight.weigh(rows)`` is called on each chunk, with the columns that the weight needs.
      num_tokens: targets of the whole optimizer step, all ranks and micro-batches. A tensor is read on the host.
      position_N: l = 1..L, the place of each target among the targets of its sequence; arbitrary for ignored rows. Needed only by a
        weight that reads it.
      length_N: L, the number of targets of the sequence; likewise.
      extra: further columns by name, for weights that need them.

    Returns:
      `HeadLoss`: the loss, and log q, weight, entropy and top-1 of each row from the same pass. A batch without targets gives a
      differentiable 0.

    Examples:
      >>> class Inverse:
      ...     token_local = True
      ...     def weigh(self, rows):
      ...         return (-rows.logq).exp()
      >>> hidden, head = torch.ones(2, 3, requires_grad=True), torch.zeros(4, 3, requires_grad=True)
      >>> out = weighted_linear_nll(hidden, head, torch.tensor([1, -100]), Inverse(), num_tokens=1)
      >>> round(out.loss.item(), 4), out.w_N.tolist(), out.num_targets      # 4 log 4
      (5.5452, [4.0, 0.0], 1)
      >>> out.loss.backward()
      >>> head.grad[:, 0]
      tensor([ 1., -3.,  1.,  1.])
    """
    residual, rows_fn = getattr(weight, "residual", None), getattr(weight, "rows_fn", None)
    tau, smooth, entropy = PLAIN if residual is None else (residual.tau, residual.smooth, residual.entropy)
    ops = RowOps(softcap=softcap, tau=tau, smooth=smooth, entropy=entropy, rows_fn=rows_fn)
    call = HeadCall(hidden_ND, head_VD, target_N, bias, impl, ignore_index, workspace, accumulate, ops)
    rows = Rows(position=position_N, length=length_N, extra=extra)
    return uncompiled(_weighted_linear_nll)(call, weight, rows, num_tokens)


def _weighted_linear_nll(call: HeadCall, weight: TokenLocalWeight, rows: Rows, num_tokens: float | Tensor) -> HeadLoss:
    if not getattr(weight, "token_local", False) or not callable(getattr(weight, "weigh", None)):
        raise ValueError(
            f"weight={weight} is not token-local (token_local = True and a method weigh): its weights need whole sequences, which "
            "are unknown here. Use logq = linear_logprob(hidden, head, target), which serves every loss, then "
            "losses.weighted_nll(logq, mask, weight, state, num_tokens=n)"
        )
    config, rows = config_for(call), rows.only(needs_of(weight))
    tokens = HostCopy(num_tokens) if isinstance(num_tokens, Tensor) else num_tokens
    hidden_ND, head_VD, target_N, bias_V = call[:4]
    ops = call.ops if config is None else config.ops
    needs = tuple(torch.is_grad_enabled() and x is not None and x.requires_grad for x in (hidden_ND, head_VD, bias_V))
    with torch.no_grad(), computing_on(hidden_ND):
        target_rows = TargetRows(target_N, len(head_VD), call.ignore_index, ops)
        ends_of = getattr(weight, "sequence_ends", None)
        one_pass = None if config is None else _OnePass(call, config, needs, ends_of)
        row_T = target_rows.rows() if one_pass is None else one_pass.start(target_rows)
    weigh = _Weigh(weight, rows if row_T is None else rows.map(lambda x: x[row_T]))
    divisor = _divisor(tokens, len(target_N) if row_T is None else len(row_T))
    if one_pass is None:
        target_T = (target_N if row_T is None else target_N[row_T]).long().contiguous()
        hidden_TD = hidden_ND if row_T is None else hidden_ND[row_T]
        z_TV = eager_logits(hidden_TD, head_VD, bias_V, ops.softcap)
        loss, each_kT, sums = _eager(ops, z_TV, target_T, weigh, divisor)
    else:
        with torch.no_grad(), computing_on(hidden_ND):
            loss, each_kT, sums, gradients = one_pass.run(weigh, divisor)
        loss = _HandOver.apply(hidden_ND, head_VD, bias_V, loss, gradients, ops)  # type: ignore[no-untyped-call]
    return _head_loss(loss, each_kT, sums, row_T, len(target_N))


def weighted_logit_nll(
    logits_NV: Float[Tensor, "N V"],
    target_N: Int[Tensor, " N"],
    weight: TokenLocalWeight,
    *,
    num_tokens: float | Tensor,
    position_N: Int[Tensor, " N"] | None = None,
    length_N: Int[Tensor, " N"] | None = None,
    extra: Mapping[str, Tensor] | None = None,
    ignore_index: int = -100,
) -> HeadLoss:
    """`weighted_linear_nll` for a trainer that has computed all logits already. Autograd takes the gradient, in float32 or better.

    Examples:
      >>> class Inverse:
      ...     token_local = True
      ...     def weigh(self, rows):
      ...         return (-rows.logq).exp()
      >>> out = weighted_logit_nll(torch.zeros(2, 4), torch.tensor([1, -100]), Inverse(), num_tokens=1)
      >>> round(out.loss.item(), 4), out.w_N.tolist()      # 4 log 4
      (5.5452, [4.0, 0.0])
    """
    residual, rows_fn = getattr(weight, "residual", None), getattr(weight, "rows_fn", None)
    tau, smooth, entropy = PLAIN if residual is None else (residual.tau, residual.smooth, residual.entropy)
    ops = RowOps(softcap=None, tau=tau, smooth=smooth, entropy=entropy, rows_fn=rows_fn)
    row_T = TargetRows(target_N, logits_NV.shape[1], ignore_index, ops).rows()
    target_T = (target_N if row_T is None else target_N[row_T]).long().contiguous()
    z_TV = logits_NV if row_T is None else logits_NV[row_T]
    rows = Rows(position=position_N, length=length_N, extra=extra).only(needs_of(weight))
    weigh = _Weigh(weight, rows if row_T is None else rows.map(lambda x: x[row_T]))
    divisor = _divisor(HostCopy(num_tokens) if isinstance(num_tokens, Tensor) else num_tokens, len(target_T))
    loss, each_kT, sums = _eager(ops, z_TV.to(real_dtype(z_TV.dtype)), target_T, weigh, divisor)
    return _head_loss(loss, each_kT, sums, row_T, len(target_N))


def _head_loss(loss: Tensor, each_kT: Tensor, sums: Tensor, row_T: Tensor | None, count: int) -> HeadLoss:
    """The result with one entry per token instead of one per target; 0 if the target is ignored."""
    targets = each_kT.shape[1]
    if row_T is not None:
        each_kT = each_kT.new_zeros(len(each_kT), count).index_copy_(1, row_T, each_kT)
    logq_N, w_N, entropy_N, top1_N = each_kT.unbind()
    return HeadLoss(loss, logq_N, w_N, entropy_N, top1_N.bool(), targets, sums)


class _Weigh(NamedTuple):
    """A weight, and the columns that the caller gave for it, one entry per target row."""

    weight: TokenLocalWeight
    rows: Rows

    def __call__(self, at: slice, logq_C: Tensor, entropy_C: Tensor, top1_C: Tensor) -> Tensor:
        """The weights of the rows ``at`` of the T, whose statistics are given, checked."""
        found = Rows(logq_C, entropy=entropy_C, top1=top1_C).only(needs_of(self.weight))
        w_C = self.weight.weigh(self.rows.map(lambda x: x[at]).joined(found))
        if not isinstance(w_C, Tensor) or w_C.shape != logq_C.shape or not w_C.is_floating_point():
            got = f"{w_C.dtype} {tuple(w_C.shape)}" if isinstance(w_C, Tensor) else type(w_C).__name__
            raise ValueError(
                f"{self.weight}.weigh must return one real number per token, shape {tuple(logq_C.shape)}; got {got}"
            )
        return w_C.to(logq_C.dtype)


def _divisor(tokens: float | HostCopy, targets: int) -> float:
    """What the sum is divided by; 1 for a call without targets, whose sum is 0."""
    count = float(tokens.read() if isinstance(tokens, HostCopy) else tokens)
    if not count > 0 and targets:
        raise ValueError(
            f"num_tokens={count:g} with {targets} targets in this call; legal: the targets of the whole step, above 0"
        )
    return count if targets else 1.0


def _eager(ops: RowOps, z_TV: Tensor, target_T: Tensor, weigh: _Weigh, divisor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, reported rows and their sums, with all logits kept and the gradient left to autograd."""
    logp_TV = z_TV.log_softmax(-1)
    if ops.rows_fn is None:
        value_T = eager_value(logp_TV, target_T, ops.tau, ops.smooth, ops.entropy)
    else:
        value_T = -call_rows_fn(ops.rows_fn, z_TV, target_T)[0]
    stats = eager_stats(logp_TV, target_T)
    with torch.no_grad():
        w_T = weigh(slice(None), *stats)
    each_kT = torch.stack((stats[0], w_T, *stats[1:]))
    loss = -torch.where(w_T == 0, 0.0, w_T * torch.where(w_T == 0, 0.0, value_T)).sum() / divisor
    return loss, each_kT, target_sums(*each_kT, tokens=len(w_T), value_N=value_T.detach())


class _OnePass:
    """Head, weights and gradients of one call. It allocates all memory when it is made, while the device finds the target rows."""

    def __init__(
        self, call: HeadCall, config: HeadConfig, needs: tuple[bool, ...],
        ends_of: Callable[[Tensor | None], list[int]] | None,
    ) -> None:  # fmt: skip
        hidden_ND, head_VD, target_N, bias_V = call[:4]
        half = config.dtype == torch.float16
        narrow = torch.float32 if half else config.dtype
        wide = torch.promote_types(narrow, config.accumulate or narrow)
        head, bias = head_VD.to(config.dtype), None if bias_V is None else bias_V.to(config.dtype)
        self.ops, self.backward, self.head_dtype = config.ops, any(needs), torch.float32 if half else head_VD.dtype
        self.gradients = Gradients(hidden_ND, head, needs=needs, dtypes=(narrow, wide), ops=config.ops)
        # One table, so that the rows of `HeadLoss` are a slice of it. Align its lines to 16 bytes: Triton compiles only the fast kernel.
        self.table = head.new_empty(6, -(-len(hidden_ND) // 4) * 4, dtype=real_dtype(head.dtype))
        self.ends_of = ends_of
        memory = config.new_buffer(len(hidden_ND), head, even=ends_of is None)
        self.buffer = LogitBuffer(hidden_ND, head, bias, target_N, config, memory)

    def start(self, target_rows: TargetRows) -> Tensor | None:
        """Wait for the target rows (None: all), with work queued before and after the wait."""
        room, rows = len(self.buffer.memory), len(self.buffer.hidden_ND)
        self.stats = self._stats(rows)
        if self.ends_of is None or rows <= room:  # a first chunk of whole sequences may be shorter than an early launch
            self.buffer.start_early(target_rows.row_N, self.stats)
        row_T = target_rows.rows()
        total = rows if row_T is None else len(row_T)
        ends = None if self.ends_of is None or total <= room else self.ends_of(row_T)
        if total < rows:
            self.stats = self._stats(total)
        self.buffer.start(total, row_T, self.stats, ends)
        return row_T

    def _stats(self, total: int) -> RowStats:
        logq_T, _, entropy_T, top1_T, factor_T, value_T = self.table[:, :total].unbind()
        return RowStats(logq_T, entropy_T, top1_T, factor_T, logq_T if self.ops.plain else value_T)

    def run(self, weigh: _Weigh, divisor: float) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor | None, ...]]:
        """Loss, reported rows (log q, weight, entropy, top-1), their sums, and the gradients of hidden states, head and bias."""
        table, stats = self.table[:, : self.buffer.total], self.stats
        w_T = table[1]
        self._by_chunk(weigh, stats, w_T, 1.0 / divisor)
        del self.buffer  # dW may need a copy in another dtype next
        dx, dw, db = self.gradients.finished()
        sums = self.ops.sum_targets(table[:4], stats.value_C)
        loss = (sums[0] / -divisor).to(w_T.dtype)
        return loss, table[:4], sums, (dx, None if dw is None else dw.to(self.head_dtype), db)

    def _by_chunk(self, weigh: _Weigh, stats: RowStats, w_T: Tensor, scale: float) -> None:
        """Fill ``stats`` and ``w_T`` chunk by chunk, and add the gradients of the active rows."""
        never_zero = self.ends_of is None and getattr(weigh.weight, "never_zero", False)
        if self.backward and not never_zero:
            self.gradients.clear_hidden()  # rows of weight 0 are never added
        weighed = 0  # rows whose weight is known
        lost: list[slice] = []  # rows of cut sequences, whose logits are overwritten before their weight is known
        for chunk in self.buffer.chunks():
            at, here = chunk.at, stats.part(chunk.at)
            self.ops.fill_stats(chunk.z_CV, self.buffer.target_T[at], here, residual=self.backward and chunk.ends)
            if not chunk.ends:
                continue
            ready, weighed = slice(weighed, at.stop), at.stop
            w_T[ready] = weigh(ready, *stats.part(ready)[:3])
            if not self.backward:
                continue
            if ready.start < at.start:
                lost.append(slice(ready.start, at.start))
            here.factor_C.mul_(w_T[at])  # the coefficient of each row, launched before the wait in `hold`
            active = self.buffer.hold(chunk, None if never_zero else w_T[at])
            if active is not None:
                z_CV, hidden_CD, at_C, row_C = active
                self.gradients.add(z_CV, hidden_CD, row_C, stats.factor_C[at_C], scale=scale)
        row_T = self.buffer.row_T
        for at in lost:
            at_A = w_T[at].nonzero()[:, 0] + at.start
            row_A = at_A if row_T is None else row_T[at_A]
            add_again(self.gradients, self.buffer, row_A, w_T[at_A], scale)


class _HandOver(torch.autograd.Function):
    """Connects a loss to gradients that are already known."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None, loss: Tensor, gradients: tuple[Any, ...], ops: RowOps
    ) -> Tensor:  # fmt: skip
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
        gradients, ctx.gradients = ctx.gradients, None  # no second reference: autograd can take dW without a copy
        # Multiply by the upstream gradient (loss scale, accumulation) in the wider of the two dtypes.
        wide = [
            None if g is None else g.to(torch.promote_types(g.dtype, d))
            for g, d in zip(gradients, ctx.dtypes, strict=True)
        ]
        ctx.ops.multiply_(upstream, *(g for g in wide if g is not None))
        return *(None if g is None else g.to(d) for g, d in zip(wide, ctx.dtypes, strict=True)), None, None, None
