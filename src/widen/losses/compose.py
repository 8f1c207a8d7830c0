"""Weights made of weights: a product of several, and "NLL for the first n steps, then another".

Shapes: B sequences, L positions, n scores of one optimizer step, k score columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from widen.data.rows import Rows, needs_of

from .nll import NLL
from .residual import PLAIN, Residual, only_weighs, residual_of
from .weight import State, Weight


@dataclass(frozen=True)
class Product:
    """``w = w_1 w_2 ...``: for instance TruncR's choice of sequences times c-Div's choice of tokens.

    Token-local if every factor is. The states travel as a tuple, one per factor. At most one factor may have
    another residual than the plain one.

    Examples:
      >>> from widen.losses import CDiv, TaiLr
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

    @property
    def token_local(self) -> bool:
        """Whether every factor is."""
        return all(factor.token_local for factor in self.factors)

    @property
    def needs(self) -> frozenset[str]:
        """What any factor needs."""
        return frozenset().union(*map(needs_of, self.factors))

    @property
    def residual(self) -> Residual:
        """That of the one factor that has another than the plain one."""
        return next((found for found in map(residual_of, self.factors) if found != PLAIN), PLAIN)

    @property
    def rows_fn(self) -> Any:
        """That of the one factor that has one."""
        return next((found for f in self.factors if (found := getattr(f, "rows_fn", None)) is not None), None)

    @property
    def never_zero(self) -> bool:
        """Whether every factor promises it."""
        return all(getattr(factor, "never_zero", False) for factor in self.factors)

    @property
    def score_columns(self) -> int:
        """The factors' columns side by side."""
        return sum(factor.score_columns for factor in self.factors)

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """Product of the factors' `weigh`; refused by a factor that is not token-local."""
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

    def now(self, state: State) -> Weight:
        """Always itself."""
        return self

    def __str__(self) -> str:
        return " * ".join(map(str, self.factors))


class WarmupState(NamedTuple):
    """How many optimizer steps are done, and the state of the weight to come."""

    step: Int[Tensor, ""]  # on the CPU, so that asking it costs no device sync
    inner: State


@dataclass(frozen=True)
class Warmup:
    """NLL for the first ``steps`` optimizer steps, then ``then``.

    The paper starts its losses "from a checkpoint obtained after one epoch of NLL": c-Div at alpha > 1 is unstable, and lambda-PR
    cannot learn at all, from random weights. During the warm-up a Trunc or TruncR already fills its window, so that its threshold
    is there when it is needed.

    Examples:
      >>> from widen.losses import CDiv
      >>> loss = Warmup(steps=1000, then=CDiv(alpha=1.4))
      >>> print(loss)
      nll:steps=1000 then cdiv:alpha=1.4,cap=10.0
      >>> print(loss.now(loss.init()))
      nll
    """

    steps: int
    then: Weight

    def __init__(self, *, steps: int, then: Weight) -> None:
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise ValueError(f"Warmup: steps={steps!r}; legal: a whole number, at least 0")
        if isinstance(then, Warmup):
            raise ValueError(f"Warmup: then={then} is a schedule itself; legal: one schedule, outermost")
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "then", then)

    @property
    def token_local(self) -> bool:
        """False: the weight depends on the step. Within one step ask `now`."""
        return False

    @property
    def needs(self) -> frozenset[str]:
        """Those of the weight to come, and NLL's."""
        return NLL.needs | needs_of(self.then)

    @property
    def residual(self) -> Residual:
        """That of the weight to come. Within one step ask `now`."""
        return residual_of(self.then)

    @property
    def rows_fn(self) -> Any:
        """That of the weight to come."""
        return getattr(self.then, "rows_fn", None)

    @property
    def score_columns(self) -> int:
        """Those of the weight to come."""
        return self.then.score_columns

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """Refused: which weight holds depends on the step."""
        raise TypeError(f"{self}: the weight depends on the step; call now(state).weigh(...) within one step, or apply")

    def init(self) -> WarmupState:
        """Step 0."""
        return WarmupState(torch.zeros((), dtype=torch.int64), self.then.init())

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """The weight of `now`; the weight to come sees the batch in either case."""
        state = WarmupState(*state)
        w_BL, inner = self.then.apply(rows, mask_BL, state.inner)
        if int(state.step) < self.steps:
            w_BL, _ = NLL().apply(rows, mask_BL, ())
        return w_BL, state._replace(inner=inner)

    def seen(self, state: State) -> Float[Tensor, "n k"]:
        """Those of the weight to come."""
        return self.then.seen(WarmupState(*state).inner)

    def observe(self, scores: Float[Tensor, "n k"] | Float[Tensor, " n"], state: State) -> WarmupState:
        """One optimizer step is over."""
        state = WarmupState(*state)
        return WarmupState(state.step + 1, self.then.observe(scores, state.inner))

    def now(self, state: State) -> Weight:
        """NLL, or the weight that follows it."""
        return NLL() if int(WarmupState(*state).step) < self.steps else self.then

    def __str__(self) -> str:
        return f"nll:steps={self.steps} then {self.then}"
