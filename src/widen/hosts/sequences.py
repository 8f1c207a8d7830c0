"""Which target token belongs to which sequence, under padding, completion-only masks and packing.

A packed row holds several sequences; position l and length L of the paper count within each of them, never within the row. The
sequences are read from what the collator already says: ``cu_seq_lens_q``, ``seq_idx``, or ``position_ids`` that start anew.

Shapes: B rows, C columns, N = B C places (the hidden state at a place predicts the token after it), S sequences with a target,
L targets of the longest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["IGNORE", "Sequences", "read_sequences", "shifted_targets"]

IGNORE = -100
"""The label of a token that is no target, as everywhere in transformers."""

_PACKED = (
    "cu_seq_lens_q",
    "seq_idx",
    "position_ids",
)  # what a collator says of packed rows, the first that it says counts


@dataclass(frozen=True)
class Sequences:
    """The targets of one micro-batch, place by place, and how they stand in their sequences.

    Args:
      target_BC: the token after each place, or -100.
      start_BC: True at the first token of each sequence, column 0 included; None where every row is one sequence.
    """

    target_BC: Int[Tensor, "B C"]
    start_BC: Bool[Tensor, "B C"] | None = None

    @cached_property
    def target_N(self) -> Int[Tensor, " N"]:
        """The targets, row after row."""
        return self.target_BC.flatten()

    @cached_property
    def sequence_N(self) -> Int[Tensor, " N"]:
        """Number of the sequence of each target; it only ever grows."""
        rows, columns = self.target_BC.shape
        if self.start_BC is None:
            return torch.arange(rows, device=self.target_BC.device).repeat_interleave(columns)
        sequence_BC = self.start_BC.flatten().cumsum(0).view(rows, columns) - 1
        return torch.cat([sequence_BC[:, 1:], sequence_BC[:, -1:]], dim=1).flatten()  # the target is the *next* token

    @cached_property
    def _mask_BC(self) -> Bool[Tensor, "B C"]:
        return self.target_BC != IGNORE

    @property
    def mask_N(self) -> Bool[Tensor, " N"]:
        """True where a target follows."""
        return self._mask_BC.flatten()

    @cached_property
    def _count_N(self) -> Int[Tensor, " N"]:
        """Targets of sequence 0, 1, 2, ...; as long as N, since their number would have to be fetched from the device."""
        return torch.zeros_like(self.target_N).scatter_add_(0, self.sequence_N, self.mask_N.to(self.target_N.dtype))

    @cached_property
    def length_N(self) -> Int[Tensor, " N"]:
        """L: targets of the sequence."""
        if self.start_BC is None:
            return self._mask_BC.sum(1, keepdim=True).expand_as(self._mask_BC).flatten()
        return self._count_N[self.sequence_N]

    @cached_property
    def position_N(self) -> Int[Tensor, " N"]:
        """l = 1..L at the targets; elsewhere that of the target before, and nothing reads it."""
        if self.start_BC is None:
            return self._mask_BC.cumsum(1).flatten()
        before_N = (self._count_N.cumsum(0) - self._count_N)[self.sequence_N]
        return self.mask_N.to(self.target_N.dtype).cumsum(0) - before_N

    @cached_property
    def _slots(self) -> tuple[Tensor, Tensor, int, int]:
        """Places of the targets, where each goes in a table of one sequence a row, and the size of that table."""
        place_T = self.mask_N.nonzero()[:, 0]
        kept, row_T = torch.unique_consecutive(self.sequence_N[place_T], return_inverse=True)
        longest = int(self.length_N[place_T].max()) if len(place_T) else 1
        return place_T, row_T * longest + self.position_N[place_T] - 1, len(kept), longest

    @property
    def number(self) -> Int[Tensor, ""]:
        """How many sequences have a target; on the device."""
        return self._mask_BC.any(1).sum() if self.start_BC is None else (self._count_N > 0).sum()

    def rows(self, x_N: Float[Tensor, " N"]) -> tuple[Float[Tensor, "S L"], Bool[Tensor, "S L"]]:
        """The targets' values, one sequence a row from its first target on, and where a row holds one."""
        place_T, slot_T, count, longest = self._slots
        x_SL, mask_SL = x_N.new_zeros(count * longest), self.mask_N.new_zeros(count * longest)
        return x_SL.index_copy(0, slot_T, x_N[place_T]).view(count, longest), mask_SL.index_fill(0, slot_T, True).view(
            count, longest
        )

    def places(self, x_SL: Float[Tensor, "S L"]) -> Float[Tensor, " N"]:
        """Back from one sequence a row to one entry a place; 0 where no target follows."""
        place_T, slot_T, *_ = self._slots
        return x_SL.new_zeros(len(self.target_N)).index_copy(0, place_T, x_SL.reshape(-1)[slot_T])


