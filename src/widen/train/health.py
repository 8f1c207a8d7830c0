"""Warnings for a trainer's log: the loss trains on almost nothing, on much less than was asked for, or on a few tokens only."""

from __future__ import annotations

from typing import Any

from widen.losses import CDiv, LambdaPR, Product, Trunc, Warmup, Weight

from .figures import Figures

__all__ = ["concentration", "staleness", "starvation"]

STARVED = 0.01
"""Below this share of tokens with a weight above 0, training is called starved."""

STALE = 0.5
"""Warn if Trunc or TruncR leaves out this share of the tokens that should count: its threshold is stale. The margin is wide because `drop`
is a share of sequences, and long ones hold more tokens."""

CONCENTRATED = 0.1
"""Warn if the effective sample size is below this share of the tokens that count. c-Div with its default cap of 10 stays above .33."""


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
        text += f"; at {mean_length:.0f} target tokens a sequence, delta = {delta:.2g}: a token with q above it is not trained"
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
        f"the last {one.size:,} sequences, most of them scored by an earlier model. Take a smaller window"
    )


def concentration(weight: Weight, seen: Figures) -> str | None:
    """A sentence if a few tokens carry the whole gradient (a low effective sample size), else None.

    >>> seen = Figures(tokens=1000, counted=1000, weight=10_999, squares=1e8 + 999, largest=1e4)
    >>> concentration(CDiv(alpha=1.4, cap=1e4), seen).partition(", and")[0]
    'cdiv:alpha=1.4,cap=10000.0: the effective sample size is 0.12% of the tokens that count'
    """
    if seen.weight == 0 or seen.active_ess >= CONCENTRATED:
        return None
    cdiv = _part(weight, CDiv)
    remedy = "Lower the cap (cap=10), take an alpha nearer to 1, or " if cdiv is not None and cdiv.alpha > 1 else ""
    remedy += "train with NLL first (--after-nll-epochs 1, or nll:steps=N then ...)"
    return (
        f"{weight}: the effective sample size is {seen.active_ess:.2%} of the tokens that count, and the largest weight is "
        f"{seen.weight_max:.3g}: a few tokens decide each step. {remedy[0].upper()}{remedy[1:]}"
    )


def _part(weight: Weight, kind: type[Any]) -> Any:
    """The loss of one kind inside a weight, if there is one."""
    if isinstance(weight, Warmup):
        return _part(weight.then, kind)
    if isinstance(weight, Product):
        return next((found for factor in weight.factors if (found := _part(factor, kind))), None)
    return weight if isinstance(weight, kind) else None
