"""What a loss is here: how much each target token counts, and in which direction its logits move.

Every loss of the paper is ``-sum_l w_l log Q(x_l | x_<l)``; a `Weight` gives the ``w`` (paper, Sec. 5 and Algorithm 1).
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

from .fields import check, spec_of
from .residual import PLAIN, Residual

State = tuple[Any, ...]
"""What a weight remembers between optimizer steps: a tuple of tensors (nested for a product or a schedule), ``()`` for most."""


@runtime_checkable
class Weight(Protocol):
    """How much each target token counts. A frozen dataclass: its fields are the hyperparameters, its methods are pure."""

    @property
    def token_local(self) -> bool:
        """Whether a token's weight depends on that token alone, so that `weigh` defines it."""

    @property
    def score_columns(self) -> int:
        """How many scores per sequence `observe` takes: 0 except for Trunc, TruncR and what is built of them."""

    @property
    def needs(self) -> frozenset[str]:
        """The columns of `Rows` that this weight reads."""

    @property
    def residual(self) -> Residual:
        """The direction that the weight multiplies."""

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """The weight of each token, from detached columns in float32 (float64 if the caller's are); refused unless ``token_local``."""
        raise TypeError(f"{type(self).__name__} must define weigh(rows)")

    def init(self) -> State:
        """The state before the first step; none unless overridden."""
        return ()

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """Weights of whole sequences and the updated state; columns have the shape of the mask.

        A micro-batch may come in several calls, each with some of its sequences.
        """

    def seen(self, state: State) -> Float[Tensor, "n k"]:
        """The sequence scores that `apply` has met since the last `observe`, one row per sequence."""
        return torch.empty(0, 0)

    def observe(self, scores: Float[Tensor, "n k"], state: State) -> State:
        """End one optimizer step with the scores of all micro-batches and ranks; a nan row is padding."""
        return state

    def now(self, state: State) -> Weight:
        """The weight during this optimizer step: a schedule returns its current part."""
        return self


def position_and_length(mask_BL: Bool[Tensor, "B L"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]:
    """Position l = 1..L of every target token within its row, and the row's number of target tokens.

    Positions where the mask is False are undefined.

    >>> position_and_length(torch.tensor([[False, True, True]]))[0]
    tensor([[0, 1, 2]])
    """
    position_BL = mask_BL.long().cumsum(-1)
    return position_BL, position_BL[:, -1:].expand_as(position_BL)


class TokenWeight(Weight):
    """A weight defined by `weigh` alone. Inherit from it to write a loss of your own.

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
    """The columns that `weigh` reads: ``logq``, ``entropy``, ``top1``, ``position``, ``length``, or a column of the batch. A class that
    defines `weigh` and no ``needs`` gets ``logq``, ``position`` and ``length``."""
    residual: ClassVar[Residual] = PLAIN
    """The direction that the weight multiplies."""
    never_zero: ClassVar[bool] = False
    """Promise that no token weighs 0: the head then does not wait for the device to skip rows. Breaking it costs time, not correctness."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "weigh" in cls.__dict__:  # what a parent declares about its own `weigh` does not hold for another
            if "needs" not in cls.__dict__:
                cls.needs = DEFAULT_NEEDS
            if "never_zero" not in cls.__dict__:
                cls.never_zero = False

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """`weigh` on the target tokens, 0 elsewhere."""
        needed = rows.only(self.needs)
        if self.needs & COUNTED:
            position_BL, length_BL = position_and_length(mask_BL)
            needed = needed.adding(position=position_BL, length=length_BL)
        # Replace entries outside the mask by 0; they may be nan.
        w_N = self.weigh(needed.map(lambda x: torch.where(mask_BL, x, 0).flatten()))
        return torch.where(mask_BL, w_N.view(mask_BL.shape), 0.0), state


class SequenceWeight(TokenWeight):
    """A weight of whole sequences, defined by `weigh_sequences`. Inherit from it to write such a loss of your own.

    A loss f(log Q(x)) of the sequence's log-probability has the weight -f'(log Q(x)) on each of its tokens: that gives its gradient.

    Examples:
      >>> class Rare(SequenceWeight):
      ...     def weigh_sequences(self, logq_B, length_B):
      ...         return 1 - logq_B.exp()
      >>> w, _ = Rare().apply(Rows(torch.tensor([[0.5, 0.5]]).log()), torch.tensor([[True, True]]), ())
      >>> w
      tensor([[0.7500, 0.7500]])
    """

    token_local: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"logq"})

    def weigh_sequences(self, logq_B: Float[Tensor, " B"], length_B: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """The weight of each sequence, at least 0.

        Args:
          logq_B: log-probability of all target tokens of each sequence, detached, in float64.
          length_B: the number of these tokens; 0 for a row without targets, whose weight is not used.
        """
        raise TypeError(f"{type(self).__name__} must define weigh_sequences(logq_B, length_B)")

    def weigh(self, rows: Rows) -> Float[Tensor, " N"]:
        """Refused: the weight of a token depends on its whole sequence."""
        raise TypeError(f"{type(self).__name__} weighs whole sequences, not tokens: call apply(rows, mask_BL, state)")

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """The weight of each row on its target tokens, 0 elsewhere."""
        logq_B = torch.where(mask_BL, rows.logq, 0.0).double().sum(-1)
        w_B = self.weigh_sequences(logq_B, mask_BL.sum(-1)).to(rows.logq.dtype)
        return torch.where(mask_BL, w_B[:, None], 0.0), state


@dataclass(frozen=True, kw_only=True)
class Bounded(TokenWeight):
    """The two options of every loss: no token weighs less than ``floor`` or more than ``cap``.

    They bound the final weight, after any gate. The code of TaiLr uses a floor of .2 and that of GOLD .1. A weight that grows without
    bound needs a cap.
    """

    spec_name: ClassVar[str] = ""
    """Name on the command line, from `widen.losses.LOSSES`; "" for a loss of your own."""
    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= floor < inf", "0 < cap <= inf (0 leaves no token any weight)")
    """The range of each field of this class, as `widen.losses.fields.check` reads it; subclasses add their own."""
    floor: float = 0.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        for kind in type(self).__mro__:
            check(self, *vars(kind).get("field_ranges", ()))
        if self.floor > self.cap:
            raise ValueError(f"floor={self.floor:g} is above cap={self.cap:g}; legal: floor <= cap")

    def bounded(self, w: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """``w`` between ``floor`` and ``cap``, also where it overflowed to inf."""
        if self.floor == 0.0 and math.isinf(self.cap):
            return w
        return w.clamp(self.floor, self.cap)

    def __str__(self) -> str:
        name = vars(type(self)).get("spec_name")  # not the parent's: a subclass of your own is another loss
        return spec_of(name, self) if name else repr(self)
