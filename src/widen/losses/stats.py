"""What a trainer logs about its weights: mean, maximum, effective sample size, share of zeros.

Everything is kept as sums, so that the figures of several micro-batches and ranks add up to those of the optimizer step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .cdiv import CDiv
from .compose import Product, Warmup
from .tailr import LambdaPR
from .trunc import Trunc
from .weight import Weight

STARVED = 0.01
"""Below this share of tokens with a weight above 0, training is called starved."""

STALE = 0.5
"""Warn if Trunc or TruncR leaves out this share of the tokens that should count: its threshold is stale. The margin is wide because `drop`
is a share of sequences, and long ones hold more tokens."""

CONCENTRATED = 0.1
"""Warn if the effective sample size is below this share of the tokens that count. c-Div with its default cap of 10 stays above .33."""


class WeightStats(NamedTuple):
    """Sums over target tokens; `+` joins micro-batches. Reading a property of a CUDA tensor synchronises: do it when you log."""

    tokens: Float[Tensor, ""]
    total: Float[Tensor, ""]
    squares: Float[Tensor, ""]
    largest: Float[Tensor, ""]
    zeros: Float[Tensor, ""]

    def __add__(self, other: object) -> WeightStats:
        if not isinstance(other, WeightStats):
            return NotImplemented
        return WeightStats(
            self.tokens + other.tokens,
            self.total + other.total,
            self.squares + other.squares,
            torch.maximum(self.largest, other.largest),
            self.zeros + other.zeros,
        )

    @property
    def mean(self) -> float:
        """Mean weight: the factor by which the loss's scale, hence the effective learning rate, differs from NLL's."""
        return float(self.total) / max(float(self.tokens), 1.0)

    @property
    def max(self) -> float:
        """Largest weight."""
        return float(self.largest)

    @property
    def ess(self) -> float:
        """Effective sample size as a share of the tokens: (sum w)^2 / (n sum w^2); 1 where all weigh the same, 0 where none does."""
        squares = float(self.squares) * float(self.tokens)
        return float(self.total) ** 2 / squares if squares > 0 else 0.0

    @property
    def zero_share(self) -> float:
        """Share of target tokens that do not count at all."""
        return float(self.zeros) / max(float(self.tokens), 1.0)

    @property
    def active_share(self) -> float:
        """Share of target tokens that count; 0 for a batch without targets."""
        return 1 - self.zero_share if float(self.tokens) else 0.0

    @property
    def ess_of_active(self) -> float:
        """Effective sample size as a share of the tokens that count."""
        return self.ess / self.active_share if self.active_share else 0.0


def stats(w_BL: Float[Tensor, "*any"], mask_BL: Bool[Tensor, "*any"]) -> WeightStats:
    """Sums of the weights of the target tokens, on their device.

    >>> s = stats(torch.tensor([[2.0, 0.0, 9.0]]), torch.tensor([[True, True, False]]))
    >>> s.mean, s.max, s.ess, s.zero_share
    (1.0, 2.0, 0.5, 0.5)
    """
    w = torch.where(mask_BL, w_BL, 0.0).double()
    return WeightStats(
        tokens=mask_BL.sum().double(),
        total=w.sum(),
        squares=w.square().sum(),
        largest=w.max() if w.numel() else w.sum(),
        zeros=(mask_BL & (w == 0)).sum().double(),
    )


def starvation(weight: Weight, seen: WeightStats, *, mean_length: float | None = None) -> str | None:
    """A sentence for the log when a loss leaves almost nothing to train, else None.

    For lambda-PR it names delta, which falls with gamma and with the length of the sequences: at gamma = 1e-7, lam = .1 and 512
    tokens only tokens with q <= 2.2e-5 train.
    """
    if float(seen.tokens) == 0 or seen.active_share >= STARVED:
        return None
    text = f"{weight}: only {seen.active_share:.2%} of the target tokens count"
    gate = _part(weight, LambdaPR)
    if gate is not None and mean_length is not None:
        delta = gate.threshold(mean_length)
        text += f"; at {mean_length:.0f} target tokens a sequence, delta = {delta:.2g}: a token with q above it is not trained"
        text += ". Raise gamma or lam, or start from a model that is not yet sure"
    return text


def staleness(weight: Weight, seen: WeightStats) -> str | None:
    """A sentence for the log when Trunc or TruncR leaves out far more tokens than `drop` of the sequences could hold, else None.

    Their threshold is a quantile of scores that earlier models gave: while a model improves fast, nearly every sequence lies above it.
    """
    one = _part(weight, Trunc)
    if (
        one is None or float(seen.tokens) == 0 or _part(weight, LambdaPR) is not None
    ):  # whose gate leaves out tokens of its own
        return None
    left_out = 1 - seen.active_share
    if left_out - one.drop <= STALE * (1 - one.drop):
        return None
    return (
        f"{weight}: {left_out:.0%} of the target tokens are left out where drop={one.drop:g} was asked for; the threshold comes from "
        f"the last {one.size:,} sequences, most of them scored by an earlier model. Take a smaller window"
    )


def concentration(weight: Weight, seen: WeightStats) -> str | None:
    """A sentence for the log when a few tokens carry the whole gradient (a low effective sample size), else None.

    >>> from widen.losses import CDiv
    >>> w = torch.tensor([[1.0] * 999 + [10_000.0]])
    >>> concentration(CDiv(alpha=1.4, cap=1e4), stats(w, w > 0)).partition(", and")[0]
    'cdiv:alpha=1.4,cap=10000.0: the effective sample size is 0.12% of the tokens that count'
    """
    if float(seen.tokens) == 0 or float(seen.total) == 0 or seen.ess_of_active >= CONCENTRATED:
        return None
    cdiv = _part(weight, CDiv)
    remedy = "Lower the cap (cap=10), take an alpha nearer to 1, or " if cdiv is not None and cdiv.alpha > 1 else ""
    remedy += "train with NLL first (--after-nll-epochs 1, or nll:steps=N then ...)"
    return (
        f"{weight}: the effective sample size is {seen.ess_of_active:.2%} of the tokens that count, and the largest weight is "
        f"{seen.max:.3g}: a few tokens decide each step. {remedy[0].upper()}{remedy[1:]}"
    )


def _part(weight: Weight, kind: type[Any]) -> Any:
    """The loss of one kind inside a weight, if there is one."""
    if isinstance(weight, Warmup):
        return _part(weight.then, kind)
    if isinstance(weight, Product):
        return next((found for factor in weight.factors if (found := _part(factor, kind))), None)
    return weight if isinstance(weight, kind) else None
