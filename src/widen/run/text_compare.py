"""One setting against NLL at the temperature where both have the same population optimum: what is left is what training did.

c-Div(alpha) at t and NLL at alpha t aim at one law, so that a difference between them is not one of temperature. Two intervals, for two
questions: over seeds (would another training say the same?) and, in pairs, over problems (would other problems?).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from widen.metrics.interval import RESAMPLES
from widen.metrics.passes import normalised, pass_at_k

from .text_points import Mean, TextPoint

Array = NDArray[np.float64]


def gains(mine: Sequence[TextPoint], theirs: Sequence[TextPoint]) -> dict[str, Mean]:
    """Mine less theirs, for every score that both have; each list holds the seeds of one setting at one decoding."""
    paired = _over_problems(mine, theirs)
    found = {}
    for name in mine[0].values:
        if name not in theirs[0].values:
            continue
        first, second = ([point.values[name].value for point in points] for points in (mine, theirs))
        low, high = paired.get(name, (None, None))
        difference = math.fsum(first) / len(first) - math.fsum(second) / len(second)
        found[name] = Mean(value=difference, half_width=welch(first, second), low=low, high=high)
    return found


def welch(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Half-width of the 95 % interval of a difference of means, with unequal variances; None where a side has one value.

    >>> round(welch([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), 3), welch([1.0], [1.0, 2.0])
    (2.267, None)
    """
    if min(len(first), len(second)) < 2:
        return None
    a, b = (float(np.var(values, ddof=1)) / len(values) for values in (first, second))
    if a + b == 0:
        return 0.0
    freedom = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return float(stdtrit(freedom, 0.975)) * math.sqrt(a + b)


def _over_problems(mine: Sequence[TextPoint], theirs: Sequence[TextPoint]) -> dict[str, tuple[float, float]]:
    """Bootstrap over problems of the difference, seeds averaged within each: empty where counts are missing or problems differ."""
    problems = sorted(mine[0].counts)
    if not problems or any(sorted(point.counts) != problems for point in [*mine, *theirs]):
        return {}
    ks = sorted(int(name.partition("@")[2]) for name in mine[0].values if name.startswith("pass@"))
    if not all(f"pass@{k}" in theirs[0].values for k in ks):
        return {}
    share = np.full(len(problems), 1 / len(problems))
    drawn = np.random.default_rng(0).multinomial(len(problems), share, size=RESAMPLES) / len(problems)
    sides = [{k: drawn @ _passes(points, problems, k) for k in ks} for points in (mine, theirs)]
    first, last = ks[0], ks[-1]
    scores: dict[str, Callable[[dict[int, Array]], Array]] = {
        "precision": lambda side: side[first],
        "recall": lambda side: side[last] - side[first],
        "recall_normalised": lambda side: normalised(side[first], side[last]),
        **{f"pass@{k}": lambda side, k=k: side[k] for k in ks},  # type: ignore[misc]
    }
    found = {}
    for name, score in scores.items():
        low, high = np.quantile(score(sides[0]) - score(sides[1]), [0.025, 0.975])
        found[name] = (float(low), float(high))
    return found


def _passes(points: Sequence[TextPoint], problems: Sequence[str], k: int) -> Array:
    """pass@k of each problem, the mean over seeds."""
    each = []
    for point in points:
        n, c = (np.array([point.counts[problem][i] for problem in problems]) for i in (0, 1))
        each.append(pass_at_k(n, c, k))
    return np.asarray(np.mean(each, axis=0), np.float64)
