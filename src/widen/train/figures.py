"""What every trainer logs about a loss: one class of sums, one set of names.

Sums add up: over micro-batches and ranks to an optimizer step, and over steps to a logging window.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from widen.losses import LambdaPR, Product, State, Trunc, Warmup, Weight

__all__ = ["Figures", "threshold"]


class Figures(NamedTuple):
    """Sums over target tokens, as float64 numbers on the host; `+` joins them.

    The first nine are in the order of the head's `widen.head.target_sums`.

    Examples:
      >>> both = Figures(weight=2.0, squares=4.0, largest=2.0, counted=1, tokens=1) + Figures(tokens=1)
      >>> both.weight_mean, both.weight_max, both.weight_ess, both.weight_zero_share
      (1.0, 2.0, 0.5, 0.5)
    """

    weighted: float = 0.0
    """Sum of w log q; a weight of 0 times -inf is 0."""
    weight: float = 0.0
    squares: float = 0.0
    largest: float = 0.0
    counted: float = 0.0
    """Tokens whose weight is not 0."""
    logq: float = 0.0
    entropy: float = 0.0
    top1: float = 0.0
    tokens: float = 0.0
    sequences: float = 0.0
    """Sequences with a target; 0 if the loss does not look at positions."""

    def __add__(self, other: object) -> Figures:
        if not isinstance(other, Figures):
            return NotImplemented
        added = Figures(*(a + b for a, b in zip(tuple(self), tuple(other), strict=True)))
        return added._replace(largest=max(self.largest, other.largest))

    @property
    def nll(self) -> float:
        """NLL per token, whatever the loss: the figure that compares losses."""
        return -self.logq / max(self.tokens, 1.0)

    @property
    def weight_mean(self) -> float:
        """Mean weight: the factor by which the scale of the loss differs from NLL's."""
        return self.weight / max(self.tokens, 1.0)

    @property
    def weight_max(self) -> float:
        """Largest weight."""
        return self.largest

    @property
    def weight_ess(self) -> float:
        """Effective sample size as a share of the tokens, (sum w)^2 / (n sum w^2): 1 if all weights are equal, 0 if all are 0."""
        return self.weight**2 / (self.squares * self.tokens) if self.squares * self.tokens > 0 else 0.0

    @property
    def weight_zero_share(self) -> float:
        """Share of the target tokens that the loss leaves out."""
        return 1 - self.counted / self.tokens if self.tokens else 0.0

    @property
    def active_share(self) -> float:
        """Share of the target tokens that the loss trains on; 0 without targets."""
        return self.counted / max(self.tokens, 1.0)

    @property
    def active_ess(self) -> float:
        """Effective sample size as a share of the tokens that the loss trains on."""
        return self.weight_ess / self.active_share if self.active_share else 0.0

    @property
    def mean_length(self) -> float:
        """Target tokens per sequence."""
        return self.tokens / max(self.sequences, 1.0)

    def logged(self) -> dict[str, float]:
        """The figures under their names in every log; empty without targets."""
        if not self.tokens:
            return {}
        return {
            "nll": self.nll,
            "entropy": self.entropy / self.tokens,
            "token_accuracy": self.top1 / self.tokens,
            "weight_mean": self.weight_mean,
            "weight_max": self.weight_max,
            "weight_ess": self.weight_ess,
            "weight_zero_share": self.weight_zero_share,
        }


def threshold(weight: Weight, state: State, mean_length: float) -> float | None:
    """The threshold of the next step: Trunc's and TruncR's log-probability, or lambda-PR's probability at this mean length.

    None if the loss has no threshold, or none yet.
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
