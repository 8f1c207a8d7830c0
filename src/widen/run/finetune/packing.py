"""Tests whether a model keeps packed sequences apart, before it is trained on them.

Many architectures take restarting positions as the start of a new sequence. Others (ALiBi, positions counted from the mask, recurrent and
convolutional layers) ignore them and mix the sequences, and nothing in the loss would show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["leak", "refuse_mixing"]

LENGTH = 24
"""Tokens of each of the two sequences."""
BOUNDS = {"bfloat16": 0.05, "float16": 0.05}
OTHERWISE = 0.01
"""The largest legal `leak`, by the dtype of the weights. Of 26 architectures, those that keep sequences apart had at most 4e-7 in float32
and 4e-3 in bfloat16 (.013 for a random Llama of 24 layers). Those that mix had .8 to 1,
except a hybrid (.2) and an untrained OPT (.14)."""


def refuse_mixing(model: Any, rows: Sequence[Sequence[int]]) -> None:
    """Raise ValueError if the second of two packed sequences sees the first.

    Args:
      model: of transformers, on the device where it will be trained.
      rows: token ids of examples; only the ends of the first two are used, since many texts begin alike.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2 * LENGTH
    length = max(1, min(LENGTH, positions // 2))  # the two as one running text must fit as well
    ends = [list(row[-length:]) for row in rows[:2]]
    name = model.config.model_type
    try:
        share = leak(model, ends[0], ends[-1])
    except TypeError as error:
        raise ValueError(f"packing: {name} does not take position_ids ({error}); leave --packing out") from None
    if not share <= BOUNDS.get(str(model.dtype).removeprefix("torch."), OTHERWISE):
        raise ValueError(
            f"packing: {name} does not keep packed sequences apart: each would be learnt as if the one before it were part of its "
            "text, since this architecture does not begin anew where positions do; leave --packing out "
            "(--group-by-length saves padding too)"
        )


def leak(model: Any, first: list[int], second: list[int]) -> float:
    """The influence of ``first`` on ``second`` when the two are packed, relative to its influence in one continuous text.

    The root mean square over positions and vocabulary of log q(second packed) - log q(second alone), divided by that of log q(second
    continued) - log q(second alone): 0 if they are kept apart, about 1 if packing changes nothing. A ratio works for untrained and trained
    models alike.
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
