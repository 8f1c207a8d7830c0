"""Hidden states -> log Q, without the N x V logits. The vocabulary is touched here and nowhere else; no loss is known here.

Read ``eager.py`` first: six lines say what is computed. ``logprob.py`` serves every loss, ``weighted.py`` those whose weight
looks at one token, in one pass; ``rows_torch.py`` and ``rows_triton.py`` are the same row operations twice; ``targets.py`` finds the
rows that count, ``chunk_walk.py`` goes through them, ``answer.py`` asks the device and reads later, ``gradients.py`` has the products,
``sums_triton.py`` what is logged and ``plan.py`` the decisions.
"""

from .logprob import linear_logprob
from .plan import WORKSPACE, Impl
from .stats import HeadLoss, TargetSums, TokenLocalWeight, target_sums
from .weighted import weighted_linear_nll

__all__ = [
    "WORKSPACE",
    "HeadLoss",
    "Impl",
    "TargetSums",
    "TokenLocalWeight",
    "linear_logprob",
    "target_sums",
    "weighted_linear_nll",
]
