"""What one pass over the logits learns of each row, and what the head hands back to a trainer.

Shapes: N tokens, C rows of a chunk.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class RowStats(NamedTuple):
    """One number a row, in float32 (float64 for float64 logits); filled in place, part by part."""

    lse_C: Float[Tensor, " C"]
    logq_C: Float[Tensor, " C"]
    entropy_C: Float[Tensor, " C"]
    top1_C: Float[Tensor, " C"]
    """1 where the target is the most likely token, else 0."""
    factor_C: Float[Tensor, " C"]
    """What the residual of a row is to be multiplied by: ``describe`` may leave a multiple of softmax - onehot."""

    @classmethod
    def empty(cls, rows: int, like: Tensor) -> RowStats:
        """Room for ``rows`` rows, on the device of ``like``."""
        # Each in memory of its own: rows of one table would be views, which the caller of `linear_logprob` may not edit in place,
        # and start anywhere, for which Triton compiles a kernel of its own.
        return cls(*(like.new_empty(rows, dtype=real_dtype(like.dtype)) for _ in cls._fields))

    def part(self, chunk: slice) -> RowStats:
        """The rows of one chunk: views, so that filling them fills the whole."""
        if chunk.start == 0 and chunk.stop == len(self.lse_C):
            return self
        return RowStats(*(x[chunk] for x in self))


class Front(NamedTuple):
    """How the rows that count come to the front of a chunk, still on the device: `RowOps.front`."""

    order_C: Tensor
    """Which row goes to each of the first places; what stands behind them is of no meaning."""
    hole_C: Tensor
    """The places among them whose own row weighs 0, in ascending order; what follows is of no meaning."""
    counts: Tensor
    """How many rows count, and how many places are such holes."""


class TargetSums(NamedTuple):
    """Sums over the targets of a call, in float64: the loss before its division, and what a trainer logs.

    Found together, since a trainer of a small model waits for the host, to which each is an operation.
    """

    weighted: float
    """Of w log q; a weight of 0 times -inf is 0."""
    weight: float
    squares: float
    """Of the weights: that of 1e20 is beyond float32."""
    largest: float
    """The largest weight; 0 without targets."""
    counted: float
    """Weights other than 0."""
    logq: float
    entropy: float
    top1: float
    tokens: float


def target_sums(
    logq_N: Tensor, w_N: Tensor, entropy_N: Tensor, top1_N: Tensor, *, tokens: Tensor | float
) -> Float[Tensor, " k"]:
    """`TargetSums` on the device, from one entry a row; a row that is no target holds 0 in each.

    >>> one = torch.ones(2)
    >>> TargetSums(*target_sums(-one, 3 * one, 2 * one, one, tokens=2).tolist()).weighted
    -6.0
    """
    wide = torch.float32 if logq_N.device.type == "mps" else torch.float64  # Apple's devices have no float64
    logq, w, entropy, top1 = torch.stack([x.to(wide) for x in (logq_N, w_N, entropy_N, top1_N)])
    weighted = torch.where(w == 0, w, w * logq).sum()
    largest = w.amax() if len(w) else w.sum()
    counted = w.count_nonzero().to(wide)
    # Filled on the device: a number of the host's would be copied there, with a wait for all that was launched before.
    told = tokens.to(wide) if isinstance(tokens, Tensor) else w.new_full((), tokens)
    return torch.stack([weighted, w.sum(), w.dot(w), largest, counted, logq.sum(), entropy.sum(), top1.sum(), told])


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """Log-sums and weights are in float32 or better whatever the model's dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@runtime_checkable
class TokenLocalWeight(Protocol):
    """What the head must know of a loss: how much a token counts, from that token alone. `widen.losses` has them.

    Examples:
      Five lines make a loss that runs as fast as any other:

      >>> class Focal:
      ...     token_local = True
      ...     def at(self, logq_N, position_N, length_N):
      ...         return -torch.expm1(logq_N)
      >>> round(Focal().at(torch.tensor([0.25]).log(), None, None).item(), 6)
      0.75

      A sixth, ``never_zero = True``, promises that no token weighs 0. The head then does not ask the device, once a chunk, which rows
      weigh 0, to leave them out, which a small model waits for; a broken promise costs products, not correctness.
    """

    @property
    def token_local(self) -> bool:
        """True: the weight of a token depends on nothing but that token."""
        ...

    def at(
        self, logq_N: Float[Tensor, " N"], position_N: Int[Tensor, " N"] | None, length_N: Int[Tensor, " N"] | None
    ) -> Float[Tensor, " N"]:
        """The weight of each token; ``logq_N`` comes detached, in float32, a chunk at a time.

        Position and length are None where the caller of the head gave none.
        """
        ...


class HeadLoss(NamedTuple):
    """A loss and what its one pass over the vocabulary saw. Only ``loss`` carries a gradient; the rest is for the log.

    Rows whose target is ignored hold 0 (False). Every implementation gives every field.
    """

    loss: Float[Tensor, ""]
    """sum of -w log q over the targets / num_tokens."""
    logq_N: Float[Tensor, " N"]
    """log Q of each target token."""
    w_N: Float[Tensor, " N"]
    """The weight that each token got."""
    entropy_N: Float[Tensor, " N"]
    """Entropy of the model's next-token distribution, in nats."""
    is_top1_N: Bool[Tensor, " N"]
    """Whether the target is the model's most likely token: their mean is the token accuracy."""
    num_targets: int
    """Rows of this call whose target is not ignored."""
    sums: Float[Tensor, " k"]
    """`TargetSums` of those rows: ``TargetSums(*out.sums.tolist())``."""
