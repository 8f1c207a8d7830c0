r"""Means over seeds, and a model against NLL at the temperature where both have the same population optimum.

On one context c-Div of order alpha converges to :math:`P^{1/\alpha}`, so at temperature t it targets the same distribution as NLL at
alpha t (``theorem:tsallis``). A difference between the two is not an effect of temperature. It has two intervals: over seeds, and paired
over problems.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    """A mean over ``count`` seeds.

    Args:
      half_width: of the 95 % Student interval over seeds; None with one seed.
      low, high: interval over problems or texts, averaged over seeds; None if there is none.
    """

    value: float
    half_width: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 1

    @property
    def bar(self) -> float | None:
        """Half the width of an error bar: over seeds, or for a single seed over problems or texts."""
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
    """The loss that a spec ends with, without its warm-up; None for an untrained model and for a user's own loss.

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
    """alpha of c-Div, also after a warm-up; None for every other loss.

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
    """Key of an experiment's model (as JSON) that ignores loss, weight scale, seed and memory-only settings.

    A gain over NLL is shown only against an NLL model with the same key.
    """
    if not isinstance(model, Mapping):
        return content_hash(model)
    memory = {"micro_batch", "evaluate", "packing", "gradient_checkpointing", "save_steps", "fsdp"}
    kept = {key: value for key, value in model.items() if key not in memory | {"loss", "seed", "weight_scale"}}
    for name, aside in (("data", ("seed",)), ("after", ("save_steps", "fsdp"))):
        if isinstance(kept.get(name), Mapping):
            kept[name] = {key: value for key, value in kept[name].items() if key not in aside}
    return content_hash(kept)


def gains(mine: Sequence[Point], theirs: Sequence[Point]) -> dict[str, Mean]:
    """``mine`` minus ``theirs`` for every metric that both have. Each list holds the seeds of one setting at one decoding."""
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
    """Half-width of the 95 % interval of a difference of means with unequal variances; None if a side has one value.

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
    """Paired bootstrap over problems, seeds averaged; empty if the problems differ."""
    counts = [point["precision"].detail.get("counts", {}) if "precision" in point else {} for point in (*mine, *theirs)]
    problems, ks = counts[0].keys(), sorted(next(iter(mine[0].values())).score.get("ks", ()))
    if not problems or any(of_seed.keys() != problems for of_seed in counts):
        return {}
    if not ks or not all(f"pass@{k}" in theirs[0] for k in ks):
        return {}
    share = np.full(len(problems), 1 / len(problems))
    drawn = np.random.default_rng(0).multinomial(len(problems), share, size=RESAMPLES) / len(problems)

    def passes(side: Sequence[Point], k: int) -> Array:
        """pass@k of each resample, the mean over seeds."""
        values = [found for point in side if (found := values_by_problem(point, f"pass@{k}")) is not None]
        return np.asarray(drawn @ np.mean(values, axis=0))

    first, last = ([passes(side, k) for side in (mine, theirs)] for k in (ks[0], ks[-1]))
    pairs = {
        "precision": first,
        "recall": [most - one for one, most in zip(first, last, strict=True)],
        "recall_normalised": [normalised(one, most) for one, most in zip(first, last, strict=True)],
        **{f"pass@{k}": [passes(side, k) for side in (mine, theirs)] for k in ks},
    }
    ends = {name: np.quantile(a - b, [0.025, 0.975]) for name, (a, b) in pairs.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def values_by_problem(point: Point, metric: str) -> Array | None:
    """The metric of each problem, or None if it is only known for all problems together.

    Counts of right programs are taken in the order of the problems' ids.
    """
    if "by_problem" in point[metric].detail:
        return np.asarray(point[metric].detail["by_problem"], np.float64)
    counts = point["precision"].detail.get("counts") if "precision" in point else None
    if not counts:
        return None
    n, c = (np.array([counts[problem][i] for problem in sorted(counts)]) for i in (0, 1))
    ks = sorted(int(name[5:]) for name in point if name.startswith("pass@"))
    passes = {k: np.asarray(pass_at_k(n, c, k), np.float64) for k in ks}
    if metric == "recall":
        return passes[ks[-1]] - passes[ks[0]]
    k = 1 if metric == "precision" else int(metric[5:]) if metric.startswith("pass@") else None
    return passes.get(k) if k is not None else None
