"""What every trainer logs about a loss: one class of sums, one set of names, and warnings about a loss that trains on almost nothing.

Sums add up: over micro-batches and ranks to an optimizer step, and over steps to a logging window.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from widen.losses import CDiv, LambdaPR, State, Trunc, Weight
from widen.losses.compose import parts

STARVED = 0.01
"""Below this share of tokens with a weight above 0, training is called starved."""
STALE = 0.5
"""Warn if Trunc or TruncR leaves out this share of the tokens that should count. The margin is wide because `drop` is a share of sequences,
and long ones hold more tokens."""
CONCENTRATED = 0.1
"""Warn if the effective sample size is below this share of the tokens that count. c-Div with its default cap of 10 stays above .33."""


class Figures(NamedTuple):
    """Sums over target tokens, as float64 numbers on the host; `+` joins them.

    The first nine are in the order of the head's `widen.head.target_sums`.

    Examples:
      >>> both = Figures(weight=2.0, squares=4.0, largest=2.0, counted=1, tokens=1) + Figures(tokens=1)
      >>> both.weight_mean, both.largest, both.weight_ess, both.active_share
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
    def weight_ess(self) -> float:
        """Effective sample size as a share of the tokens, (sum w)^2 / (n sum w^2): 1 if all weights are equal, 0 if all are 0."""
        return self.weight**2 / (self.squares * self.tokens) if self.squares * self.tokens > 0 else 0.0

    @property
    def active_share(self) -> float:
        """Share of the target tokens that the loss trains on; 0 without targets."""
        return self.counted / max(self.tokens, 1.0)

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
            "weight_max": self.largest,
            "weight_ess": self.weight_ess,
            "weight_zero_share": 1 - self.active_share,
        }


def threshold(weight: Weight, state: State, mean_length: float) -> float | None:
    """The threshold of the next step: Trunc's and TruncR's log-probability, or lambda-PR's probability at this mean length.

    None if the loss has no threshold, or none yet.
    """
    for one, its in parts(weight, state):
        delta = math.inf
        if isinstance(one, Trunc):
            delta = float(its[2])
        elif isinstance(one, LambdaPR) and mean_length > 0:
            delta = one.threshold(mean_length)
        if math.isfinite(delta):
            return delta
    return None


def starvation(weight: Weight, seen: Figures, *, mean_length: float | None = None) -> str | None:
    """A sentence if the loss leaves almost nothing to train, else None.

    For lambda-PR it names delta, which falls with gamma and with the length of the sequences: at gamma = 1e-7, lam = .1 and 512
    tokens only tokens with q <= 2.2e-5 train.
    """
    if seen.tokens == 0 or seen.active_share >= STARVED:
        return None
    text = f"{weight}: only {seen.active_share:.2%} of the target tokens count"
    gate = _part(weight, LambdaPR)
    if gate is not None and mean_length is not None:
        delta = gate.threshold(mean_length)
        text += f"; at {mean_length:.0f} target tokens per sequence, delta = {delta:.2g}: a token with q above it is not trained"
        text += ". Raise gamma or lam, or start from a model that is not yet sure"
    return text


def staleness(weight: Weight, seen: Figures) -> str | None:
    """A sentence if Trunc or TruncR leaves out far more tokens than `drop` of the sequences could hold, else None.

    The threshold is a quantile of scores from earlier models: while a model improves fast, nearly every sequence lies above it.
    """
    one = _part(weight, Trunc)
    if one is None or seen.tokens == 0 or _part(weight, LambdaPR) is not None:  # lambda-PR's gate drops tokens itself
        return None
    left_out = 1 - seen.active_share
    if left_out - one.drop <= STALE * (1 - one.drop):
        return None
    return (
        f"{weight}: {left_out:.0%} of the target tokens are left out where drop={one.drop:g} was asked for; the threshold comes from "
        f"the last {one.size:,} sequences, most of them scored by an earlier model. Take a smaller window, or begin with NLL "
        "(nll:steps=N then ...)"
    )


def concentration(weight: Weight, seen: Figures) -> str | None:
    """A sentence if a few tokens carry the whole gradient (a low effective sample size), else None.

    >>> seen = Figures(tokens=1000, counted=1000, weight=10_999, squares=1e8 + 999, largest=1e4)
    >>> concentration(CDiv(alpha=1.4, cap=1e4), seen).partition(", and")[0]
    'cdiv:alpha=1.4,cap=10000.0: the effective sample size is 0.12% of the tokens that count'
    """
    share = seen.weight_ess / seen.active_share if seen.active_share else 0.0
    if seen.weight == 0 or share >= CONCENTRATED:
        return None
    cdiv = _part(weight, CDiv)
    remedy = (
        "Lower the cap (cap=10), take an alpha nearer to 1, or train"
        if cdiv is not None and cdiv.alpha > 1
        else "Train"
    )
    return (
        f"{weight}: the effective sample size is {share:.2%} of the tokens that count, and the largest weight is {seen.largest:.3g}: "
        f"a few tokens decide each step. {remedy} with NLL first (--after-nll-epochs 1, or nll:steps=N then ...)"
    )


def _part(weight: Weight, kind: type[Any]) -> Any:
    """The loss of one kind inside a weight, if there is one."""
    return next((one for one, _ in parts(weight) if isinstance(one, kind)), None)
