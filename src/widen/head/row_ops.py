"""What is computed from a chunk of logits, in PyTorch: first the definition with all N x V logits, then the operations on one chunk.

The ``eager_*`` functions are the oracle of every other implementation and the baseline that they are timed against. `RowOps` runs on any
device; `TritonRowOps` overrides it on CUDA. A new row statistic is a field of `RowStats` that both fill in `fill_stats`.

Shapes: N tokens, V vocabulary, D hidden, T target rows, C rows of a chunk, H holes, k entries of `SUMS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

PLAIN = (1.0, 0.0, 0.0)
"""tau, smooth and entropy of the residual softmax - onehot."""

RowsFn = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""``rows_fn(z_CV, target_C) -> loss_C, dz_CV``: the loss of each row of logits, and its gradient."""

SUMS = ("weighted", "weight", "squares", "largest", "counted", "logq", "entropy", "top1", "tokens")
"""Names of the sums over the targets of a call, in float64: of w times the value (log q for NLL; a weight of 0 times -inf is 0), of w and
of w^2; the largest weight; the number of weights other than 0; of log q, entropy and top-1; the number of targets. `widen.train.Figures`
has these fields. One launch computes them all: a small model waits for the host, and each launch costs it as much.
"""


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of log-sums and weights: float32 or better, whatever the model's dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class RowStats(NamedTuple):
    """One number per row, in float32 (float64 for float64 logits), filled in place chunk by chunk."""

    logq_C: Float[Tensor, " C"]
    """Log-probability of the target."""
    entropy_C: Float[Tensor, " C"]
    top1_C: Float[Tensor, " C"]
    """1 if the target is the most likely token, else 0."""
    factor_C: Float[Tensor, " C"]
    """The residual of a row is this factor times the row that `RowOps.fill_stats` leaves in the buffer."""
    value_C: Float[Tensor, " C"]
    """The function of the logits whose gradient is minus the residual. For softmax - onehot that is log q, and both share memory."""

    @classmethod
    def empty(cls, rows: int, like: Tensor, *, plain: bool) -> RowStats:
        """Uninitialised memory for ``rows`` rows, on the device of ``like``."""
        # One tensor per field. Views of one table could not be edited in place by the caller of `linear_logprob`, and their unaligned
        # starts would make Triton compile another kernel.
        logq_C, entropy_C, top1_C, factor_C = (like.new_empty(rows, dtype=real_dtype(like.dtype)) for _ in range(4))
        return cls(logq_C, entropy_C, top1_C, factor_C, logq_C if plain else torch.empty_like(logq_C))

    def part(self, chunk: slice) -> RowStats:
        """Views of the rows of one chunk: filling them fills the whole."""
        if chunk.start == 0 and chunk.stop == len(self.logq_C):
            return self
        return RowStats(*(x[chunk] for x in self))


class Compaction(NamedTuple):
    """How to move the active rows (weight other than 0) of a chunk to its front, with the fewest moves. All of it is on the device."""

    order_C: Tensor
    """The row that belongs in each place. Entries after the number of active rows are undefined."""
    hole_C: Tensor
    """The places at the front whose own row is inactive, in ascending order. Entries after the number of holes are undefined."""
    counts: Tensor
    """The number of active rows and the number of holes."""


def eager_logits(
    hidden_ND: Float[Tensor, "N D"],
    head_VD: Float[Tensor, "V D"],
    bias_V: Float[Tensor, " V"] | None,
    softcap: float | None,
) -> Float[Tensor, "N V"]:
    """Logits of the whole vocabulary, in float32 or better."""
    z_NV = F.linear(hidden_ND, head_VD, bias_V)
    z_NV = z_NV.to(real_dtype(z_NV.dtype))
    return z_NV if softcap is None else softcap * torch.tanh(z_NV / softcap)


