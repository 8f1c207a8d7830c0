"""What one optimizer step needs from the other ranks: the number of tokens, the sum of gradients, figures and sequence scores.

The number of collectives does not depend on lengths or on the number of micro-batches: a rank without a batch takes part with zeros,
so no rank can hang another. Without torch.distributed each function is the identity.

Gradients are *summed*, because every loss is already divided by the token count of the whole step. DistributedDataParallel would
average them, once per backward pass, and would wait for every rank to have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from widen.data.batch import Batch


def _on() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """The number of this process; 0 without torch.distributed."""
    return dist.get_rank() if _on() else 0


def world_size() -> int:
    """How many processes train together; 1 without torch.distributed."""
    return dist.get_world_size() if _on() else 1


def count_tokens(batches: Sequence[Batch], *, device: torch.device | str = "cpu") -> int:
    """Target tokens of this step on all ranks; one all-reduce."""
    tokens = sum(batch.num_tokens for batch in batches)
    if not _on():
        return tokens
    total = torch.tensor(tokens, dtype=torch.int64, device=device)
    dist.all_reduce(total)
    return int(total)


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients of all ranks in place, with one all-reduce per dtype. A missing gradient counts as zero."""
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
    """Concatenate the scores of all ranks. A rank with fewer than `rows` is padded with nan, which readers ignore."""
    if not _on():
        return scores_nk
    padded = scores_nk.new_full((rows, scores_nk.shape[1]), torch.nan)
    padded[: scores_nk.shape[0]] = scores_nk
    everyone = [torch.empty_like(padded) for _ in range(world_size())]
    dist.all_gather(everyone, padded)
    return torch.cat(everyone)


def share(rows: int) -> slice:
    """This rank's part of a step's `rows` sequences: contiguous parts of nearly equal size."""
    at, size = rank(), world_size()
    return slice(at * rows // size, (at + 1) * rows // size)
