r"""What each loss converges to on one context: the best next-token law Q, given P.

A loss with weight w(q) and residual ``softmax(z) - onehot`` stops where :math:`P_i\, w(q_i) / q_i` is the same for all
tokens that keep mass. :mod:`.paper` holds the paper's losses (sections 5.2 to 5.4), :mod:`.rivals` other people's,
:mod:`.anchored` those with a reference model.

Shapes: V tokens. Every function takes probabilities ``p`` (V,) and returns the optimum (V,). Tokens with p = 0 get 0,
except under label smoothing and the entropy bonus.
"""

from .anchored import anchor, asft
from .paper import (
    cdiv,
    gold,
    lambda_pr,
    lambda_pr_is_unique,
    lambda_pr_threshold,
    nll,
    tailr,
    trunc,
    truncr,
    truncr_threshold,
)
from .rivals import dco, eaft, entropy, focal, gem, smooth, tofu

__all__ = [
    "anchor",
    "asft",
    "cdiv",
    "dco",
    "eaft",
    "entropy",
    "focal",
    "gem",
    "gold",
    "lambda_pr",
    "lambda_pr_is_unique",
    "lambda_pr_threshold",
    "nll",
    "smooth",
    "tailr",
    "tofu",
    "trunc",
    "truncr",
    "truncr_threshold",
]
