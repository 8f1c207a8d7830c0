"""Hidden states -> log-probabilities, loss and gradients, without the N x V logits. This room touches the vocabulary and knows no loss.

Read the ``eager_*`` functions in ``row_ops.py`` first: they define what is computed. Then the two entry points: ``logprob.py``
(`linear_logprob`, for every loss) and ``fused_nll.py`` (`weighted_linear_nll`, loss and gradient in one pass).

- ``head_config.py`` decides how a call runs: implementation, dtype, rows per chunk.
- ``logit_buffer.py`` fills one buffer with logits, chunk by chunk; ``gradients.py`` has the backward products.
- ``row_ops.py`` has the operations on a chunk of logits; ``row_ops_triton.py`` and ``softmax_triton.py`` have them as kernels.
- ``exp_product_triton.py``: in large calls the first product writes exponentials, and no kernel walks over the logits.
- ``host_copy.py`` reads numbers from the device without stalling it.
"""

from .fused_nll import HeadLoss, TokenLocalWeight, weighted_linear_nll, weighted_logit_nll
from .head_config import WORKSPACE, Impl
from .host_copy import HostCopy
from .logprob import linear_logprob
from .row_ops import SUMS, target_sums

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
    "weighted_logit_nll",
]
