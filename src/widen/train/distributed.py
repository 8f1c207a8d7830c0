"""What an optimizer step asks of the other ranks: how many tokens it has, the sum of the gradients, and the sequence scores of all.

Three collectives a step, whatever the lengths, the number of micro-batches on each rank, or a last incomplete accumulation: a rank with
no batch at all takes part with zeros, so no rank can hang another. Without torch.distributed each of them is the identity.

The gradients are *summed*, as every loss is already divided by the token count of the whole step; DistributedDataParallel would
average them, once per backward, and waits for every rank to have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from widen.data.batch import Batch

__all__ = ["StepCount", "count", "gather_scores", "rank", "share", "sum_figures", "sum_gradients", "world_size"]


def _on() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """This process's number; 0 alone."""
    return dist.get_rank() if _on() else 0


def world_size() -> int:
    """How many processes train together; 1 alone."""
    return dist.get_world_size() if _on() else 1


class StepCount(NamedTuple):
    """Sizes of one optimizer step over all micro-batches and ranks."""

    tokens: int  # target tokens in all
    rows: int  # sequences of the rank that has most


def count(batches: Sequence[Batch], *, device: torch.device | str = "cpu") -> StepCount:
    """Count this step's target tokens and sequences; one all-reduce."""
    tokens = sum(batch.num_tokens for batch in batches)
    rows = sum(batch.tokens_BL.shape[0] for batch in batches)
    if not _on():
        return StepCount(tokens, rows)
    # Each rank fills its own column, so that the sum over ranks is the list of all: total and maximum from one collective.
    table = torch.zeros(2, world_size(), dtype=torch.int64, device=device)
    table[:, rank()] = torch.tensor([tokens, rows])
    dist.all_reduce(table)
    return StepCount(int(table[0].sum()), int(table[1].max()))


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Add up the gradients of all ranks in place; one all-reduce per dtype. A parameter without a gradient counts as zero."""
    if not _on():
        return
    groups: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            groups.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for members in groups.values():
        for parameter in members:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        grads = [parameter.grad for parameter in members if parameter.grad is not None]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        dist.all_reduce(flat)
        for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
            grad.copy_(part.view_as(grad))


def gather_scores(scores_nk: Float[Tensor, "n k"], *, rows: int) -> Float[Tensor, "all k"]:
    """The sequence scores of all ranks, one under the other; ranks with fewer than `rows` are filled up with nan, which is ignored."""
    if not _on():
        return scores_nk
    padded = scores_nk.new_full((rows, scores_nk.shape[1]), torch.nan)
    padded[: scores_nk.shape[0]] = scores_nk
    everyone = [torch.empty_like(padded) for _ in range(world_size())]
    dist.all_gather(everyone, padded)
    return torch.cat(everyone)


def sum_figures(figures: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Sum over ranks of what is logged; made by every rank or by none."""
    if _on():
        dist.all_reduce(figures)
    return figures


def share(rows: int) -> slice:
    """Which of a step's `rows` sequences this rank takes: contiguous parts, of nearly equal size."""
    at, size = rank(), world_size()
    return slice(at * rows // size, (at + 1) * rows // size)
