r"""How the logits of a token move: the direction that its weight multiplies.

The gradient of a loss with respect to the logits of a token is its weight times a residual. For every loss of the paper the residual is
softmax - onehot. `Residual` is the family that the head knows; GEM, TOFU, label smoothing and entropy bonuses are members.
"""

from __future__ import annotations

from dataclasses import dataclass

from .fields import check

__all__ = ["PLAIN", "Residual", "only_weighs", "residual_of"]


@dataclass(frozen=True, kw_only=True)
class Residual:
    r"""A direction in the logits z of a token with the target y, where q = softmax(z) has the entropy H.

    .. math::  \mathrm{softmax}(z/\tau) - (1-s)\,\mathrm{onehot}(y) - s/V + e\, q (\log q + H)

    It is the gradient of :math:`-\tau[(1-s) \log \mathrm{softmax}(z/\tau)_y + \frac sV \sum_v \log \mathrm{softmax}(z/\tau)_v] - e H`.

    Args:
      tau: temperature of the softmax, above 0.
      smooth: s, the share of the target that is spread over the vocabulary, from 0 to 1.
      entropy: e, the weight of the entropy bonus, at least 0.

    Examples:
      >>> Residual() == PLAIN
      True
    """

    tau: float = 1.0
    smooth: float = 0.0
    entropy: float = 0.0

    def __post_init__(self) -> None:
        check(self, "tau", 0.0, float("inf"))
        if self.tau == 0:
            raise ValueError("Residual: tau=0; legal: tau > 0")
        check(self, "smooth", 0.0, 1.0, allow_high=True)
        check(self, "entropy", 0.0, float("inf"))


PLAIN = Residual()
"""softmax - onehot: the residual of NLL and of every loss of the paper."""


def only_weighs(loss: object) -> bool:
    """Whether a loss moves the logits by softmax - onehot: it has no other residual and no ``rows_fn`` of its own."""
    return residual_of(loss) == PLAIN and getattr(loss, "rows_fn", None) is None


def residual_of(loss: object) -> Residual:
    """The residual of a loss; the plain one if it names none."""
    found: Residual = getattr(loss, "residual", PLAIN)
    return found
