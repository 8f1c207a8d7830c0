"""Whether hidden states and ``lm_head`` give the log-probabilities that the model itself gives: measured once, before the first loss.

Shapes: C columns of one row, N places.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from .fused_head import target_logq

_PLACES = 16  # tokens compared; a forward of this length costs nothing


@torch.no_grad()
def check_head(model: Any, inputs: dict[str, Any], *, half: torch.dtype | None) -> None:
    """Compare the fused head's log-probabilities with those of the model's own logits on a batch's first tokens; refuse if they differ.

    The difference is measured against the spread of the logits, because what a wrong head leaves out (a transform, a cap, a scale) is
    proportional to it; rounding to ``half``, the dtype of mixed precision, is allowed for. Right heads were below .011 of the spread,
    wrong ones above .1.
    """
    if inputs.get("input_ids") is None:
        raise ValueError(
            f"the batch has no 'input_ids' (it has {', '.join(sorted(inputs))}): `loss` reads tokens; embeddings alone are not supported"
        )
    tokens_1C: Int[Tensor, "1 C"] = inputs["input_ids"][:1, :_PLACES]
    if tokens_1C.shape[1] < 2:
        return
    training = model.training
    model.eval()
    try:
        ours_N = target_logq(model, {"input_ids": tokens_1C}, tokens_1C)[0, :-1].float()
        logits = model(input_ids=tokens_1C, use_cache=False).logits[0, :-1]
    finally:
        model.train(training)
    if bool(logits.isnan().any()):
        raise ValueError(
            f"model: its own logits ({type(model).__name__}) are nan on the first tokens of the data: its weights hold a nan, or overflow"
        )
    eps = max(torch.finfo(dtype).eps for dtype in (logits.dtype, half) if dtype is not None)
    logits = logits.float()
    own_N = logits.log_softmax(-1).gather(-1, tokens_1C[0, 1:, None].to(logits.device))[:, 0]
    apart = float((own_N - ours_N.to(own_N)).square().mean().sqrt())
    allowed = 0.03 * float(logits.std(-1).mean()) + 0.5 * eps * float(logits.abs().max())
    if not apart <= allowed:
        raise ValueError(
            f"model: log-probabilities from its hidden states and lm_head differ from those of its own logits by {apart:.3g} (allowed "
            f"{allowed:.3g}); its forward does more than a linear head ({type(model).__name__}), and the loss would be wrong"
        )
