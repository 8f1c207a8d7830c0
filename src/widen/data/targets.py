"""Which tokens are targets, and the position of each in its sequence, for every trainer.

A *target* is a token that the model is trained to predict. Position l and length L count the targets of one sequence; prompt,
padding and the other sequences of a packed row never count. Packed rows are recognised by the collator's ``cu_seq_lens_q``,
``seq_idx``, or ``position_ids`` that restart.

Shapes: B rows, C columns, N = B C places (the hidden state at a place predicts the next token), S sequences with a target,
L targets of the longest sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

IGNORE = -100
"""The label of a token that is not a target, as in transformers."""

LOSS_WEIGHTS = "loss_weights"
"""Column of a batch that multiplies the weight of each target: one number per row, or one per token of ``input_ids``."""

_PACKED = ("cu_seq_lens_q", "seq_idx", "position_ids")
"""How collators describe packed rows; the first key that is present counts."""


@dataclass(frozen=True)
class Sequences:
    """The targets of one micro-batch, place by place, and the sequence that each belongs to.

    Args:
      target_BC: the token after each place, or -100.
      start_BC: True at the first token of each sequence, column 0 included; None if every row is one sequence.
      columns: further numbers by name, one per place, each about the token *after* that place.
    """

    target_BC: Int[Tensor, "B C"]
    start_BC: Bool[Tensor, "B C"] | None = None
    columns: Mapping[str, Float[Tensor, "B C"]] = field(default_factory=dict)

    @property
    def loss_weight_N(self) -> Float[Tensor, " N"] | None:
        """The data set's weight of each target; None if it has none."""
        found = self.columns.get(LOSS_WEIGHTS)
        return None if found is None else found.flatten()

    @cached_property
    def target_N(self) -> Int[Tensor, " N"]:
        """The targets, row after row."""
        return self.target_BC.flatten()

    @cached_property
    def sequence_N(self) -> Int[Tensor, " N"]:
        """Index of each target's sequence, never decreasing."""
        rows, columns = self.target_BC.shape
        if self.start_BC is None:
            return torch.arange(rows, device=self.target_BC.device).repeat_interleave(columns)
        sequence_BC = self.start_BC.flatten().cumsum(0).view(rows, columns) - 1
        return torch.cat([sequence_BC[:, 1:], sequence_BC[:, -1:]], dim=1).flatten()  # the target is the *next* token

    @cached_property
    def mask_N(self) -> Bool[Tensor, " N"]:
        """True where a target follows."""
        return self.target_N != IGNORE

    @cached_property
    def _count_N(self) -> Int[Tensor, " N"]:
        """Targets of sequence 0, 1, 2, ...; padded to N, because the number of sequences is only known on the device."""
        return torch.zeros_like(self.target_N).scatter_add_(0, self.sequence_N, self.mask_N.to(self.target_N.dtype))

    @cached_property
    def length_N(self) -> Int[Tensor, " N"]:
        """L: the number of targets of the sequence."""
        return self._count_N[self.sequence_N]

    @cached_property
    def position_N(self) -> Int[Tensor, " N"]:
        """l = 1..L at the targets; undefined elsewhere."""
        before_N = (self._count_N.cumsum(0) - self._count_N)[self.sequence_N]
        return self.mask_N.to(self.target_N.dtype).cumsum(0) - before_N

    @cached_property
    def _slots(self) -> tuple[Tensor, Tensor, int, int]:
        """The places of the targets, their slots in a table with one sequence per row, and the size of that table."""
        place_T = self.mask_N.nonzero()[:, 0]
        kept, row_T = torch.unique_consecutive(self.sequence_N[place_T], return_inverse=True)
        longest = int(self.length_N[place_T].max()) if len(place_T) else 1
        return place_T, row_T * longest + self.position_N[place_T] - 1, len(kept), longest

    @property
    def number(self) -> Int[Tensor, ""]:
        """How many sequences have a target; on the device."""
        return (self._count_N > 0).sum()

    def rows(self, x_N: Float[Tensor, " N"]) -> Float[Tensor, "S L"]:
        """Values of the targets, one sequence per row, left-aligned; `row_mask` marks the filled entries."""
        place_T, slot_T, count, longest = self._slots
        return x_N.new_zeros(count * longest).index_copy(0, slot_T, x_N[place_T]).view(count, longest)

    @cached_property
    def row_mask(self) -> Bool[Tensor, "S L"]:
        """True at the entries of `rows` that hold a target."""
        _, slot_T, count, longest = self._slots
        return self.mask_N.new_zeros(count * longest).index_fill(0, slot_T, True).view(count, longest)

    def places(self, x_SL: Float[Tensor, "S L"]) -> Float[Tensor, " N"]:
        """The inverse of `rows`: one entry per place, 0 where no target follows."""
        place_T, slot_T, *_ = self._slots
        return x_SL.new_zeros(len(self.target_N)).index_copy(0, place_T, x_SL.reshape(-1)[slot_T])


