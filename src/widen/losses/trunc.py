"""Trunc and TruncR (paper, Sec. 5.2): drop the least, or the most, likely sequences. The baseline and its reversal.

The threshold is a quantile of the last ``window`` sequence scores, frozen during an optimizer step. `apply` reads it and collects scores;
`observe` takes the scores of *all* micro-batches and ranks and sets the next threshold. So accumulation and the number of processes do
not change the result.

Shapes: B sequences, L positions, W window, n scores of one optimizer step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from widen.data.rows import Rows

from .weight import Bounded, SequenceWeight, State

USEFUL = 20
"""A quantile is used once about this many scores are expected on its thin side."""
LARGEST_WINDOW = 10_000
"""Window of a long run, and of a loss that was not fitted to a run."""
SMALLEST_WINDOW = 19
"""Least window that a run is given. The expected share that 19 scores drop is a whole number of twentieths: a tenth is exact."""
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
"""Multiples of it, without their whole part, spread evenly over 0 to 1 however many there are."""


class TruncState(NamedTuple):
    """The rolling list of Algorithm 1."""

    ring: Float[Tensor, " W"]  # the last W scores, nan in empty slots
    pushed: Int[Tensor, ""]  # how many scores were ever pushed; the next one goes to slot pushed % W
    threshold: Float[Tensor, ""]  # delta, frozen for this optimizer step
    seen: Float[Tensor, "n 1"]  # what `apply` met since the last `observe`


def keep(scores: Float[Tensor, " n"], *, drop: float, side: Literal["high", "low"]) -> Bool[Tensor, " n"]:
    """The paper's rule on one list: keep the ``ceil((1 - drop) n)`` highest (Trunc) or lowest (TruncR) scores, and all ties.

    >>> keep(torch.tensor([-3.1, -0.2, -7.5, -1.4]), drop=0.5, side="low").tolist()
    [True, False, True, False]
    """
    if not 0 <= drop < 1:
        raise ValueError(f"drop={drop!r} is out of range; legal: 0 <= drop < 1")
    if side not in ("high", "low"):
        raise ValueError(f"side={side!r}; legal: 'high' (Trunc) or 'low' (TruncR)")
    if scores.numel() == 0:
        return torch.zeros(0, dtype=torch.bool, device=scores.device)
    threshold = _threshold(scores, drop, side)
    return scores >= threshold if side == "high" else scores <= threshold


def _threshold(scores: Float[Tensor, " n"], drop: float, side: str) -> Float[Tensor, ""]:
    """The n_keep-th highest or lowest score, nan apart, without waiting for the device."""
    unlikely_first = torch.nan_to_num(scores if side == "low" else -scores, nan=math.inf).sort().values
    n = (~scores.isnan()).sum().double()  # float32 would lose the 1e-9 below
    n_keep = ((1 - drop) * n - 1e-9).ceil().long()  # 1e-9: (1 - .1) * 10 must not round up to 10
    value = unlikely_first.index_select(0, (n_keep - 1).clamp(min=0).reshape(1))[0]
    return value if side == "low" else -value


@dataclass(frozen=True, kw_only=True)
class Trunc(SequenceWeight, Bounded):
    r"""Keep the likelier sequences (Kang & Hashimoto, 2020; paper eq. ``eq:trunc``).

    .. math::  w(x) = 1[\log \bar Q(x) \ge \delta], \qquad \delta: \; P(\log \bar Q \ge \delta) = 1 - \Delta

    ``drop = 0`` is NLL. Favours Precision. From P it reaches the *minimum*-entropy distribution with Q <= P/(1 - drop)
    (:func:`widen.theory.optima.trunc`).

    Args:
      drop: the paper's Delta, the share of sequences left out.
      window: length of the rolling list (the paper's K). None lets the trainer choose (`fitted`), else means 10,000.
      start: scores to see before anything is dropped. None means 20 / min(drop, 1 - drop), at most a full window.
      score: ``sum`` of log-probabilities, the paper's Q(x), which favours short sequences; or their ``mean``.
    """

    score_columns: ClassVar[int] = 1
    side: ClassVar[Literal["high", "low"]] = "high"
    field_ranges: ClassVar[tuple[str, ...]] = ("0 <= drop < 1",)

    drop: float
    window: int | None = None
    score: str = "sum"
    start: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("window", self.window), ("start", self.start)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{type(self).__name__}: {name}={value!r}; legal: a whole number, at least 1")
        if self.score not in ("sum", "mean"):
            raise ValueError(f"{type(self).__name__}: score={self.score!r}; legal: 'sum' or 'mean'")

    def init(self) -> TruncState:
        """An empty list and a threshold that keeps everything."""
        # float64: the threshold *is* one of the scores, and rounding it would drop that sequence.
        everything = -math.inf if self.side == "high" else math.inf
        return TruncState(
            ring=torch.full((self.size,), math.nan, dtype=torch.float64),
            pushed=torch.zeros((), dtype=torch.int64),
            threshold=torch.tensor(everything, dtype=torch.float64),
            seen=torch.empty(0, 1, dtype=torch.float64),
        )

    def scores(self, logq_BL: Float[Tensor, "B L"], mask_BL: Bool[Tensor, "B L"]) -> Float[Tensor, " B"]:
        """log Q(x) of every row, or its mean over target tokens; nan for a row without targets."""
        total_B = torch.where(mask_BL, logq_BL, 0.0).double().sum(-1)
        length_B = mask_BL.sum(-1)
        if self.score == "mean":
            total_B = total_B / length_B.clamp(min=1)
        return torch.where(length_B > 0, total_B, math.nan)

    def apply(self, rows: Rows, mask_BL: Bool[Tensor, "B L"], state: State) -> tuple[Float[Tensor, "B L"], State]:
        """1 for rows on the right side of the threshold, 0 for the others; appends the scores to ``state.seen``."""
        logq_BL = rows.logq
        state = TruncState(*(part.to(logq_BL.device) for part in state))
        score_B = self.scores(logq_BL, mask_BL)
        keep_B = score_B >= state.threshold if self.side == "high" else score_B <= state.threshold
        w_BL = self.bounded(keep_B.to(logq_BL.dtype))[:, None].expand_as(logq_BL)
        return torch.where(mask_BL, w_BL, 0.0), state._replace(seen=torch.cat([state.seen, score_B[:, None]]))

    def seen(self, state: State) -> Float[Tensor, "n 1"]:
        """Scores met since the last `observe`."""
        return TruncState(*state).seen

    def observe(self, scores: Float[Tensor, "n 1"] | Float[Tensor, " n"], state: State) -> TruncState:
        """Push one optimizer step's scores, then take the quantile of the window (Algorithm 1), without waiting for the device.

        The order in which a step's scores are pushed, and later forgotten, depends on their ranks alone, not on which process or
        micro-batch saw them. It mixes high and low ones: where the window ends inside a step, it holds a fair sample of that step.
        """
        state = TruncState(*state)
        device = state.ring.device
        new_n = scores.reshape(-1).to(device, torch.float64)
        new_n = new_n.sort().values  # nan, the padding, sorts last
        valid_n = ~new_n.isnan()
        n_valid = valid_n.sum()
        rank_n = torch.arange(new_n.numel(), device=device)
        new_n = new_n[torch.where(valid_n, rank_n.double() * GOLDEN_RATIO % 1, 2.0).argsort()]  # padding stays last
        wanted_n = valid_n & (rank_n >= n_valid - self.size)  # of more than a window, keep the last ones
        slot_n = torch.where(wanted_n, (state.pushed + rank_n) % self.size, self.size)
        ring = torch.cat([state.ring, state.ring.new_full((1,), math.nan)])  # one spare slot for padding
        ring = ring.index_copy(0, slot_n, torch.where(wanted_n, new_n, math.nan))[: self.size]
        pushed = state.pushed + n_valid
        everything = state.threshold.new_full((), -math.inf if self.side == "high" else math.inf)
        useful = pushed >= self.first_drop
        return TruncState(
            ring=ring,
            pushed=pushed,
            threshold=torch.where(useful, _threshold(ring, self.drop, self.side), everything),
            seen=state.seen[:0],
        )

    @property
    def size(self) -> int:
        """Length of the rolling list."""
        return LARGEST_WINDOW if self.window is None else self.window

    @property
    def first_drop(self) -> int:
        """Number of scores to see before the quantile is used."""
        if self.start is not None:
            return self.start
        thin = min(self.drop, 1 - self.drop)
        return self.size if thin == 0 else min(self.size, math.ceil(USEFUL / thin))

    def fitted(self, sequences: int) -> Trunc:
        """This loss with a window and a start for a run over so many sequences, unless given.

        The window is 10,000 in a run of 40,000 sequences or more. In a shorter run it falls with the square of the length, because the
        model changes faster: scores of an earlier, worse model are too low, and TruncR would drop most of what a better one sees. It is at
        least 19, and large enough for two scores on the thin side of the quantile. Dropping starts once 20 scores are expected there, but
        no later than after an eighth of the run, and not before one is expected.

        >>> print(TruncR(drop=0.1).fitted(120))
        truncr:drop=0.1,window=19,start=15
        >>> print(TruncR(drop=0.1).fitted(1_000_000))
        truncr:drop=0.1,window=10000,start=200
        """
        thin = min(self.drop, 1 - self.drop)
        if self.window is not None or thin == 0:
            return self
        least = max(SMALLEST_WINDOW, math.ceil(2 / thin) - 1)
        window = min(LARGEST_WINDOW, max(sequences**2 // (16 * LARGEST_WINDOW), least))
        start = min(math.ceil(USEFUL / thin), max(sequences // 8, math.ceil(1 / thin)))
        return replace(self, window=window, start=start if self.start is None else self.start)


@dataclass(frozen=True, kw_only=True)
class TruncR(Trunc):
    r"""Keep the *less* likely sequences (paper eq. ``eq:truncdiv``): the opposite of Trunc.

    .. math::  w(x) = 1[\log \bar Q(x) \le \delta], \qquad \delta: \; P(\log \bar Q \le \delta) = 1 - \Delta

    Favours Recall. Converges to ``min(delta, P/(1 - drop))``, the *maximum*-entropy distribution under the same density cap
    (:func:`widen.theory.optima.truncr`): it is the conditional value at risk of the NLL.
    """

    side: ClassVar[Literal["high", "low"]] = "low"
