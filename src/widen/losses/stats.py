"""Sentences for a trainer's log when a loss trains on almost nothing, or on much less than was asked for."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from .compose import Product, Warmup
from .tailr import LambdaPR
from .trunc import Trunc
from .weight import Weight

STARVED = 0.01
"""Below this share of tokens with a weight above 0, training is called starved."""

STALE = 0.5
"""Beyond this share of the tokens that should count, those that Trunc or TruncR leaves out too many point to an old threshold. A wide
margin: `drop` is a share of sequences, and long ones hold more tokens."""


@runtime_checkable
class Seen(Protocol):
    """What the sentences below look at: sums over target tokens, such as `widen.train.Figures`."""

    @property
    def tokens(self) -> float:
        """Number of target tokens."""
        ...

    @property
    def active_share(self) -> float:
        """Share of them with a weight above 0."""
        ...


def starvation(weight: Weight, seen: Seen, *, mean_length: float | None = None) -> str | None:
    """A sentence for the log when a loss leaves almost nothing to train, else None.

    For lambda-PR it names delta, which falls with gamma and with the length of the sequences: at gamma = 1e-7, lam = .1 and 512
    tokens only tokens with q <= 2.2e-5 train.
    """
    if seen.tokens == 0 or seen.active_share >= STARVED:
        return None
    text = f"{weight}: only {seen.active_share:.2%} of the target tokens count"
    gate = _part(weight, LambdaPR)
    if gate is not None and mean_length is not None:
        delta = gate.threshold(mean_length)
        text += f"; at {mean_length:.0f} target tokens a sequence, delta = {delta:.2g}: a token with q above it is not trained"
        text += ". Raise gamma or lam, or start from a model that is not yet sure"
    return text


def staleness(weight: Weight, seen: Seen) -> str | None:
    """A sentence for the log when Trunc or TruncR leaves out far more tokens than `drop` of the sequences could hold, else None.

    Their threshold is a quantile of scores that earlier models gave: while a model improves fast, nearly every sequence lies above it.
    """
    one = _part(weight, Trunc)
    if (
        one is None or seen.tokens == 0 or _part(weight, LambdaPR) is not None
    ):  # whose gate leaves out tokens of its own
        return None
    left_out = 1 - seen.active_share
    if left_out - one.drop <= STALE * (1 - one.drop):
        return None
    return (
        f"{weight}: {left_out:.0%} of the target tokens are left out where drop={one.drop:g} was asked for; the threshold comes from "
        f"the last {one.window:,} sequences, most of them scored by an earlier model. Take a smaller window"
    )


def _part(weight: Weight, kind: type[Any]) -> Any:
    """The loss of one kind inside a weight, if there is one."""
    if isinstance(weight, Warmup):
        return _part(weight.then, kind)
    if isinstance(weight, Product):
        return next((found for factor in weight.factors if (found := _part(factor, kind))), None)
    return weight if isinstance(weight, kind) else None
