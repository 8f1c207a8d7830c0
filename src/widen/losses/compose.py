"""Weights made of other things: a column of the batch, a product of weights, and "NLL for the first n steps, then another".

Shapes: B sequences, L positions, N target tokens, n scores of one optimizer step, k score columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from widen.data.rows import Rows, needs_of

from .nll import NLL
from .residual import PLAIN, Residual, only_weighs, residual_of
from .weight import State, TokenWeight, Weight


@dataclass(frozen=True)
class Column(TokenWeight):
    """The weight of a token is its entry in a column of the batch.

    Examples:
      >>> Column("loss_weights").weigh(Rows(extra={"loss_weights": torch.tensor([0.5, 2.0])}))
      tensor([0.5000, 2.0000])
    """

    name: str

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The column."""
        return frozenset({self.name})

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The column."""
        return rows[self.name]


class Combined(Weight):
    """A loss made of `factors`, of which at most one has another residual than softmax - onehot."""

    factors: tuple[Weight, ...]

    @property
    def token_local(self) -> bool:
        """Whether every factor is token-local."""
        return all(factor.token_local for factor in self.factors)

    @property
    def needs(self) -> frozenset[str]:
        """The columns that any factor reads."""
        return frozenset().union(*map(needs_of, self.factors))

    @property
    def residual(self) -> Residual:
        """The residual of the one factor whose residual is not plain."""
        return next((found for found in map(residual_of, self.factors) if found != PLAIN), PLAIN)

    @property
    def rows_fn(self) -> Any:
        """The function of the one factor that has one."""
        return next((found for f in self.factors if (found := getattr(f, "rows_fn", None)) is not None), None)

    @property
    def never_zero(self) -> bool:
        """Whether every factor promises it."""
        return all(getattr(factor, "never_zero", False) for factor in self.factors)

    @property
    def score_columns(self) -> int:
        """The factors' columns side by side."""
        return sum(factor.score_columns for factor in self.factors)


@dataclass(frozen=True)
class Product(Combined):
    """``w = w_1 w_2 ...``: for instance TruncR's choice of sequences times c-Div's choice of tokens.

    The state is a tuple, one per factor. At most one factor may have another residual than the plain one.

    Examples:
      >>> from widen.losses import CDiv
      >>> loss = Product(CDiv(alpha=0.5), CDiv(alpha=0.5))
      >>> loss.weigh(Rows(torch.tensor([0.25]).log()))
      tensor([0.2500])
      >>> print(loss)
      cdiv:alpha=0.5 * cdiv:alpha=0.5
    """

    factors: tuple[Weight, ...]

    def __init__(self, *factors: Weight) -> None:
        if len(factors) < 2:
            raise ValueError(f"Product takes two weights or more, got {len(factors)}")
        for factor in factors:
            if isinstance(factor, Warmup):
                raise ValueError(f"a schedule goes outside a product, not inside: {factor}")
        bent = [factor for factor in factors if not only_weighs(factor)]
        if len(bent) > 1:
            raise ValueError(
                f"{bent[0]} and {bent[1]} both replace the residual softmax - onehot, and two residuals have no product; legal: at most "
                "one such factor, times losses that only weigh tokens"
            )
        object.__setattr__(self, "factors", factors)

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """Product of the factors' `weigh`."""
        return reduce(torch.mul, (factor.weigh(rows.only(needs_of(factor))) for factor in self.factors))

    def init(self) -> State:
        """One state per factor."""
        return tuple(factor.init() for factor in self.factors)

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """Product of the factors' weights."""
        pairs = [factor.apply(rows, mask_BL, part) for factor, part in zip(self.factors, state, strict=True)]
        return reduce(torch.mul, (w_BL for w_BL, _ in pairs)), tuple(part for _, part in pairs)

    def seen(self, state: State) -> Float[Tensor, "n k"]:
        """The factors' scores side by side."""
        if self.score_columns == 0:
            return torch.empty(0, 0)
        parts = zip(self.factors, state, strict=True)
        return torch.cat([factor.seen(part) for factor, part in parts if factor.score_columns], dim=1)

    def observe(self, scores: Float[Tensor, "n k"] | Float[Tensor, " n"], state: State) -> State:
        """Each factor takes its own columns."""
        scores = scores.reshape(-1, max(self.score_columns, 1))
        new, column = [], 0
        for factor, part in zip(self.factors, state, strict=True):
            new.append(factor.observe(scores[:, column : column + factor.score_columns], part))
            column += factor.score_columns
        return tuple(new)

    def __str__(self) -> str:
        return " * ".join(map(str, self.factors))


