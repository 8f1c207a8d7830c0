r"""Truncation in the artificial case, in closed form: what min-p, top-p and epsilon can do there that temperature cannot.

The case (:mod:`widen.theory.artificial`) has three kinds of positions, each with at most two levels of probability:

    l1       rho K good tokens at a/(rho K), (1-rho) K rare good tokens at (1-a)/((1-rho) K)
    l2       K good tokens at (1-epsilon)/K, V-K noise tokens at epsilon/(V-K)
    others   K good tokens at 1/K

A decoding (:mod:`widen.theory.steps`) therefore acts on two groups of equal tokens per position. Temperature, min-p and
epsilon treat a group as a whole; top-p breaks ties, so it can keep a part of a group. The decoded law is known from how
many tokens of each group are left and from the ratio of their levels, and so is its PR-curve.

With ``rare = rho (1-a) / ((1-rho) a)`` and ``noise = epsilon K / ((V-K) (1-epsilon))``, truncating with min-p m on the
model's own law and then heating, t -> inf, gives exactly P if and only if noise < m ≤ rare. The order matters: min-p
after the temperature keeps everything once t is large.

Shapes: lam broadcasts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, overload

import numpy as np

from .artificial import ArtificialCase
from .checks import Array, Many, check
from .curve import PRCurve, pr_curve_from_logs
from .steps import Steps, as_steps

RULES = ("min_p", "top_p", "epsilon")
"""The filters that are solved here."""


class Thresholds(NamedTuple):
    """Thresholds in (above, up_to]: above the one, up to and including the other. Empty when above >= up_to."""

    above: float
    up_to: float

    @property
    def empty(self) -> bool:
        """Whether there is no such threshold."""
        return not self.above < self.up_to


def exact_thresholds(case: ArtificialCase, rule: str) -> Thresholds:
    r"""The thresholds with which truncating the model's own law and heating to t = inf gives exactly P.

    ==========  ==============================  =====================
    rule        above                           up to
    ==========  ==============================  =====================
    ``min_p``   noise                           rare
    ``epsilon`` epsilon/(V-K)                   (1-a)/((1-rho) K)
    ``top_p``   1 - (1-a)/((1-rho) K)           1 - epsilon
    ==========  ==============================  =====================

    All need noise < 1: otherwise a noise token is as probable as a good one at its position. Whenever ``min_p`` has a
    threshold, so has ``epsilon``. ``top_p`` asks for much more, because it looks at sums: all of the noise must weigh
    less than one rare token.

    Args:
      case: any artificial case.
      rule: ``min_p``, ``top_p`` or ``epsilon``.

    Examples:
      >>> case = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)
      >>> low, high = exact_thresholds(case, "min_p")
      >>> round(low, 4), round(high, 4), exact_thresholds(case, "top_p").empty
      (0.1765, 0.3793, True)
    """
    check(rule in RULES, name="rule", value=rule, legal=f"one of {', '.join(RULES)}")
    rare = (1 - case.a) / ((1 - case.rho) * case.support)
    noise = case.epsilon / (case.vocab - case.support)
    found = {
        "min_p": Thresholds(case.noise_ratio, case.rare_ratio),
        "epsilon": Thresholds(noise, rare),
        "top_p": Thresholds(1 - rare, 1 - case.epsilon),
    }[rule]
    return found if case.noise_ratio < 1 else Thresholds(found.above, found.above)


class _Position(NamedTuple):
    """Two groups of equal tokens: how many are left, and the log of their level relative to the larger one."""

    counts: tuple[int, int]
    leads: tuple[float, float]

    def weights(self) -> Array:
        """Unnormalised mass of each group."""
        return np.array(self.counts) * np.exp(self.leads)

    def token_masses(self) -> Array:
        """Probability of one token of each group."""
        return np.asarray(np.exp(self.leads) / self.weights().sum())


@dataclass(frozen=True, kw_only=True)
class TruncatedCase:
    r"""The artificial case under a decoding: its PR-curve, precision and recall.

    Args:
      case: the case.
      steps: ``temperature``, ``min_p``, ``top_p`` and ``epsilon`` in any order. ``(("min_p", m), ("temperature", t))``
        truncates the model's own law, ``(("temperature", t), ("min_p", m))`` the heated one.
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
        """Refuse steps that are not solved here."""
        for name, _ in as_steps(self.steps):
            check(name in ("temperature", *RULES), name="steps", value=name, legal=f"temperature, {', '.join(RULES)}")
        check(self.length >= 2, name="length", value=self.length, legal="at least 2, for l1 and l2")

    @cached_property
    def positions(self) -> tuple[_Position, _Position, _Position]:
        """What is left at l1, at l2 and at any other position."""
        over, noise = round(self.case.rho * self.case.support), self.case.log_noise_odds
        laws = (
            _Position((over, self.case.support - over), (0.0, -self.case.gap)),
            _Position((self.case.support, self.case.vocab - self.case.support), (min(0.0, noise), min(0.0, -noise))),
            _Position((self.case.support, 0), (0.0, -math.inf)),
        )
        l1, l2, others = (_decoded(law, as_steps(self.steps)) for law in laws)
        return l1, l2, others

    @cached_property
    def curve(self) -> PRCurve:
        """The whole PR-curve: one atom for each way to be kept or dropped at l1, l2 and the other positions."""
        l1, l2, others = self.positions
        K = self.case.support
        # Each part: the share of P and the ratio q/p there. Good tokens that are dropped have ratio 0.
        at_l1 = [(kept / K, K * mass) for kept, mass in zip(l1.counts, l1.token_masses(), strict=True) if kept]
        at_l1.append((1 - sum(l1.counts) / K, 0.0))
        at_l2 = [(l2.counts[0] / K, K * l2.token_masses()[0]), (1 - l2.counts[0] / K, 0.0)]
        share = (others.counts[0] / K) ** (self.length - 2)
        elsewhere = [(share, 1 / share if share else 0.0), (1 - share, 0.0)]
        atoms = [
            (math.prod(p for p, _ in parts), math.prod(r for _, r in parts))
            for parts in product(at_l1, at_l2, elsewhere)
        ]
        p = np.array([mass for mass, _ in atoms])
        with np.errstate(divide="ignore"):
            return pr_curve_from_logs(np.log(p / p.sum()), np.log(p) + np.log([ratio for _, ratio in atoms]))

    @overload
    def precision(self, lam: float) -> float: ...
    @overload
    def precision(self, lam: Many) -> Array: ...
    def precision(self, lam: float | Many) -> float | Array:
        """Precision at lam in [0, inf]; at inf the mass on right sequences."""
        return self.curve.precision(lam)

    @overload
    def recall(self, lam: float) -> float: ...
    @overload
    def recall(self, lam: Many) -> Array: ...
    def recall(self, lam: float | Many) -> float | Array:
        """Recall at lam in [0, inf]; at 0 the share of right sequences that can be produced."""
        return self.curve.recall(lam)