def read_sequences(inputs: Mapping[str, Any], *, columns: Iterable[str] = ()) -> Sequences:
    """Targets and sequences of a batch from a Hugging Face collator.

    Args:
      inputs: ``labels`` (or ``shift_labels``, already shifted by one) of shape [B, C], -100 where a token is not a target; for packed
        rows also one of ``cu_seq_lens_q``, ``seq_idx`` and ``position_ids``; optionally ``loss_weights`` of shape [B] or [B, C].
      columns: names of further columns of shape [B, C] that the loss reads. Like ``loss_weights`` they are aligned with ``input_ids``:
        the entry of a token is about predicting that token.

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
        _refuse_targets_across_sequences(inputs, target_BC, start_BC)
    found = {name: _shifted(_column(name, inputs, target_BC), 0.0) for name in columns}
    if inputs.get(LOSS_WEIGHTS) is not None:
        found[LOSS_WEIGHTS] = _loss_weights(inputs, target_BC, start_BC)
    return Sequences(target_BC, start_BC, found)


def _loss_weights(inputs: Mapping[str, Any], target_BC: Tensor, start_BC: Tensor | None) -> Float[Tensor, "B C"]:
    """The data set's weight of the target after each place; 0 where none follows. Waits for the device to check the values."""
    given: Tensor = inputs[LOSS_WEIGHTS]
    if given.dim() == 1 and len(given) == len(target_BC):
        if any(inputs.get(key) is not None for key in ("cu_seq_lens_q", "seq_idx")):
            raise ValueError(
                f"{LOSS_WEIGHTS} has one entry per row, but the rows are packed from several sequences; give one number per token of "
                "input_ids (widen.hosts.collate.WithColumns does)"
            )
        per_token_BC = given[:, None].expand_as(target_BC)
    else:
        per_token_BC = _column(LOSS_WEIGHTS, inputs, target_BC)
    weight_BC = _shifted(per_token_BC.float() if given.dtype != torch.float64 else per_token_BC, 0.0)
    weight_BC = torch.where(target_BC == IGNORE, 0.0, weight_BC)
    check_loss_weights(weight_BC, Sequences(target_BC, start_BC))
    return weight_BC


class LossWeightError(ValueError):
    """A weight of the data is negative or not finite.

    Args:
      said: the message.
      place: the index of its place among the N.
    """

    def __init__(self, said: str, *, place: int) -> None:
        super().__init__(said)
        self.place = place


