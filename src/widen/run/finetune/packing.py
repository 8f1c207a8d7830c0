"""Whether a model keeps packed sequences apart: asked of the model itself, before it is trained on them.

Positions that start again tell attention where a sequence begins, in architectures that look at them. Others (ALiBi, positions counted
from the mask, recurrent and convolutional layers) read on through the border, and nothing in the loss would say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["leak", "refuse_mixing"]

LENGTH = 24
"""Tokens of each of the two sequences."""
BOUNDS = {"bfloat16": 0.05, "float16": 0.05}
OTHERWISE = 0.01
"""Of `leak`, by the dtype of the weights. Of 26 architectures those that keep sequences apart had at most 4e-7 in float32 and 4e-3 in
bfloat16 (a random Llama of 24 layers .013); of those that mix them a hybrid had .2, a freshly initialised OPT .14, the others .8 to 1."""


def refuse_mixing(model: Any, rows: Sequence[Sequence[int]]) -> None:
    """Raise ValueError where the second of two packed sequences sees the first.

    Args:
      model: of transformers, on the device where it will be trained.
      rows: token ids of examples; the ends of the first two are taken, since many texts begin alike.
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
    """How much of what ``first`` does to ``second`` in one running text it still does when the two are packed.

    The root mean square over positions and vocabulary of log q(second packed) - log q(second alone), over that of log q(second running
    on) - log q(second alone): 0 where they are apart, about 1 where packing changes nothing. As a share it needs no scale: weights of a
    new model hardly answer to their context, those of a trained one much, and rounding goes with either.
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
