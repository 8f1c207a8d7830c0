"""Whether hidden states and ``lm_head`` give the log-probabilities that the model itself gives: measured, once, when training begins.

Shapes: B rows, C columns, N places.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor

from widen.losses import NLL

from .fused_head import Request, ask
from .sequences import read_sequences

__all__ = ["check_head"]

_PLACES = 16  # tokens compared; a forward of this length costs nothing


@torch.no_grad()
def check_head(model: Any, tokens_BC: Int[Tensor, "B C"]) -> None:
    """Compare our log-probabilities with those of the model's own logits on a few tokens; refuse an architecture that does more.

    One short forward each way, when training begins, on every rank alike.
    """
    tokens = tokens_BC[:1, :_PLACES]
    if tokens.shape[1] < 2:
        return
    training = model.training
    model.eval()
    try:
        sequences = read_sequences({"labels": tokens})
        request = Request(NLL(), (), sequences, float(tokens.shape[1] - 1))
        ask(model, {"input_ids": tokens}, request)
        logits = model(input_ids=tokens, use_cache=False).logits[0, :-1].float()
    finally:
        model.train(training)
    own_N = logits.log_softmax(-1).gather(-1, tokens[0, 1:, None].to(logits.device))[:, 0]
    ours_N = cast(Any, request.seen).logq_N[:-1].to(own_N)
    worst = float((own_N - ours_N).abs().max())
    if not worst <= 0.05 * (1 + float(own_N.abs().max())):  # nan is refused too; bfloat16 errs by about 0.01 here
        raise ValueError(
            f"model: log-probabilities from its hidden states and lm_head differ from those of its own logits by {worst:.3g}; its forward "
            f"does more than a linear head ({type(model).__name__}), and the loss would be wrong"
        )
