"""What is logged beside the loss, kept as sums so that micro-batches, ranks and steps add up to the logging window."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from widen.head import TargetSums
from widen.losses import LambdaPR, Product, State, Trunc, Warmup, Weight, WeightStats

__all__ = ["Sums", "threshold"]


class Sums(NamedTuple):
    """Sums over target tokens, as float64 numbers of the host."""

    tokens: float = 0.0
    weight: float = 0.0
    squares: float = 0.0
    largest: float = 0.0
    zeros: float = 0.0
    nll: float = 0.0
    entropy: float = 0.0
    top1: float = 0.0
    sequences: float = 0.0

    @classmethod
    def of(cls, found: TargetSums, *, sequences: float) -> Sums:
        """Of one micro-batch, from what the head found; ``sequences`` of them have a target."""
        zeros, nll = found.tokens - found.counted, -found.logq
        return cls(
            found.tokens, found.weight, found.squares, found.largest, zeros, nll, found.entropy, found.top1, sequences
        )

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