def read_sequences(inputs: Mapping[str, Any]) -> Sequences:
    """Targets and sequences of a batch as the collator made it.

    Args:
      inputs: ``labels`` (or ``shift_labels``, already moved by one) of shape [B, C], -100 where a token is no target; if rows are packed,
        one of ``cu_seq_lens_q``, ``seq_idx`` and ``position_ids``.

    Examples:
      >>> packed = {"labels": torch.tensor([[-100, 5, 6, -100, 7]]), "position_ids": torch.tensor([[0, 1, 2, 0, 1]])}
      >>> found = read_sequences(packed)
      >>> found.target_N.tolist(), found.position_N[found.mask_N].tolist(), found.length_N[found.mask_N].tolist()
      ([5, 6, -100, 7, -100], [1, 2, 1], [2, 2, 1])
    """
    target_BC = shifted_targets(inputs)
    start_BC = _starts(inputs, target_BC)
    if start_BC is not None:
        start_BC[:, 0] = True
        if target_BC.shape[1] > 1:
            _refuse_targets_across_sequences(inputs, target_BC, start_BC)
    return Sequences(target_BC, start_BC)


def shifted_targets(inputs: Mapping[str, Any]) -> Int[Tensor, "B C"]:
    """The token that each place predicts: ``shift_labels`` as they are, or ``labels`` moved one to the left."""
    if inputs.get("shift_labels") is not None:
        given: Tensor = inputs["shift_labels"]
        return given.long()
    labels = inputs.get("labels")
    if labels is None:
        raise ValueError(
            f"the batch has no 'labels' (it has {', '.join(sorted(inputs))}): the collator must give them, -100 for what is no target"
        )
    return torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORE).long()


def _starts(inputs: Mapping[str, Any], like_BC: Tensor) -> Bool[Tensor, "B C"] | None:
    """True at the first token of each sequence (column 0 is added by the caller); None where nothing says that rows are packed."""
    cu_seq_lens, seq_idx, position_ids = (inputs.get(k) for k in _PACKED)
    if cu_seq_lens is not None:  # boundaries in the row that holds everything
        start_BC = torch.zeros_like(like_BC, dtype=torch.bool)
        inner = cu_seq_lens[:-1].long()
        start_BC.view(-1)[inner[inner < start_BC.numel()]] = True
        return start_BC
    if seq_idx is not None and seq_idx.shape == like_BC.shape:
        return torch.nn.functional.pad(seq_idx.diff(dim=1) != 0, (1, 0))
    if position_ids is not None and position_ids.shape == like_BC.shape:
        # The rule by which transformers' attention tells packed sequences apart.
        return torch.nn.functional.pad(position_ids.diff(dim=1) != 1, (1, 0))
    return None


def _refuse_targets_across_sequences(inputs: Mapping[str, Any], target_BC: Tensor, start_BC: Tensor) -> None:
    """The first token of a packed sequence would be predicted from another sequence's last."""
    leak_BC = start_BC[:, 1:] & (target_BC[:, :-1] != IGNORE)
    attention_mask = inputs.get("attention_mask")
    if attention_mask is not None and attention_mask.shape == target_BC.shape:
        leak_BC &= (
            attention_mask[:, :-1] != 0
        )  # after padding it is the host's own habit, and no other sequence is read
    if bool(leak_BC.any()):
        row, column = (int(x) for x in leak_BC.nonzero()[0])
        raise ValueError(
            f"labels: the token at row {row}, column {column + 1} begins a packed sequence and is a target, though nothing of its own "
            "sequence precedes it; set its label to -100 (DataCollatorWithFlattening and TRL's collator do)"
        )
