"""Fitting a loss to the length of a run: the window of Trunc and TruncR, and losses that would never take effect."""

from __future__ import annotations

from .compose import Warmup, parts, with_parts
from .trunc import Trunc
from .weight import State, Weight


def fitted(weight: Weight, sequences: int) -> Weight:
    """The same loss. Trunc and TruncR without a ``window`` get one that fits a run over ``sequences`` (`Trunc.fitted`).

    >>> from widen.losses import parse
    >>> print(fitted(parse("nll:steps=5 then truncr:drop=0.1 * cdiv:alpha=1.4"), 4000))
    nll:steps=5 then truncr:drop=0.1,window=100,start=200 * cdiv:alpha=1.4,cap=10.0
    """
    return with_parts(weight, lambda one: one.fitted(sequences) if isinstance(one, Trunc) else one)


def truncs(weight: Weight) -> list[Trunc]:
    """Every Trunc and TruncR inside a loss, from left to right."""
    return [one for one, _ in parts(weight) if isinstance(one, Trunc)]


def idle(weight: Weight, *, steps: int, batch_size: int) -> str | None:
    """A warning if the run is too short for Trunc or TruncR to drop anything, else None.

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
    for one, its in parts(weight, state):
        if isinstance(one, Trunc) and one.drop > 0 and int(its[1]) < one.first_drop:
            return (
                f"{one} has not dropped any sequence: it saw {int(its[1]):,} scores and needs {one.first_drop:,}. "
                "This model was trained with the plain loss"
            )
    return None


def refuse_late_start(weight: Weight, *, steps: int) -> None:
    """Refuse ``nll:steps=N then ...`` if N leaves no step for the second loss."""
    if isinstance(weight, Warmup) and 0 < steps <= weight.steps:
        raise ValueError(
            f"loss={str(weight)!r}: the run has {steps:,} steps, so {weight.then} would never be used. "
            f"Take fewer than {steps:,} steps of NLL, or train longer"
        )
