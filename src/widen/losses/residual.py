r"""The gradient of a loss in the logits of a token is its weight times a residual.

For every loss of the paper the residual is softmax - onehot. `Residual` is the family that the head knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from .fields import check


@dataclass(frozen=True, kw_only=True)
class Residual:
    r"""The gradient of a loss in the logits z, before its weight. y is the target, and q = softmax(z) has the entropy H.

    .. math::  \mathrm{softmax}(z/\tau) - (1-s)\,\mathrm{onehot}(y) - s/V + e\, q (\log q + H)

    It is the gradient of :math:`-\tau[(1-s) \log \mathrm{softmax}(z/\tau)_y + \frac sV \sum_v \log \mathrm{softmax}(z/\tau)_v] - e H`.

    Args:
      tau: temperature of the softmax.
      smooth: s, the share of the target that is spread over the vocabulary.
      entropy: e, the weight of the entropy bonus.
    """

    tau: float = 1.0
    smooth: float = 0.0
    entropy: float = 0.0

    def __post_init__(self) -> None:
        check(self, "0 < tau < inf", "0 <= smooth <= 1", "0 <= entropy < inf")


PLAIN = Residual()
"""softmax - onehot: the residual of NLL and of every loss of the paper."""


def only_weighs(loss: object) -> bool:
    """Whether a loss moves the logits by softmax - onehot: it has no other residual and no ``rows_fn`` of its own."""
    return residual_of(loss) == PLAIN and getattr(loss, "rows_fn", None) is None


def residual_of(loss: object) -> Residual:
    """The residual of a loss; the plain one if it names none."""
    found: Residual = getattr(loss, "residual", PLAIN)
    return found
