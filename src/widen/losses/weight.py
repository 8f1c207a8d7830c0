"""What a loss is here: how much each target token counts, and in which direction its logits move.

Every loss of the paper is ``-sum_l w_l log Q(x_l | x_<l)``; a `Weight` says the ``w`` (paper, Sec. 5 and Algorithm 1).
Other people's losses also change the residual (`Residual`).

Shapes: B sequences (one per row), L positions of a row, N target tokens in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from widen.data.rows import COUNTED, DEFAULT_NEEDS, Rows

from .fields import check
from .residual import PLAIN, Residual

State = tuple[Any, ...]
"""What a weight remembers between optimizer steps: a tuple of tensors (nested for a product or a schedule), ``()`` for most."""


@runtime_checkable
class Weight(Protocol):
    """How much each target token counts. A frozen dataclass: its fields are the hyperparameters, its methods are pure.

    ``token_local`` says that a token's weight depends on that token alone; then `weigh` is the whole definition. ``score_columns``
    says how many numbers a sequence sends to `observe` (0 for all but Trunc, TruncR and what is built of them).
    """

    @property
    def token_local(self) -> bool:
        """Whether `weigh` defines this weight."""
        ...

    @property
    def score_columns(self) -> int:
        """How many scores per sequence `observe` wants."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """The columns of `Rows` that this weight reads."""
        ...

    @property
    def residual(self) -> Residual:
        """The direction that the weight multiplies."""
        ...

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The weight of each token where ``token_local``; refused otherwise."""
        ...

    def init(self) -> State:
        """The state before the first step."""
        ...

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """Weights of one micro-batch, whose columns have the shape of the mask, and the state with what this micro-batch adds."""
        ...

    def seen(self, state: State) -> Float[Tensor, "n k"]:
        """The sequence scores that `apply` has met since the last `observe`, one row per sequence."""
        ...

    def observe(self, scores: Float[Tensor, "n k"], state: State) -> State:
        """End one optimizer step: ``scores`` are those of all micro-batches and ranks; a nan row is padding."""
        ...

    def now(self, state: State) -> Weight:
        """The weight that holds during this optimizer step: a schedule answers with the part it has reached."""
        ...


def position_and_length(mask_BL: Bool[Tensor, "B L"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]:
    """Position l = 1..L of every target token within its row, and the row's number of target tokens.

    Prompt and padding are not counted. Where the mask is False the position is that of the last target before it; nothing reads it.

    >>> position_and_length(torch.tensor([[False, True, True]]))[0]
    tensor([[0, 1, 2]])
    """
    position_BL = mask_BL.long().cumsum(-1)
    return position_BL, position_BL[:, -1:].expand_as(position_BL)


class TokenWeight:
    """A weight whose definition is `weigh`; everything else follows. Inherit from it to write a loss of your own.

    Examples:
      >>> class Unsure(TokenWeight):
      ...     def weigh(self, rows):
      ...         return -torch.expm1(rows.logq)
      >>> w, _ = Unsure().apply(Rows(torch.tensor([[0.25]]).log()), torch.tensor([[True]]), ())
      >>> round(w.item(), 6)
      0.75
    """

    token_local: ClassVar[bool] = True
    score_columns: ClassVar[int] = 0
    needs: ClassVar[frozenset[str]] = DEFAULT_NEEDS
    """The columns that `weigh` reads: ``logq``, ``entropy``, ``top1``, ``position``, ``length``, or a column of the batch. Nothing else is
    computed or passed. A class that defines `weigh` and no ``needs`` gets ``logq``, ``position`` and ``length``."""
    residual: ClassVar[Residual] = PLAIN
    """The direction that the weight multiplies. The head knows the family `Residual`."""
    never_zero: ClassVar[bool] = False
    """A promise that no token weighs 0: the head then does not wait for the device to skip rows. A broken promise (an underflow, a cap of
    0) costs products, not correctness."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "weigh" in cls.__dict__:  # what a parent promises of its own `weigh` does not hold for another
            if "needs" not in cls.__dict__:
                cls.needs = DEFAULT_NEEDS
            if "never_zero" not in cls.__dict__:
                cls.never_zero = False

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The weight of each token, from columns that are detached and in float32 (float64 if the caller's are)."""
        raise TypeError(f"{type(self).__name__} must define weigh(rows)")

    def init(self) -> State:
        """Nothing to remember."""
        return ()

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """`weigh` on the target tokens, 0 elsewhere."""
        needed = rows.only(self.needs)
        if self.needs & COUNTED:
            position_BL, length_BL = position_and_length(mask_BL)
            needed = needed.adding(position=position_BL, length=length_BL)
        # Where the mask is False anything may stand, even nan: 0 replaces it.
        w_N = self.weigh(needed.map(lambda x: torch.where(mask_BL, x, 0).flatten()))
        return torch.where(mask_BL, w_N.view(mask_BL.shape), 0.0), state

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

    They bound the final weight, after any gate: with ``floor=0.1`` a token that the loss would leave out has a tenth of NLL's weight.
    The code of TaiLr uses a floor of .2 and that of GOLD .1. A weight that grows without bound needs a cap.
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
