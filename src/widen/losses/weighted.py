"""The reduction: weights times log-probabilities, summed, over the token count of the whole optimizer step (Algorithm 1).

Shapes: B sequences (one per row), L positions.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from widen.data.rows import Rows

from .residual import only_weighs
from .weight import State, Weight


def weighted_nll(
    logq_BL: Float[Tensor, "B L"],
    mask_BL: Bool[Tensor, "B L"],
    weight: Weight,
    state: State,
    *,
    num_tokens: float | Tensor,
    entropy_BL: Float[Tensor, "B L"] | None = None,
    top1_BL: Float[Tensor, "B L"] | None = None,
) -> tuple[Float[Tensor, ""], State]:
    r"""The weighted loss, :math:`-\sum_{b,l} \bar w_{bl} \log Q(x_l|x_{<l}) \,/\, n` (the last lines of Algorithm 1).

    Args:
      logq_BL: log Q of each target token. Entries where the mask is False may hold anything. Half precision is converted to float32.
      mask_BL: True at target tokens.
      state: from ``weight.init()``, or from the last call.
      num_tokens: number of target tokens of the *whole optimizer step*, all ranks and micro-batches. Then gradients of micro-batches
        add up to the gradient of the batch.
      entropy_BL, top1_BL: for a weight that needs them (`Rows`).

    Returns the loss, to be summed over micro-batches and ranks, and the state. A batch without targets gives a differentiable 0.

    Examples:
      >>> from widen.losses import parse
      >>> logq = torch.tensor([[0.5, 0.25]]).log()
      >>> loss, _ = weighted_nll(logq, torch.tensor([[True, True]]), parse("cdiv:alpha=2"), (), num_tokens=2)
      >>> round(loss.item(), 4)      # (2 log 2 + 4 log 4) / 2
      3.4657
    """
    if logq_BL.shape != mask_BL.shape:
        raise ValueError(f"logq_BL has shape {tuple(logq_BL.shape)}, mask_BL {tuple(mask_BL.shape)}; they must agree")
    if not only_weighs(weight):
        raise ValueError(
            f"{weight} does not move the logits by softmax - onehot; log-probabilities of the targets do not determine its gradient. "
            "Use widen.head.weighted_linear_nll, which has the hidden states, or a trainer of widen"
        )
    if logq_BL.dtype not in (torch.float32, torch.float64):
        logq_BL = logq_BL.float()
    logq_BL = torch.where(mask_BL, logq_BL, 0.0)  # before the product: a where() after it still sends 0 * nan backwards
    rows = Rows(logq_BL.detach(), entropy=entropy_BL, top1=top1_BL)
    w_BL, state = weight.apply(rows, mask_BL, state)
    if w_BL.requires_grad:
        raise ValueError(
            f"{weight}: the weights carry a gradient; a weight is a function of *detached* log-probabilities"
        )
    count = num_tokens.clamp(min=1) if isinstance(num_tokens, Tensor) else max(num_tokens, 1)
    # A token of probability 0 has weight times log q = 0 * -inf where it is gated; its share is 0.
    product_BL = torch.where(w_BL == 0, 0.0, w_BL * torch.where(w_BL == 0, 0.0, logq_BL))
    return -product_BL.sum() / count, state
