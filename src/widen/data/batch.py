"""Rows of tokens with a mask of their targets: what the plain training loop reads.

A row holds a prompt (for the integer task, BOS), then the targets, then padding. The first token of a row is never a target.

Shapes: B sequences, L positions of a row (prompt and padding included).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .targets import IGNORE, LOSS_WEIGHTS, Sequences, check_loss_weights


@dataclass(frozen=True)
class Batch:
    """Rows of tokens and which of them are targets.

    Padding is on the right, where causal attention never sees it, so no attention mask is needed.

    Args:
      tokens_BL: token ids; padding may hold any legal id.
      mask_BL: True at the target tokens.
      weights_BL: multiplies the weight of each target; None means 1. The loss is still divided by the number of targets.

    Examples:
      >>> batch = Batch(torch.tensor([[9, 4, 7, 0]]), torch.tensor([[False, True, True, False]]))
      >>> batch.inputs.tolist(), batch.targets.tolist(), batch.target_mask.tolist(), batch.num_tokens
      ([[9, 4, 7]], [[4, 7, 0]], [[True, True, False]], 2)
    """

    tokens_BL: Int[Tensor, "B L"]
    mask_BL: Bool[Tensor, "B L"]
    weights_BL: Float[Tensor, "B L"] | None = None

    def __post_init__(self) -> None:
        self._check_shape("tokens_BL", self.tokens_BL)
        if self.tokens_BL.shape[1] < 2:
            raise ValueError(
                f"tokens_BL has {self.tokens_BL.shape[1]} columns; a target needs a token before it: give at least 2"
            )
        if bool(self.mask_BL[:, 0].any()):
            raise ValueError("mask_BL is true in column 0: nothing precedes the first token, so it cannot be a target")
        if self.weights_BL is not None:
            self._check_shape("weights_BL", self.weights_BL)
            check_loss_weights(torch.where(self.mask_BL, self.weights_BL, 0.0))

    def _check_shape(self, name: str, x: Tensor) -> None:
        if x.shape != self.mask_BL.shape:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)} and mask_BL {tuple(self.mask_BL.shape)}: they must agree"
            )

    @property
    def inputs(self) -> Int[Tensor, "B l"]:
        """What the model reads: every token but the last."""
        return self.tokens_BL[:, :-1]

    @property
    def targets(self) -> Int[Tensor, "B l"]:
        """What the model predicts: column l of `targets` follows column l of `inputs`."""
        return self.tokens_BL[:, 1:]

    @property
    def target_mask(self) -> Bool[Tensor, "B l"]:
        """True where the entry of `targets` counts."""
        return self.mask_BL[:, 1:]

    @property
    def sequences(self) -> Sequences:
        """The targets place by place; every row is one sequence."""
        columns = {}
        if self.weights_BL is not None:
            columns[LOSS_WEIGHTS] = torch.where(self.target_mask, self.weights_BL[:, 1:], 0.0)
        return Sequences(self.targets.masked_fill(~self.target_mask, IGNORE), columns=columns)

    @property
    def num_tokens(self) -> int:
        """The number of target tokens."""
        return int(self.mask_BL.sum())

    def rows(self, index: slice | Tensor) -> Batch:
        """The batch of the chosen rows."""
        return self._map(lambda x: x[index])

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return self._map(lambda x: x.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        weights = None if self.weights_BL is None else change(self.weights_BL)
        return Batch(change(self.tokens_BL), change(self.mask_BL), weights)


def pad(sequences: Sequence[Sequence[int]], *, prompt_lengths: Sequence[int], pad_id: int = 0) -> Batch:
    """Right-pad token lists into a `Batch`; the first `prompt_lengths[b]` ≥ 1 tokens of row b are not targets.

    Examples:
      >>> batch = pad([[9, 4, 7], [9, 5]], prompt_lengths=[1, 1])
      >>> batch.tokens_BL.tolist(), batch.mask_BL.tolist()
      ([[9, 4, 7], [9, 5, 0]], [[False, True, True], [False, True, False]])
    """
    if len(sequences) != len(prompt_lengths):
        raise ValueError(f"{len(sequences)} sequences but {len(prompt_lengths)} prompt_lengths")
    if not sequences:
        raise ValueError("sequences is empty: give at least one row")
    length = max(2, max(len(row) for row in sequences))
    tokens = torch.full((len(sequences), length), pad_id, dtype=torch.long)
    mask = torch.zeros(len(sequences), length, dtype=torch.bool)
    for b, (row, prompt) in enumerate(zip(sequences, prompt_lengths, strict=True)):
        tokens[b, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[b, prompt : len(row)] = True
    return Batch(tokens, mask)