def check_loss_weights(weight_BC: Float[Tensor, "B C"], sequences: Sequences | None = None) -> None:
    """Refuse a weight that is negative or not finite; the error names its row, and its sequence if ``sequences`` are packed."""
    bad_BC = ~(weight_BC.isfinite() & (weight_BC >= 0))
    if bool(bad_BC.any()):
        row, column = (int(x) for x in bad_BC.nonzero()[0])
        where = f"row {row} of the batch"
        if sequences is not None:
            target_C, sequence_C = sequences.target_BC[row], sequences.sequence_N.view_as(weight_BC)[row]
            packed = sorted(set(sequence_C[target_C != IGNORE].tolist()))
            if len(packed) > 1:
                where = f"sequence {packed.index(int(sequence_C[column]))} of the {len(packed)} packed in {where}"
        raise LossWeightError(
            f"{LOSS_WEIGHTS} is {float(weight_BC[row, column]):g} in {where}; legal: finite numbers, at least 0",
            place=row * weight_BC.shape[1] + column,
        )


def _column(name: str, inputs: Mapping[str, Any], target_BC: Tensor) -> Float[Tensor, "B C"]:
    """A column of the batch, aligned with ``input_ids``."""
    given = inputs.get(name)
    if given is None or given.shape != target_BC.shape:
        shown = "is missing" if given is None else f"has shape {tuple(given.shape)}"
        raise ValueError(
            f"the batch's column {name!r} {shown}; the loss needs one number per token of input_ids, shape {tuple(target_BC.shape)}"
        )
    column: Tensor = given
    return column


def _shifted(x_BC: Tensor, value: float) -> Tensor:
    """Each place has the entry of the token after it."""
    return torch.nn.functional.pad(x_BC[:, 1:], (0, 1), value=value)


def shifted_targets(inputs: Mapping[str, Any]) -> Int[Tensor, "B C"]:
    """The token that each place predicts: ``shift_labels`` as they are, or ``labels`` shifted one to the left."""
    if inputs.get("shift_labels") is not None:
        given: Tensor = inputs["shift_labels"]
        return given.long()
    labels = inputs.get("labels")
    if labels is None:
        raise ValueError(
            f"the batch has no 'labels' (it has {', '.join(sorted(inputs))}): the collator must provide them, with -100 for tokens that "
            "are not targets"
        )
    return _shifted(labels, IGNORE).long()


def _starts(inputs: Mapping[str, Any], like_BC: Tensor) -> Bool[Tensor, "B C"] | None:
    """True at the first token of each sequence (the caller adds column 0); None if rows are not packed."""
    cu_seq_lens, seq_idx, position_ids = (inputs.get(k) for k in _PACKED)
    if cu_seq_lens is not None:  # boundaries in the one row that holds everything
        start_BC = torch.zeros_like(like_BC, dtype=torch.bool)
        inner = cu_seq_lens[:-1].long()
        start_BC.view(-1)[inner[inner < start_BC.numel()]] = True
        return start_BC
    if seq_idx is not None and seq_idx.shape == like_BC.shape:
        return torch.nn.functional.pad(seq_idx.diff(dim=1) != 0, (1, 0))
    if position_ids is not None and position_ids.shape == like_BC.shape:
        # transformers' attention uses the same rule to tell packed sequences apart.
        return torch.nn.functional.pad(position_ids.diff(dim=1) != 1, (1, 0))
    return None


def _refuse_targets_across_sequences(inputs: Mapping[str, Any], target_BC: Tensor, start_BC: Tensor) -> None:
    """Refuse a target that would be predicted from the last token of another sequence."""
    leak_BC = start_BC[:, 1:] & (target_BC[:, :-1] != IGNORE)
    attention_mask = inputs.get("attention_mask")
    if attention_mask is not None and attention_mask.shape == target_BC.shape:
        leak_BC &= attention_mask[:, :-1] != 0  # a token after padding reads no other sequence
    if bool(leak_BC.any()):
        row, column = (int(x) for x in leak_BC.nonzero()[0])
        raise ValueError(
            f"labels: the token at row {row}, column {column + 1} begins a packed sequence and is a target, but nothing of its own "
            "sequence precedes it. Set its label to -100 (DataCollatorWithFlattening and TRL's collator do)"
        )
