"""The rolling lists of several Trunc or TruncR losses as rows of one tensor (paper, Sec. 5.2; :mod:`widen.losses.trunc`).

Shapes: G models of the group, W window, B sequences, L positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from widen.losses import Trunc
from widen.losses.trunc import TruncState

__all__ = ["StackedTrunc"]


class StackedTrunc:
    """Trunc, or TruncR, of G models that share side, window and score; `drop` and the bounds are each model's own.

    Args:
      members: (model, slot in its product, loss).
      device: where the lists live.
    """

    def __init__(self, members: Sequence[tuple[int, int, Trunc]], *, device: torch.device | str) -> None:
        self.members = {(m, slot): row for row, (m, slot, _) in enumerate(members)}
        losses = [loss for _, _, loss in members]
        self.loss = losses[0]
        self.index = torch.tensor([m for m, _, _ in members], device=device)
        self.keep = torch.tensor([1 - loss.drop for loss in losses], dtype=torch.float64, device=device)
        self.useful = torch.tensor([loss.first_drop for loss in losses], device=device)
        bounds = torch.tensor([[loss.floor, loss.cap] for loss in losses], dtype=torch.float64, device=device)
        self.floor, self.cap = bounds[:, :1], bounds[:, 1:]
        start = TruncState(*self.loss.init())
        G = len(losses)
        self.ring = start.ring.to(device).expand(G, -1).clone()
        self.pushed = start.pushed.to(device).expand(G).clone()
        self.threshold = start.threshold.to(device).expand(G).clone()
        self.everything = self.threshold.clone()

    def holds(self, m: int, slot: int) -> bool:
        """Whether the loss in `slot` of model m is here."""
        return (m, slot) in self.members

    def apply(self, logq_GLB: Float[Tensor, "G L B"]) -> Float[Tensor, "G B"]:
        """The weight of every sequence by the threshold of the last step; then the list takes in this step's scores."""
        score_GB = logq_GLB.double().sum(1)
        if self.loss.score == "mean":
            score_GB = score_GB / logq_GLB.shape[1]
        threshold_G1 = self.threshold[:, None]
        keep_GB = score_GB >= threshold_G1 if self.loss.side == "high" else score_GB <= threshold_G1
        w_GB = keep_GB.double().clamp(self.floor, self.cap).to(logq_GLB.dtype)
        self._observe(score_GB)
        return w_GB

    def _observe(self, score_GB: Float[Tensor, "G B"]) -> None:
        """Push in sorted order, then take the quantile of the window, in place."""
        W, B = self.loss.size, score_GB.shape[1]
        new = score_GB.sort(dim=1).values  # nan sorts last
        valid = ~new.isnan()
        count_G1 = valid.sum(1, keepdim=True)
        rank_B = torch.arange(B, device=new.device)
        wanted = valid & (rank_B >= count_G1 - W)
        slot = ((self.pushed[:, None] + rank_B) % W).masked_fill(~wanted, W)
        ring = torch.cat([self.ring, torch.full_like(self.ring[:, :1], math.nan)], dim=1)
        self.ring.copy_(ring.scatter(1, slot, new.masked_fill(~wanted, math.nan))[:, :W])
        self.pushed.add_(count_G1[:, 0])
        self.threshold.copy_(torch.where(self.pushed >= self.useful, self._quantile(), self.everything))

    def _quantile(self) -> Float[Tensor, " G"]:
        """n_keep-th highest or lowest score of each list."""
        low = self.loss.side == "low"
        ordered = torch.nan_to_num(self.ring if low else -self.ring, nan=math.inf).sort(dim=1).values
        n_keep = (self.keep * (~self.ring.isnan()).sum(1) - 1e-9).ceil().long()
        value = ordered.gather(1, (n_keep - 1).clamp(min=0)[:, None])[:, 0]
        return value if low else -value

    def state(self, m: int, slot: int) -> TruncState:
        """The state as the loss itself keeps it."""
        row = self.members[m, slot]
        return TruncState(
            ring=self.ring[row].cpu().clone(),
            pushed=self.pushed[row].cpu().clone(),
            threshold=self.threshold[row].cpu().clone(),
            seen=torch.empty(0, 1, dtype=torch.float64),
        )

    def load(self, m: int, slot: int, state: TruncState) -> None:
        """Take up such a state."""
        row = self.members[m, slot]
        self.ring[row], self.pushed[row], self.threshold[row] = state[0], state[1], state[2]
