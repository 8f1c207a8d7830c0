r"""What each loss converges to on one context: the best next-token law Q, given P.

A loss with weight w(q) and residual ``softmax(z) - onehot`` stops where :math:`P_i\, w(q_i) / q_i` is the same for all
tokens that keep mass. :mod:`.paper` holds the paper's losses (sections 5.2 to 5.4), :mod:`.rivals` other people's,
:mod:`.anchored` those with a reference model.

Shapes: V tokens. Every function takes probabilities ``p`` (V,) and returns the optimum (V,). Tokens with p = 0 get 0,
except under label smoothing and the entropy bonus.
"""

from .anchored import anchor as anchor
from .anchored import asft as asft
from .paper import cdiv as cdiv
from .paper import gold as gold
from .paper import lambda_pr as lambda_pr
from .paper import lambda_pr_is_unique as lambda_pr_is_unique
from .paper import lambda_pr_threshold as lambda_pr_threshold
from .paper import nll as nll
from .paper import tailr as tailr
from .paper import trunc as trunc
from .paper import truncr as truncr
from .paper import truncr_threshold as truncr_threshold
from .rivals import dco as dco
from .rivals import eaft as eaft
from .rivals import entropy as entropy
from .rivals import focal as focal
from .rivals import gem as gem
from .rivals import smooth as smooth
from .rivals import tofu as tofu
