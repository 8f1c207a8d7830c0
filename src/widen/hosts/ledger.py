"""What one optimizer step adds up over its micro-batches and ranks: scores for the window, sums for the log, and whether all was finite.

The host divides a loss by the targets of the whole step; all that a loss needs beyond that is settled here, once a step, before the
optimizer moves: one gather of a dozen numbers a rank, and one of the sequence scores where the loss wants them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from widen.head import HostCopy, TargetSums
from widen.losses import State, Weight, staleness, starvation
from widen.losses.stats import STALE
from widen.train import distributed

from .figures import Sums, threshold
from .guard import refuse_non_finite
from .sequences import Sequences

__all__ = ["SCALES", "Ledger", "Micro"]

SCALES = ("raw", "mean_one")
"""Weights as the loss gives them, or divided by the mean weight of the optimizer step before."""


_NO_SCORES = torch.empty(0, 0)
_FLOAT32_MAX = torch.finfo(torch.float32).max


class Micro(NamedTuple):
    """One micro-batch of the step under way: what the guard and the log need of it."""

    loss: Tensor
    logq_N: Tensor
    w_N: Tensor
    sums: HostCopy
    """`TargetSums`: asked for when they are launched, and there long before the step ends."""
    divided_by: HostCopy | float
    """What the loss was divided by."""
    number: HostCopy | None
    """Sequences with a target; None for a loss that does not look at the place of a token in its sequence."""
    sequences: Sequences
    tokens_BC: Tensor


class Ledger:
    """The loss's memory: its state, the scale of its weights, the micro-batches of this step and the sums of the logging window.

    ``mean_one`` divides every weight by the mean weight over all targets of the *previous* optimizer step, all micro-batches and
    ranks. It is one number for the whole step, so accumulation and ranks change nothing; this step's own mean is known only after its
    last micro-batch has been through the backward. The first step divides by 1.
    """

    def __init__(self, weight: Weight, *, weight_scale: str = "raw") -> None:
        if weight_scale not in SCALES:
            raise ValueError(f"weight_scale={weight_scale!r}; legal: {' or '.join(map(repr, SCALES))}")
        self.weight, self.weight_scale = weight, weight_scale
        self.reset()

    def reset(self) -> None:
        """As before the first step."""
        self.state: State = self.weight.init()
        self.mean_weight = 1.0
        self.pending: list[Micro] = []
        self.window = Sums()
        self._starved = False

    @property
    def divisor(self) -> float:
        """What the weights of this step are divided by."""
        return self.mean_weight if self.weight_scale == "mean_one" else 1.0

    def add(
        self, loss: Tensor, logq_N: Tensor, w_N: Tensor, sums: Tensor, sequences: Sequences, tokens_BC: Tensor, *, count: float | Tensor
    ) -> None:  # fmt: skip
        """Note one micro-batch; ``sums`` are its `TargetSums`, and ``count`` is what the loss was divided by."""
        number = HostCopy(sequences.number) if getattr(self.weight, "uses_position", True) else None
        told = HostCopy(count) if isinstance(count, Tensor) else count
        self.pending.append(Micro(loss.detach(), logq_N, w_N, HostCopy(sums), told, number, sequences, tokens_BC))

    def settle(self, *, step: int, dataset: Any) -> None:
        """End the step: stop if a loss was not finite, let the loss observe, move the sums into the window.

        Args:
          step: number of the optimizer step about to be made, from 1.
          dataset: where the guard looks up the rows of a bad batch.
        """
        table = self._gather()
        refuse_non_finite(self.pending, [line[0] for line in table], step=step, dataset=dataset, loss=self.weight)
        scores = _NO_SCORES
        if self.weight.score_columns:  # the same on every rank, so that all or none gather
            rows = int(max(line[1] for line in table))
            scores = distributed.gather_scores(self.weight.seen(self.state), rows=rows)
        self.state = self.weight.observe(scores, self.state)
        made = sum((Sums(*line[2:]) for line in table), Sums())
        if made.tokens and made.weight:  # a step in which nothing counts says nothing about the scale
            self.mean_weight = made.weight / made.tokens
        self.window = self.window + made
        self.pending = []

    def logged(self) -> dict[str, float]:
        """Figures of the logging window, which starts anew."""
        window, self.window = self.window, Sums()
        figures = window.logged()
        if figures and (delta := threshold(self.weight, self.state, window.mean_length)) is not None:
            figures["threshold"] = delta
        return figures

    def warning(self) -> str | None:
        """A sentence, once, when almost nothing is trained, or much less than was asked for."""
        window = self.window
        if self._starved or window.zeros <= STALE * window.tokens:  # looked at on the host, at every step
            return None
        seen = window.weights
        text = starvation(self.weight, seen, mean_length=window.mean_length) or staleness(self.weight, seen)
        self._starved |= text is not None
        return text

    def _gather(self) -> list[list[float]]:
        """A line a rank: first bad micro-batch (0: none), number of scores, sums.

        No wait for the backward; what can be added up on the host is, since each operation on the device costs the host more.
        """
        found = [TargetSums(*micro.sums.read()) for micro in self.pending]
        told = [
            float(m.divided_by.read() if isinstance(m.divided_by, HostCopy) else m.divided_by) for m in self.pending
        ]
        bad = next((at for at, pair in enumerate(zip(found, told, strict=True), 1) if not _is_finite(*pair)), 0)
        numbers = (0.0 if micro.number is None else float(micro.number.read()) for micro in self.pending)
        sums = sum((Sums.of(one, sequences=n) for one, n in zip(found, numbers, strict=True)), Sums())
        rows = len(self.weight.seen(self.state)) if self.weight.score_columns else 0
        line = [float(bad), float(rows), *sums]
        if distributed.world_size() == 1:
            return [line]
        device = self.pending[0].loss.device if self.pending else torch.device("cpu")
        here = torch.tensor([line], dtype=torch.float64, device=device)
        gathered: list[list[float]] = distributed.gather_scores(here, rows=1).tolist()
        return gathered


def _is_finite(found: TargetSums, count: float) -> bool:
    """Whether loss and gradient of a micro-batch can be, in float32: the sum over its tokens, and that over ``count``.

    The NLL is looked at too: Trunc and TruncR give a sequence whose score is a nan the weight 0, so that the loss is finite and the
    gradient a nan. An infinite NLL is no such sign: a token of probability 0 may well be left out.
    """
    most = max(abs(found.weighted), abs(found.weighted) / (count or 1.0))
    return most <= _FLOAT32_MAX and not math.isnan(found.logq)
