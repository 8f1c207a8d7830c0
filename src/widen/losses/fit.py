"""Fitting a loss to the length of a run: the window of Trunc and TruncR, and losses that would never take effect."""

from __future__ import annotations

from collections.abc import Iterator

from .compose import Product, Warmup
from .trunc import Trunc
from .weight import State, Weight


def fitted(weight: Weight, sequences: int) -> Weight:
    """The loss with every open window chosen for a run over so many sequences (`Trunc.fitted`).

    >>> from widen.losses import parse
    >>> print(fitted(parse("nll:steps=5 then truncr:drop=0.1 * cdiv:alpha=1.4"), 4000))
    nll:steps=5 then truncr:drop=0.1,window=1000,start=200 * cdiv:alpha=1.4,cap=10.0
    """
    return with_truncs(weight, iter([one.fitted(sequences) for one in truncs(weight)]))


def truncs(weight: Weight) -> list[Trunc]:
    """Every Trunc and TruncR inside a loss, from left to right."""
    if isinstance(weight, Warmup):
        return truncs(weight.then)
    if isinstance(weight, Product):
        return [one for factor in weight.factors for one in truncs(factor)]
    return [weight] if isinstance(weight, Trunc) else []


def with_truncs(weight: Weight, new: Iterator[Trunc]) -> Weight:
    """The loss with its `truncs` replaced."""
    if isinstance(weight, Warmup):
        return Warmup(steps=weight.steps, then=with_truncs(weight.then, new))
    if isinstance(weight, Product):
        return Product(*(with_truncs(factor, new) for factor in weight.factors))
    return next(new) if isinstance(weight, Trunc) else weight


def idle(weight: Weight, *, steps: int, batch_size: int) -> str | None:
    """A warning if Trunc or TruncR cannot drop anything in a run of so many steps, else None.

    >>> from widen.losses import TruncR
    >>> idle(TruncR(drop=0.1), steps=15, batch_size=8)
    'truncr:drop=0.1 will not drop any sequence: it needs 200 scores first, and this run has 120 sequences. Train longer, or lower start'
    >>> idle(TruncR(drop=0.1, window=50, start=15), steps=15, batch_size=8)
    """
    late = [one for one in truncs(weight) if one.drop > 0 and -(-one.first_drop // batch_size) >= steps]
    if not late:
        return None
    return (
        f"{late[0]} will not drop any sequence: it needs {late[0].first_drop:,} scores first, and this run has "
        f"{steps * batch_size:,} sequences. Train longer, or lower start"
    )


def was_idle(weight: Weight, state: State) -> str | None:
    """A warning if Trunc or TruncR never set a threshold in a finished run, else None."""
    if isinstance(weight, Warmup):
        return was_idle(weight.then, state[1])
    if isinstance(weight, Product):
        found = (was_idle(*pair) for pair in zip(weight.factors, state, strict=True))
        return next((text for text in found if text), None)
    if not isinstance(weight, Trunc) or weight.drop == 0 or int(state[1]) >= weight.first_drop:
        return None
    return (
        f"{weight} has not dropped any sequence: it saw {int(state[1]):,} scores and needs {weight.first_drop:,}. "
        "This model was trained with the plain loss"
    )


def refuse_late_start(weight: Weight, *, steps: int) -> None:
    """Refuse ``nll:steps=N then ...`` if N leaves no step for the second loss."""
    if isinstance(weight, Warmup) and 0 < steps <= weight.steps:
        raise ValueError(
            f"loss={str(weight)!r}: the run has {steps:,} steps, so {weight.then} would never be used. "
            f"Take fewer than {steps:,} steps of NLL, or train longer"
        )