class WarmupState(NamedTuple):
    """The number of optimizer steps done, and the state of the second weight."""

    step: Int[Tensor, ""]  # on the CPU, so that reading it does not wait for the device
    inner: State


@dataclass(frozen=True)
class Warmup(Combined):
    """NLL for the first ``steps`` optimizer steps, then ``then``.

    The paper starts its losses "from a checkpoint obtained after one epoch of NLL": from random weights c-Div at alpha > 1 is unstable and
    lambda-PR cannot learn. Trunc and TruncR fill their window during the warm-up.

    Examples:
      >>> from widen.losses import CDiv
      >>> loss = Warmup(steps=1000, then=CDiv(alpha=1.4))
      >>> print(loss)
      nll:steps=1000 then cdiv:alpha=1.4,cap=10.0
      >>> print(loss.now(loss.init()))
      nll
    """

    token_local: ClassVar[bool] = False  # within one step ask `now`
    steps: int
    then: Weight

    def __init__(self, *, steps: int, then: Weight) -> None:
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise ValueError(f"Warmup: steps={steps!r}; legal: a whole number, at least 0")
        if isinstance(then, Warmup):
            raise ValueError(f"Warmup: then={then} is a schedule itself; legal: one schedule, outermost")
        for name, value in {"steps": steps, "then": then, "factors": (NLL(), then)}.items():
            object.__setattr__(self, name, value)

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """Refused: the weight depends on the step."""
        raise TypeError(f"{self}: the weight depends on the step; call now(state).weigh(...) within one step, or apply")

    def init(self) -> WarmupState:
        """Step 0."""
        return WarmupState(torch.zeros((), dtype=torch.int64), self.then.init())

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """The weight of `now`; the second weight sees the batch during the warm-up too."""
        state = WarmupState(*state)
        w_BL, inner = self.then.apply(rows, mask_BL, state.inner)
        if int(state.step) < self.steps:
            w_BL, _ = NLL().apply(rows, mask_BL, ())
        return w_BL, state._replace(inner=inner)

    def seen(self, state: State) -> Float[Tensor, "n k"]:
        """The scores of the second weight."""
        return self.then.seen(WarmupState(*state).inner)

    def observe(self, scores: Float[Tensor, "n k"] | Float[Tensor, " n"], state: State) -> WarmupState:
        """Ends one optimizer step."""
        state = WarmupState(*state)
        return WarmupState(state.step + 1, self.then.observe(scores, state.inner))

    def now(self, state: State) -> Weight:
        """NLL, or the weight that follows it."""
        return NLL() if int(WarmupState(*state).step) < self.steps else self.then

    def __str__(self) -> str:
        return f"nll:steps={self.steps} then {self.then}"


def parts(weight: Weight, state: State | None = None) -> list[tuple[Weight, Any]]:
    """The losses inside products and a schedule, from left to right, each with its part of ``state``, or None."""
    if isinstance(weight, Warmup):
        return parts(weight.then, None if state is None else state[1])
    if isinstance(weight, Product):
        states = [None] * len(weight.factors) if state is None else state
        return [one for pair in zip(weight.factors, states, strict=True) for one in parts(*pair)]
    return [(weight, state)]


def with_parts(weight: Weight, change: Callable[[Weight], Weight]) -> Weight:
    """The loss with ``change`` applied to each of its `parts`."""
    if isinstance(weight, Warmup):
        return Warmup(steps=weight.steps, then=with_parts(weight.then, change))
    if isinstance(weight, Product):
        return Product(*(with_parts(factor, change) for factor in weight.factors))
    return change(weight)
