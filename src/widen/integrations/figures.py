"""What is logged beside the loss, kept as sums so that micro-batches, ranks and steps add up to the logging window.

Shapes: N places of a micro-batch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from widen.losses import LambdaPR, Product, State, Trunc, Warmup, Weight, WeightStats

from .sequences import Sequences

__all__ = ["Sums", "sums_of", "threshold"]


class Sums(NamedTuple):
    """Sums over target tokens, as float64 numbers of the host once they have been gathered."""

    tokens: float = 0.0
    weight: float = 0.0
    squares: float = 0.0
    largest: float = 0.0
    zeros: float = 0.0
    nll: float = 0.0
    entropy: float = 0.0
    top1: float = 0.0
    sequences: float = 0.0

    def __add__(self, other: object) -> Sums:
        if not isinstance(other, Sums):
            return NotImplemented
        added = Sums(*(a + b for a, b in zip(tuple(self), tuple(other), strict=True)))
        return added._replace(largest=max(self.largest, other.largest))

    @property
    def weights(self) -> WeightStats:
        """The five that `widen.losses` knows."""
        numbers = (self.tokens, self.weight, self.squares, self.largest, self.zeros)
        return WeightStats(*torch.tensor(numbers, dtype=torch.float64).unbind())

    @property
    def mean_length(self) -> float:
        """Target tokens a sequence."""
        return self.tokens / max(self.sequences, 1.0)

    def logged(self) -> dict[str, float]:
        """The figures by the names they are logged under; empty for a window without targets."""
        if not self.tokens:
            return {}
        seen = self.weights
        return {
            "nll": self.nll / self.tokens,
            "entropy": self.entropy / self.tokens,
            "token_accuracy": self.top1 / self.tokens,
            "weight_mean": seen.mean,
            "weight_max": seen.max,
            "weight_ess": seen.ess,
            "weight_zero_share": seen.zero_share,
        }


def sums_of(
    loss: Float[Tensor, ""],
    w_N: Float[Tensor, " N"],
    logq_N: Float[Tensor, " N"],
    entropy_N: Float[Tensor, " N"],
    top1_N: Bool[Tensor, " N"] | Float[Tensor, " N"],
    sequences: Sequences,
) -> Float[Tensor, " k"]:
    """The loss of one micro-batch, then its sums in the order of `Sums`, on its device.

    Where no target follows, weight, log-probability, entropy and top-1 must be 0, as the head and TRL's path give them.
    In as few operations as it takes: a step of a small model is bound by the kernels that the host can launch.
    """
    weight, logq, entropy, top1 = (
        torch.stack([w_N, logq_N, entropy_N, top1_N.to(w_N.dtype)]).sum(1, dtype=torch.float64).unbind()
    )
    wide_N = w_N.double()  # the square of a weight of 1e20 is beyond float32
    tokens, counted = sequences.mask_N.count_nonzero(), w_N.count_nonzero()
    largest = w_N.amax() if len(w_N) else weight
    return torch.stack(
        [loss, tokens, weight, wide_N.dot(wide_N), largest, tokens - counted, -logq, entropy, top1, sequences.number]
    )


def threshold(weight: Weight, state: State, mean_length: float) -> float | None:
    """Trunc's and TruncR's delta (a log-probability), or lambda-PR's (a probability, at the window's mean length).

    It is the one that the next step will use; None where there is none, or none yet.
    """
    if isinstance(weight, Warmup):
        return threshold(weight.then, state[1], mean_length)
    if isinstance(weight, Product):
        found = (threshold(*pair, mean_length) for pair in zip(weight.factors, state, strict=True))
        return next((delta for delta in found if delta is not None), None)
    delta = math.inf
    if isinstance(weight, Trunc):
        delta = float(state[2])
    elif isinstance(weight, LambdaPR) and mean_length > 0:
        delta = weight.threshold(mean_length)
    return delta if math.isfinite(delta) else None
