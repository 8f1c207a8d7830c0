"""Hidden states -> log-probabilities, loss and gradients, without the N x V logits. This room touches the vocabulary and knows no loss.

Read the two functions `eager_logp` and `eager_logq` in ``row_ops_torch.py`` first: they define what is computed. Then the two entry points:
``logprob.py`` (`linear_logprob`, for every loss) and ``fused_nll.py`` (`weighted_linear_nll`, for weights that look at one token).

- ``head_config.py`` decides how a call runs: implementation, dtype, rows per chunk.
- ``logit_buffer.py`` fills one buffer with logits, chunk by chunk; ``gradients.py`` has the backward products.
- ``row_ops.py`` is the interface to a chunk of logits, implemented by ``row_ops_torch.py`` and ``row_ops_triton.py`` (with the softmax
  kernels in ``softmax_triton.py``).
- ``host_copy.py`` reads numbers from the device without stalling it.
"""

from .fused_nll import HeadLoss, TokenLocalWeight, weighted_linear_nll
from .head_config import WORKSPACE, Impl
from .host_copy import HostCopy
from .logprob import linear_logprob
from .row_ops import SUMS
from .row_ops_torch import target_sums

__all__ = [
    "SUMS",
    "WORKSPACE",
    "HeadLoss",
    "HostCopy",
    "Impl",
    "TokenLocalWeight",
    "linear_logprob",
    "target_sums",
    "weighted_linear_nll",
]
