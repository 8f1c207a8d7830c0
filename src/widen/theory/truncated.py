r"""Truncation in the artificial case: what min-p, top-p and epsilon reach there that temperature cannot.

The case (:mod:`widen.theory.artificial`) has three kinds of positions:

    l1       rho K good tokens at a/(rho K), (1-rho) K rare good tokens at (1-a)/((1-rho) K)
    l2       K good tokens at (1-epsilon)/K, V-K noise tokens at epsilon/(V-K)
    others   K good tokens at 1/K

Min-p m on the model's own probabilities, followed by t -> inf, gives exactly P if and only if noise_ratio < m ≤ rare_ratio. The
order matters: min-p after the temperature keeps everything once t is large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .artificial import ArtificialCase
from .checks import Result, check
from .curve import PRCurve, pr_curve_from_logs
from .steps import Steps, as_steps, decoded_log

RULES = ("min_p", "top_p", "epsilon")
"""The filters that are solved here."""


class Thresholds(NamedTuple):
    """The interval (above, up_to]; empty if above >= up_to."""

    above: float
    up_to: float

    @property
    def empty(self) -> bool:
        """Whether there is no such threshold."""
        return not self.above < self.up_to


def exact_thresholds(case: ArtificialCase, rule: str) -> Thresholds:
    r"""The thresholds of ``min_p``, ``top_p`` or ``epsilon`` that give exactly P when t = inf follows.

    ==========  ==============================  =====================
    rule        above                           up to
    ==========  ==============================  =====================
    ``min_p``   noise_ratio                     rare_ratio
    ``epsilon`` epsilon/(V-K)                   (1-a)/((1-rho) K)
    ``top_p``   1 - (1-a)/((1-rho) K)           1 - epsilon
    ==========  ==============================  =====================

    Wherever ``min_p`` has a threshold, so has ``epsilon``. ``top_p`` needs all noise to weigh less than one rare token.

    Examples:
      >>> case = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)
      >>> low, high = exact_thresholds(case, "min_p")
      >>> round(low, 4), round(high, 4), exact_thresholds(case, "top_p").empty
      (0.1765, 0.3793, True)
    """
    check(rule in RULES, "rule", rule, f"one of {', '.join(RULES)}")
    rare = (1 - case.a) / ((1 - case.rho) * case.support)
    found = {
        "min_p": Thresholds(case.noise_ratio, case.rare_ratio),
        "epsilon": Thresholds(case.epsilon / (case.vocab - case.support), rare),
        "top_p": Thresholds(1 - rare, 1 - case.epsilon),
    }[rule]
    return found if case.noise_ratio < 1 else Thresholds(found.above, found.above)


@dataclass(frozen=True, kw_only=True)
class TruncatedCase:
    r"""The artificial case under a decoding: its PR-curve, precision and recall.

    Args:
      case: the case.
      steps: ``temperature``, ``min_p``, ``top_p`` and ``epsilon`` in any order.
      length: L, tokens of a sequence. It matters for top-p alone, which also truncates the L - 2 positions at which the
        model is right.

    Examples:
      >>> case = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)
      >>> first = TruncatedCase(case=case, steps=(("min_p", 0.3), ("temperature", 1000.0)))
      >>> after = TruncatedCase(case=case, steps=(("temperature", 1000.0), ("min_p", 0.3)))
      >>> round(first.recall(1.0), 3), round(after.recall(1.0), 3), round(case.recall(1.0, 1000.0), 3)
      (1.0, 0.5, 0.5)
    """

    case: ArtificialCase
    steps: Steps
    length: int = 2

    def __post_init__(self) -> None:
        for name, _ in as_steps(self.steps):
            check(name in ("temperature", *RULES), "steps", name, f"temperature, {', '.join(RULES)}")
        check(self.length >= 2, "length", self.length, "at least 2, for l1 and l2")

    @cached_property
    def curve(self) -> PRCurve:
        """The whole PR-curve: one atom for each group of equal tokens at l1, at l2 and at all other positions."""
        l1, l2 = (self._groups(lead_V) for lead_V in self.case.leads())
        uniform_V = np.where(np.arange(self.case.vocab) < self.case.support, 0.0, -np.inf)
        share = sum(p for p, ratio in self._groups(uniform_V) if ratio) ** (self.length - 2)
        others = [(share, 1 / share if share else 0.0), (1 - share, 0.0)]
        atoms = list(product(l1, l2, others))
        p = np.array([math.prod(mass for mass, _ in parts) for parts in atoms])
        ratio = np.array([math.prod(ratio for _, ratio in parts) for parts in atoms])
        with np.errstate(divide="ignore"):
            return pr_curve_from_logs(np.log(p / p.sum()), np.log(p) + np.log(ratio))

    def _groups(self, lead_V: np.ndarray) -> list[tuple[float, float]]:
        """The share of P and the ratio q/p of each group of equal acceptable tokens after the steps."""
        K = self.case.support
        ratio, count = np.unique(K * np.exp(decoded_log(lead_V, self.steps)[:K]), return_counts=True)
        return list(zip((count / K).tolist(), ratio.tolist(), strict=True))

    def precision(self, lam: ArrayLike) -> Result:
        """Precision at lam in [0, inf]; at inf the mass on right sequences."""
        return self.curve.precision(lam)

    def recall(self, lam: ArrayLike) -> Result:
        """Recall at lam in [0, inf]; at 0 the share of right sequences that can be produced."""
        return self.curve.recall(lam)
