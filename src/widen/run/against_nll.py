r"""Means over seeds, and a model against NLL at the temperature where both have the same population optimum.

On one context c-Div of order alpha converges to :math:`P^{1/\alpha}`: decoded at t it aims at the law of NLL decoded at alpha t (theorem
``theorem:tsallis``), so a difference between those two is not one of temperature. It has two intervals, for two questions: over seeds
(would another training say the same?) and in pairs over problems (would other problems?).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from widen.losses import CDiv, Weight, parse
from widen.metrics.interval import RESAMPLES, student
from widen.metrics.passes import normalised, pass_at_k

from .record import Record
from .value import content_hash

Array = NDArray[np.float64]
Point = Mapping[str, Record]
"""The records of one model at one decoding, by metric."""


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A number over seeds.

    Args:
      value: the mean.
      half_width: of the 95 % Student interval over seeds; None with one seed.
      low, high: ends of the interval over problems or texts, averaged over seeds; None where there is none.
      count: seeds.
    """

    value: float
    half_width: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 1

    @property
    def bar(self) -> float | None:
        """Half the width of an error bar: over seeds, or for a single run half of its own interval."""
        if self.half_width is not None or self.count > 1 or self.low is None or self.high is None:
            return self.half_width
        return (self.high - self.low) / 2


def mean_of(records: Sequence[Record]) -> Mean:
    """The mean of one metric over the seeds of a setting."""
    value, half_width = student([record.value for record in records])
    lows = [record.low for record in records if record.low is not None]
    highs = [record.high for record in records if record.high is not None]
    if not len(lows) == len(highs) == len(records):
        return Mean(value=value, half_width=half_width, count=len(records))
    low, high = (math.fsum(ends) / len(ends) for ends in (lows, highs))
    return Mean(value=value, half_width=half_width, low=low, high=high, count=len(records))


def last_loss(loss: str) -> Weight | None:
    """The loss that a spec ends with, warm-up aside; None for a model that was not trained, and for a loss of the user's own.

    >>> last_loss("nll:steps=10 then gold"), last_loss("")
    (CDiv(floor=0.0, cap=inf, alpha=0.5), None)
    """
    if not loss or "(" in loss:  # a class of the user's need not be importable here
        return None
    try:
        weight = parse(loss)
    except ValueError:
        return None
    return getattr(weight, "then", weight)


def cdiv_order(loss: str) -> float | None:
    """alpha of a loss that is c-Div, warm-up aside; None for every other loss.

    >>> cdiv_order("nll:steps=3000 then cdiv:alpha=1.4,cap=100.0"), cdiv_order("gold"), cdiv_order("nll")
    (1.4, 0.5, None)
    """
    weight = last_loss(loss)
    return weight.alpha if isinstance(weight, CDiv) else None


def matched_temperature(loss: str, temperature: float) -> float:
    """The temperature at which NLL has this model's population optimum: alpha t for c-Div of order alpha, else t."""
    order = cdiv_order(loss)
    return round(temperature * (1.0 if order is None else order), 9)


def training_key(model: Any) -> str:
    """What two trainings share that differ in the loss and the seed alone. ``model`` is the JSON of an experiment's model.

    Settings that change memory and not the result are left out, and so is the scale of the weights, which goes with the loss: NLL's
    weights are all 1. A gain over NLL is shown only against an NLL model with the same key.
    """
    if not isinstance(model, Mapping):
        return content_hash(model)
    aside = {"loss", "seed", "weight_scale", "micro_batch", "evaluate", "packing", "gradient_checkpointing"}
    kept = {key: value for key, value in model.items() if key not in aside | {"save_steps", "fsdp"}}
    if isinstance(kept.get("data"), Mapping):
        kept["data"] = {key: value for key, value in kept["data"].items() if key != "seed"}
    if isinstance(kept.get("after"), Mapping):
        kept["after"] = {k: v for k, v in kept["after"].items() if k not in ("save_steps", "fsdp")}
    return content_hash(kept)


def gains(mine: Sequence[Point], theirs: Sequence[Point]) -> dict[str, Mean]:
    """Mine less theirs, for every metric that both have; each list holds the seeds of one setting at one decoding."""
    paired = _over_problems(mine, theirs)
    found = {}
    for name in mine[0]:
        if name not in theirs[0]:
            continue
        first, second = ([point[name].value for point in points] for points in (mine, theirs))
        low, high = paired.get(name, (None, None))
        difference = math.fsum(first) / len(first) - math.fsum(second) / len(second)
        found[name] = Mean(value=difference, half_width=welch(first, second), low=low, high=high, count=len(mine))
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


def _over_problems(mine: Sequence[Point], theirs: Sequence[Point]) -> dict[str, tuple[float, float]]:
    """Bootstrap over problems of the difference, seeds averaged within each; empty without counts of the same problems."""
    counts = [point["precision"].detail.get("counts", {}) if "precision" in point else {} for point in (*mine, *theirs)]
    problems, ks = sorted(counts[0]), sorted(next(iter(mine[0].values())).score.get("ks", ()))
    if not problems or any(sorted(of_seed) != problems for of_seed in counts):
        return {}
    if not ks or not all(f"pass@{k}" in theirs[0] for k in ks):
        return {}
    share = np.full(len(problems), 1 / len(problems))
    drawn = np.random.default_rng(0).multinomial(len(problems), share, size=RESAMPLES) / len(problems)
    halves = counts[: len(mine)], counts[len(mine) :]
    sides = [{k: drawn @ _passes(half, problems, k) for k in ks} for half in halves]
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


def _passes(counts: Sequence[Mapping[str, Sequence[int]]], problems: Sequence[str], k: int) -> Array:
    """pass@k of each problem, the mean over seeds."""
    each = []
    for of_seed in counts:
        n, c = (np.array([of_seed[problem][i] for problem in problems]) for i in (0, 1))
        each.append(pass_at_k(n, c, k))
    return np.asarray(np.mean(each, axis=0), np.float64)
