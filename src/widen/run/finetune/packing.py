"""Tests whether a model keeps packed sequences apart, before it is trained on them.

Many architectures start a new sequence where positions restart. Others (ALiBi, positions counted from the mask, recurrent and
convolutional layers) mix the sequences, and the loss does not show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LENGTH = 24
"""Tokens of each of the two sequences."""
BOUNDS = {"bfloat16": 0.05, "float16": 0.05}
OTHERWISE = 0.01
"""The largest legal `leak`, by dtype. Of 26 architectures, those that keep sequences apart had at most 4e-7 in float32 and .013 in
bfloat16; those that mix had at least .14."""


def refuse_mixing(model: Any, rows: Sequence[Sequence[int]]) -> None:
    """Raise ValueError if the second of two packed sequences sees the first.

    ``rows`` holds token ids of examples; only the ends of the first two are used, since many texts begin alike.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2 * LENGTH
    length = max(1, min(LENGTH, positions // 2))  # both in one running text must fit too
    ends = [list(row[-length:]) for row in rows[:2]]
    name = model.config.model_type
    try:
        share = leak(model, ends[0], ends[-1])
    except TypeError as error:
        raise ValueError(f"packing: {name} does not take position_ids ({error}); leave --packing out") from None
    if not share <= BOUNDS.get(str(model.dtype).removeprefix("torch."), OTHERWISE):
        raise ValueError(
            f"packing: {name} does not keep packed sequences apart: each would attend to the one before it; leave --packing out "
            "(--group-by-length saves padding too)"
        )


def leak(model: Any, first: list[int], second: list[int]) -> float:
    """The influence of ``first`` on ``second`` when packed, relative to its influence in one continuous text.

    RMS of log q(second packed) - log q(second alone) over RMS of log q(second continued) - log q(second alone): 0 if they are kept apart,
    about 1 if they are not. A ratio works for untrained and trained models alike.
    """
    import torch

    def logq(*pieces: list[int], positions: list[int]) -> Any:
        ids = torch.tensor([[i for piece in pieces for i in piece]], device=model.device)
        at = torch.tensor([positions], device=model.device)
        found = model(input_ids=ids, position_ids=at, use_cache=False).logits[0, -len(second) :]
        return found.to(torch.float32).log_softmax(-1)

    mode = model.training
    model.eval()
    try:
        with torch.no_grad():
            again = [*range(len(first)), *range(len(second))]
            alone = logq(second, positions=list(range(len(second))))
            packed = logq(first, second, positions=again)
            running = logq(first, second, positions=list(range(len(again))))
    finally:
        model.train(mode)
    off, whole = (float((one - alone).pow(2).mean().sqrt()) for one in (packed, running))
    return off / whole if whole > 0 else off
