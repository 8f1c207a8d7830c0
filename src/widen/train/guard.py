"""Stop a run whose loss is not finite before the optimizer spreads it over every weight, and name the rows that it came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import distributed

if TYPE_CHECKING:
    from widen.data.targets import Sequences

    from .objective import MicroBatch

_SHOWN = 3  # sequences named in the message
_TOKENS = 24  # token ids shown of each
_SCANNED = 200_000  # dataset rows that are compared; more would take minutes


class NonFiniteLossError(ArithmeticError):
    """A loss was nan or infinite. The weights are those of the step before."""


def refuse_non_finite(
    pending: Sequence[MicroBatch], bad_R: Sequence[float], *, step: int, dataset: Any, loss: Any
) -> None:
    """Raise on *every* rank if a micro-batch of any rank was not finite, so that no rank waits for a stopped one.

    ``bad_R`` has the first bad micro-batch of each rank, counted from 1, or 0. ``pending`` are the micro-batches of this rank; the rows
    that hold its bad sequences are looked up in ``dataset``.
    """
    if not any(bad_R):
        return
    head = f"step {step} is not made: the loss ({loss}) is not finite"
    rank = distributed.rank()
    here = int(bad_R[rank])
    if not here:
        first = next(other for other, bad in enumerate(bad_R) if bad)
        raise NonFiniteLossError(f"{head} on rank {first}, which names the batch")
    micro, why = pending[here - 1], ""
    if bool(micro.loss.isfinite()):
        why = ", but its sum over the tokens overflows float32"
        if bool(micro.logq_N.isnan().any()):
            why = ": it drops tokens whose probability is nan, but their gradient is nan too"
    where = f" on rank {rank}" if len(bad_R) > 1 else ""
    at = micro.sequences
    bad_N = at.mask_N & ~(micro.logq_N.isfinite() & micro.w_N.isfinite())
    found = dataset_rows(at, micro.tokens_BC, bad_N if bool(bad_N.any()) else at.mask_N, dataset)
    raise NonFiniteLossError(
        f"{head} ({float(micro.loss)}{why}) in micro-batch {here} of {len(pending)}{where}. It comes from {found}. "
        "The weights are those of the step before. Look at these rows; if they are sound, lower the learning rate, give the loss a cap, "
        "or start from more NLL steps ('nll:steps=N then ...')"
    )


def dataset_rows(at: Sequences, tokens_BC: Tensor, bad_N: Tensor, dataset: Any) -> str:
    """Name the first sequences with a bad place: the rows of the dataset that hold them, and their token ids."""
    return "; ".join(_named(tokens, dataset) for tokens in _bad_sequences(at, tokens_BC, bad_N))


def _bad_sequences(at: Sequences, tokens_BC: Tensor, bad_N: Tensor) -> Iterator[list[int]]:
    """Token ids, up to the last target, of the first sequences with a bad place."""
    numbers = at.sequence_N[bad_N].unique()[:_SHOWN]
    # sequence_N belongs to the next token; own_N belongs to the token itself. Each row begins a new sequence.
    own_N = torch.cat([torch.zeros_like(at.sequence_N[:1]), at.sequence_N[:-1]])
    columns = tokens_BC.shape[1]
    own_N[columns::columns] += 1
    tokens_N = tokens_BC.flatten()
    for number in numbers.tolist():
        last = int(((at.sequence_N == number) & at.mask_N).nonzero()[-1]) + 1
        yield tokens_N[: last + 1][own_N[: last + 1] == number].tolist()


def _named(tokens: list[int], dataset: Any) -> str:
    """The dataset row that holds these tokens, and the tokens."""
    shown = ", ".join(map(str, tokens[:_TOKENS])) + (", ..." if len(tokens) > _TOKENS else "")
    row = _row_of(tokens, dataset)
    return f"{'no dataset row that could be found' if row is None else f'row {row} of the dataset'} (token ids {shown})"


def _row_of(tokens: list[int], dataset: Any) -> int | None:
    """Index of the first row whose ``input_ids`` contain the tokens in a row; it may contain other sequences too."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        return None
    wanted = f" {' '.join(map(str, tokens))} "
    for row in range(min(len(dataset), _SCANNED)):
        ids = dataset[row].get("input_ids") if hasattr(dataset[row], "get") else None
        if ids is None:
            return None
        if wanted in f" {' '.join(map(str, ids.tolist() if hasattr(ids, 'tolist') else ids))} ":
            return row
    return None
