"""What a loss is here: how much each target token counts, as a function of detached log-probabilities.

Every loss of the paper is ``-sum_l w_l log Q(x_l | x_<l)``; a `Weight` is the ``w`` and nothing else (paper, Sec. 5 and Algorithm 1).

Shapes: B sequences (one a row), L positions of a row, N target tokens in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

State = tuple[Any, ...]
"""What a weight remembers between optimizer steps: a tuple of tensors (nested for a product or a schedule), ``()`` for most."""


@runtime_checkable
class Weight(Protocol):
    """How much each target token counts. A frozen dataclass: its fields are the hyperparameters, its methods are pure.

    ``token_local`` says that a token's weight depends on that token alone; then `at` is the whole definition. ``score_columns``
    says how many numbers a sequence sends to `observe` (0 for all but Trunc, TruncR and what is built of them).
    """

    @property
    def token_local(self) -> bool:
        """Whether `at` defines this weight."""
        ...

    @property
    def score_columns(self) -> int:
        """How many scores per sequence `observe` wants."""
        ...

    def at(
        self, logq_N: Float[Tensor, " N"], position_N: Int[Tensor, " N"] | None, length_N: Int[Tensor, " N"] | None
    ) -> Float[Tensor, " N"]:
        """The weight of each token where ``token_local``; refused otherwise."""
        ...

    def init(self) -> State:
        """The state before the first step."""
        ...

    def apply(
        self, logq_BL: Float[Tensor, "B L"], mask_BL: Bool[Tensor, "B L"], state: State
    ) -> tuple[Float[Tensor, "B L"], State]:
        """Weights of one micro-batch, and the state with what this micro-batch adds to it."""
        ...

    def seen(self, state: State) -> Float[Tensor, "n k"]:
        """The sequence scores that `apply` has met since the last `observe`, one row a sequence."""
        ...

    def observe(self, scores: Float[Tensor, "n k"], state: State) -> State:
        """End one optimizer step: ``scores`` are those of all micro-batches and ranks; a nan row is padding."""
        ...

    def now(self, state: State) -> Weight:
        """The weight that holds during this optimizer step: a schedule answers with the part it has reached."""
        ...


def position_and_length(mask_BL: Bool[Tensor, "B L"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]:
    """Position l = 1..L of every target token within its row, and the row's number of target tokens.

    Prompt and padding are not counted. Under the mask the position is that of the last target before it; nothing reads it.

    >>> position_and_length(torch.tensor([[False, True, True]]))[0]
    tensor([[0, 1, 2]])
    """
    position_BL = mask_BL.long().cumsum(-1)
    return position_BL, position_BL[:, -1:].expand_as(position_BL)


class TokenWeight:
    """A weight whose definition is `at`; everything else follows. Inherit from it to write a loss of your own.

    Examples:
      >>> class Focal(TokenWeight):
      ...     def at(self, logq_N, position_N, length_N):
      ...         return -torch.expm1(logq_N)
      >>> w, _ = Focal().apply(torch.tensor([[0.25]]).log(), torch.tensor([[True]]), ())
      >>> round(w.item(), 6)
      0.75
    """

    token_local: ClassVar[bool] = True
    score_columns: ClassVar[int] = 0
    uses_position: ClassVar[bool] = True
    """Whether `at` looks at position or length; where it is False a trainer need not count them."""
    never_zero: ClassVar[bool] = False
    """A promise that no token weighs 0: the head then does not wait for the device to learn whether it could leave rows out. Where
    it is broken (an underflow, a cap of 0) that costs products, not correctness."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "at" in cls.__dict__:  # what a parent promises of its own `at` says nothing of another
            cls.uses_position = cls.__dict__.get("uses_position", True)
            cls.never_zero = cls.__dict__.get("never_zero", False)

    def at(
        self, logq_N: Float[Tensor, " N"], position_N: Int[Tensor, " N"] | None, length_N: Int[Tensor, " N"] | None
    ) -> Float[Tensor, " N"]:
        """The weight of each token. ``logq_N`` arrives detached, in float32 (float64 where the caller's is)."""
        raise TypeError(f"{type(self).__name__} must define at(logq_N, position_N, length_N)")

    def init(self) -> State:
        """Nothing to remember."""
        return ()

    def apply(
        self, logq_BL: Float[Tensor, "B L"], mask_BL: Bool[Tensor, "B L"], state: State
    ) -> tuple[Float[Tensor, "B L"], State]:
        """`at` on the target tokens, 0 elsewhere."""
        position_BL, length_BL = position_and_length(mask_BL)
        # Under the mask anything may lie, nan too: log 1 stands in for it.
        logq_N = torch.where(mask_BL, logq_BL, 0.0).flatten()
        w_N = self.at(logq_N, position_BL.flatten(), length_BL.flatten())
        return torch.where(mask_BL, w_N.view_as(logq_BL), 0.0), state

    def seen(self, state: State) -> Float[Tensor, "n k"]:
        """No scores."""
        return torch.empty(0, 0)

    def observe(self, scores: Float[Tensor, "n k"], state: State) -> State:
        """Nothing changes from step to step."""
        return state

    def now(self, state: State) -> TokenWeight:
        """Always itself."""
        return self


@dataclass(frozen=True, kw_only=True)
class Bounded(TokenWeight):
    """The two options that every loss takes: no token counts less than ``floor`` or more than ``cap``.

    They bound the final weight, after any gate: ``floor=0.1`` gives a token that the loss would leave out a tenth of NLL's
    weight. The peers whose recipes work use floors (TaiLr's code .2, GOLD's .1); a weight that grows without bound needs a cap.
    """

    floor: float = 0.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        check(self, "floor", 0.0, math.inf)
        check(self, "cap", 0.0, math.inf, allow_high=True)
        if self.cap == 0:
            raise ValueError("cap=0 leaves no token any weight; legal: cap > 0")
        if self.floor > self.cap:
            raise ValueError(f"floor={self.floor:g} is above cap={self.cap:g}; legal: floor <= cap")

    def bounded(self, w: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """``w`` between ``floor`` and ``cap``; an overflow to inf comes down to ``cap``."""
        if self.floor == 0.0 and math.isinf(self.cap):
            return w
        return w.clamp(self.floor, self.cap)


def check(owner: object, name: str, low: float, high: float, *, allow_high: bool = False) -> None:
    """Refuse a field that is not a number in ``[low, high)`` (``[low, high]`` with ``allow_high``), saying what is legal."""
    value = getattr(owner, name)
    legal = f"{low:g} <= {name} {'<=' if allow_high else '<'} {high:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{type(owner).__name__}: {name}={value!r} is not a number; legal: {legal}")
    if not (low <= value < high or (allow_high and value == high)):
        raise ValueError(f"{type(owner).__name__}: {name}={value!r} is out of range; legal: {legal}")


def spec_of(name: str, weight: Any) -> str:
    """``name:field=value,...`` with every field that differs from its default: what `losses.parse` reads back.

    A default of None stands for "chosen on construction" (c-Div's cap), and such a value is always shown.
    """
    shown = [f.name for f in fields(weight) if getattr(weight, f.name) != f.default]
    shown.sort(key=lambda field: field in ("floor", "cap"))  # the loss's own fields first
    parts = [f"{field}={getattr(weight, field)}" for field in shown]
    return f"{name}:{','.join(parts)}" if parts else name