def eager_logq(logp_NV: Float[Tensor, "N V"], target_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Log-probabilities of the targets."""
    return logp_NV.gather(-1, target_N[:, None])[:, 0]


def eager_value(
    logp_NV: Float[Tensor, "N V"], target_N: Int[Tensor, " N"], tau: float, smooth: float, entropy: float
) -> Float[Tensor, " N"]:
    """The function of the logits whose gradient is minus the residual (`RowOps`); log q for the plain one."""
    tempered_NV = logp_NV if tau == 1 else tau * (logp_NV / tau).log_softmax(-1)
    value_N = eager_logq(tempered_NV, target_N)
    if smooth:
        value_N = (1 - smooth) * value_N + smooth * tempered_NV.mean(-1)
    if entropy:
        p_NV = logp_NV.exp()
        value_N = value_N - entropy * (p_NV * torch.where(p_NV == 0, 0.0, logp_NV)).sum(-1)
    return value_N


@torch.no_grad()
def eager_stats(logp_NV: Float[Tensor, "N V"], target_N: Int[Tensor, " N"]) -> tuple[Tensor, Tensor, Tensor]:
    """Log q, entropy and top-1 of each row."""
    logq_N = eager_logq(logp_NV, target_N)
    top1_N = logq_N >= logp_NV.amax(-1) if logp_NV.numel() else torch.zeros_like(logq_N)
    return logq_N, torch.special.entr(logp_NV.exp()).sum(-1), top1_N.to(logq_N.dtype)


def target_sums(
    logq_N: Tensor, w_N: Tensor, entropy_N: Tensor, top1_N: Tensor, *, tokens: Tensor | float, value_N: Tensor | None = None
) -> Float[Tensor, " k"]:  # fmt: skip
    """The `SUMS` as a tensor on the device, from one entry per row. Rows without a target must hold 0 in each argument.

    ``value_N`` is what the weights multiply; None means log q.

    >>> one = torch.ones(2)
    >>> target_sums(-one, 3 * one, 2 * one, one, tokens=2)[0].item()
    -6.0
    """
    wide = torch.float32 if logq_N.device.type == "mps" else torch.float64  # Apple's devices have no float64
    logq, w, entropy, top1 = torch.stack([x.to(wide) for x in (logq_N, w_N, entropy_N, top1_N)])
    weighted = torch.where(w == 0, w, w * (logq if value_N is None else value_N.to(wide))).sum()
    largest = w.amax() if len(w) else w.sum()
    counted = (w != 0).sum().to(wide)  # count_nonzero has no batching rule for vmap
    # Fill on the device: copying a number from the host waits for everything launched before.
    count = tokens.to(wide) if isinstance(tokens, Tensor) else w.new_full((), tokens)
    return torch.stack([weighted, w.sum(), w.dot(w), largest, counted, logq.sum(), entropy.sum(), top1.sum(), count])


@dataclass(frozen=True, kw_only=True)
class RowOps:
    """Operations on the rows of a chunk. Names that end in _ overwrite an argument.

    Args:
      softcap: c in ``c tanh(z / c)``, applied to the logits before anything else; None leaves them alone.
      tau, smooth, entropy: the residual is softmax(z/tau) - (1-smooth) onehot - smooth/V + entropy q (log q + H).
      rows_fn: replaces residual and value by a function of the logits (`TokenLocalWeight`).
    """

    softcap: float | None = None
    tau: float = 1.0
    smooth: float = 0.0
    entropy: float = 0.0
    rows_fn: RowsFn | None = None

    @property
    def plain(self) -> bool:
        """Whether the residual is softmax - onehot."""
        return self.rows_fn is None and (self.tau, self.smooth, self.entropy) == PLAIN

    def pitch(self, vocabulary: int) -> int:
        """Elements from the start of one row of the logits buffer to the start of the next."""
        return vocabulary

    def bytes_per_row(self, vocabulary: int, dtype: torch.dtype) -> int:
        """Workspace of one row: logits, log-softmax and softmax, the tanh of a soft cap, and what another residual needs."""
        real = real_dtype(dtype)
        copies = 1 + (real != dtype) + (self.softcap is not None) + (0 if self.plain else 3)
        return vocabulary * (dtype.itemsize + copies * real.itemsize)

    def find_targets(self, target_N: Tensor, vocabulary: int, ignore_index: int) -> tuple[Tensor | None, Tensor]:
        """The target rows, then zeros; and two counts: target rows, and those whose target is outside the vocabulary.

        The rows are None here: PyTorch finds them only by a wait for the device.
        """
        keep_N = target_N != ignore_index
        wrong_N = keep_N & ((target_N < 0) | (target_N >= vocabulary))
        return None, torch.stack((keep_N.sum(), wrong_N.sum()))

    @property
    def needs_targets(self) -> bool:
        """Whether `product_` reads the targets."""
        return False

    def right_factor(self, head_VD: Tensor) -> Any:
        """The head in the form that `product_` takes, made once for all chunks of a call."""
        return head_VD.t()

    def product_(
        self, z_CV: Tensor, hidden_CD: Tensor, right: Any, bias_V: Tensor | None, target_C: Tensor | None, stats: RowStats
    ) -> None:  # fmt: skip
        """``z = hidden @ head.T + bias``, or what `fill_stats` would make of it, with ``stats`` filled.

        ``right`` is the `right_factor` of the head. ``target_C`` may be None unless `needs_targets`.
        """
        if bias_V is None:
            torch.mm(hidden_CD, right, out=z_CV)
        else:
            torch.addmm(bias_V, hidden_CD, right, out=z_CV)

    def fill_stats(self, z_CV: Tensor, target_C: Tensor, stats: RowStats, *, residual: bool) -> None:
        """Fill ``stats``. With ``residual`` the logits become the residual / ``stats.factor_C``; without, they stay as they are."""
        real_CV, slope_CV = self._capped(z_CV)
        logp_CV = real_CV.log_softmax(1)
        stats.factor_C.fill_(1)
        if self.plain:
            stats.logq_C.copy_(eager_logq(logp_CV, target_C))
            stats.top1_C.copy_(stats.logq_C >= logp_CV.amax(1))
            r_CV = torch.exp(logp_CV, out=real_CV if residual else logp_CV)
            torch.sum(torch.special.entr(r_CV, out=logp_CV), 1, out=stats.entropy_C)
            if residual:
                _subtract_onehot_(r_CV, target_C, 1.0)
        else:
            for into_C, x_C in zip(stats, eager_stats(logp_CV, target_C), strict=False):
                into_C.copy_(x_C)
            r_CV = self._other_residual(real_CV, logp_CV, target_C, stats)
        if residual:
            r_CV = r_CV if slope_CV is None else r_CV * slope_CV
            if r_CV is not z_CV:
                z_CV.copy_(r_CV)

    def _other_residual(
        self, real_CV: Tensor, logp_CV: Tensor, target_C: Tensor, stats: RowStats
    ) -> Float[Tensor, "C V"]:
        """Fill ``stats.value_C``; returns the residual before the slope of a soft cap."""
        if self.rows_fn is not None:
            loss_C, dz_CV = call_rows_fn(self.rows_fn, real_CV, target_C)
            torch.neg(loss_C, out=stats.value_C)
            return dz_CV
        stats.value_C.copy_(eager_value(logp_CV, target_C, self.tau, self.smooth, self.entropy))
        r_CV = (logp_CV / self.tau).softmax(1) if self.tau != 1 else logp_CV.exp()
        _subtract_onehot_(r_CV.sub_(self.smooth / r_CV.shape[1]), target_C, 1 - self.smooth)
        if self.entropy:
            p_CV = logp_CV.exp()
            logp_CV.clamp_(min=torch.finfo(logp_CV.dtype).min)  # 0 * -inf is nan
            r_CV.add_(p_CV.mul_(logp_CV.add_(stats.entropy_C[:, None])), alpha=self.entropy)
        return r_CV

    def find_active(self, w_C: Tensor) -> Compaction:
        """How to move the rows of weight other than 0 to the front."""
        place_C, active_C = torch.arange(len(w_C), device=w_C.device), w_C != 0
        count = active_C.sum()
        hole_H = ((place_C < count) & ~active_C).nonzero()[:, 0]
        place_C[hole_H] = ((place_C >= count) & active_C).nonzero()[:, 0]
        return Compaction(place_C, hole_H, torch.stack((count, count.new_full((), len(hole_H)))))

    def move_rows_(self, z_CV: Tensor, order_C: Tensor, hole_H: Tensor) -> None:
        """``z[hole] = z[order[hole]]``. No row is both read and written."""
        z_CV[hole_H] = z_CV[order_C[hole_H]]

    def scale_rows(self, coefficient_C: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
        """``out = x * coefficient`` row by row, for one or two pairs (x, out) of one shape; ``out`` may be ``x``."""
        for x_CD, out in pairs:
            torch.mul(x_CD, coefficient_C[:, None], out=out)

    def multiply_(self, factor: Tensor, *tensors: Tensor) -> None:
        """``x *= factor`` for each tensor; free if the factor is 1."""
        # A Python number is not rounded to x's dtype; a tensor would be: bfloat16 turns 1/3 into 0.334.
        value = factor.item()
        if value != 1:
            for x in tensors:
                x.mul_(value)

    def sum_targets(self, each_kT: Tensor, value_T: Tensor) -> Tensor:
        """The `SUMS` from log q, weight, entropy and top-1 of every target row, and its value."""
        return target_sums(*each_kT, tokens=each_kT.shape[1], value_N=value_T)

    def compact_(self, z_CV: Tensor, compaction: Compaction, count: int, holes: int) -> Tensor:
        """Move the ``count`` active rows to the front of ``z_CV``; returns which rows they were."""
        if holes:
            self.move_rows_(z_CV, compaction.order_C, compaction.hole_C[:holes])
        return compaction.order_C[:count]

    def _capped(self, z_CV: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits in float32 or better after the soft cap, and its slope. Without a cap they share memory with ``z_CV`` if they can."""
        real_CV = z_CV.to(real_dtype(z_CV.dtype))
        if self.softcap is None:
            return real_CV, None
        bent_CV = torch.tanh(real_CV / self.softcap)
        return self.softcap * bent_CV, bent_CV.square_().neg_().add_(1)


def call_rows_fn(
    rows_fn: RowsFn, z_CV: Float[Tensor, "C V"], target_C: Int[Tensor, " C"]
) -> tuple[Float[Tensor, " C"], Float[Tensor, "C V"]]:
    """``rows_fn`` with its result checked."""
    loss_C, dz_CV = rows_fn(z_CV, target_C)
    if loss_C.shape != target_C.shape or dz_CV.shape != z_CV.shape:
        raise ValueError(
            f"rows_fn must return one loss per row, shape {tuple(target_C.shape)}, and a gradient of the logits' shape "
            f"{tuple(z_CV.shape)}; got {tuple(loss_C.shape)} and {tuple(dz_CV.shape)}"
        )
    return loss_C, dz_CV


def _subtract_onehot_(p_CV: Tensor, target_C: Tensor, size: float) -> None:
    row_C = torch.arange(len(p_CV), device=p_CV.device)
    p_CV[row_C, target_C] -= size  # index_put_ to distinct places is reproducible; scatter_add_ on CUDA is not