def _decoded(law: _Position, steps: Steps) -> _Position:
    """One position after the steps. Group 0 holds the smaller indices, which top-p drops first among equals."""
    for name, value in steps:
        counts, leads = law
        if name == "temperature":
            law = _Position(counts, (_tempered(leads[0], value), _tempered(leads[1], value)))
        elif name == "top_p":
            law = _top_p(law, value)
        else:
            level = np.exp(leads) if name == "min_p" else law.token_masses()
            kept = [(x >= value) or lead == 0 for x, lead in zip(level, leads, strict=True)]
            law = _largest_at_zero(_Position((counts[0] * kept[0], counts[1] * kept[1]), leads))
    return law


def _tempered(lead: float, t: float) -> float:
    if lead == 0 or math.isinf(lead):
        return lead
    return lead / t if t > 0 else -math.inf


def _top_p(law: _Position, p: float) -> _Position:
    """Drop tokens from the least probable up while their mass stays at most 1 - p."""
    masses, counts, room = law.token_masses(), list(law.counts), 1 - p
    for group in sorted((0, 1), key=lambda g: (law.leads[g], g)):
        if masses[group] == 0:
            counts[group] = 0
            continue
        fits = math.floor(room / masses[group] * (1 + 1e-12))
        gone = min(counts[group], fits)
        counts[group] -= gone
        room -= gone * masses[group]
        if counts[group]:
            break
    if not any(counts):  # the most probable token stays in any case; among equals the last one
        top = max((0, 1), key=lambda g: (law.leads[g] if law.counts[g] else -math.inf, g))
        counts[top] = 1
    return _largest_at_zero(_Position((counts[0], counts[1]), law.leads))


def _largest_at_zero(law: _Position) -> _Position:
    """Forget the level of an empty group, so that the largest level left is 0."""
    leads = [lead if count else -math.inf for count, lead in zip(*law, strict=True)]
    return _Position(law.counts, (leads[0] - max(leads), leads[1] - max(leads)))
