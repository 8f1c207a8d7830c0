"""The best decoding of each method, chosen on one half of the problems and scored on the other, and its gain over a baseline.

Both halves take both parts, so that every problem is scored once, under a decoding that it did not help to choose.

The choice may be a mixture: each sample is drawn with one of two decodings, at random. Its precision is the weighted mean of the two. So
methods are compared at the required precision itself, and not at the nearest temperature of a grid, which would favour one of them by
chance. The coverage of a mixture is at least the weighted mean, because the chance of seeing an answer in n samples, 1 - (1 - q)^n, is
concave in q. The same holds for pass@k. We count the weighted mean. It does not hold for k-NN recall, which is compared without mixtures.

With other problems, another decoding might have been chosen. So the intervals weigh the problems anew, at random, and repeat the choice
each time (a Bayesian bootstrap). An interval that takes the choice as given is too narrow where precision must be high.

Shapes: S seeds, P problems, D decodings, R draws of the weights; the axis of 2 is precision and goal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from widen.metrics.interval import RESAMPLES, student
from widen.sample.decoding import Decoding

from .against_nll import Array, Mean, Point, values_by_problem, welch
from .record import Record
from .table import mean_cells

SHARES = (0.0, 0.5, 0.65, 0.8, 0.95)
"""Required precisions, as shares of the best precision of the baseline; 0 requires none."""
NOTES = (
    "# share: required precision, as a share of the best precision of the first method; tried: decodings to choose from;\n"
    "# decoding_1, decoding_2: chosen on each half of the problems for the largest goal; `A (0.7) or B (0.3)` draws 0.7 of the\n"
    "# samples with A and the rest with B; precision, value: each half under the decoding chosen on the other, a weighted mean if\n"
    "# there are two; gain: over the first method; half_width: 95 % interval over seeds; low, high: 95 % interval over problems,\n"
    "# by a Bayesian bootstrap that repeats the choice; no values: no decoding has the required precision\n"
)
Values = dict[Decoding, list[Array]]
"""Precision and goal of every problem, [2, P], for each seed."""


class HalfChoice(NamedTuple):
    """What one method chose on one half of the problems, for each draw of their weights.

    Args:
      first_R, second_R: numbers of decodings.
      share_R: of the first; nan if no decoding has the required precision.
    """

    first_R: NDArray[np.int64]
    second_R: NDArray[np.int64]
    share_R: Array

    def mixed(self, values_D: Array) -> Array:
        """The values of the choice, [R, ...], from those of every decoding, [D, ...]."""
        share = self.share_R.reshape(-1, *[1] * (values_D.ndim - 1))
        return share * values_D[self.first_R] + (1 - share) * values_D[self.second_R]

    def name(self, decodings: Sequence[Decoding]) -> str:
        """The choice on the data as it is."""
        share = self.share_R[0]
        parts = ((self.first_R[0], share), (self.second_R[0], 1 - share))
        specs = [(decodings[number].spec, part) for number, part in parts if part > 0]
        return " or ".join(f"{spec} ({part:.2f})" for spec, part in specs) if len(specs) > 1 else specs[0][0]


def best_on_halves(
    methods: Mapping[str, Sequence[Record]], *, goal: str, shares: Sequence[float] = SHARES, mixtures: bool = True
) -> list[dict[str, Any]]:
    """The best decoding of every method at every share, as rows of a CSV; empty if the scores are not known by problem.

    A row without values belongs to a method that has no decoding with the required precision.

    Args:
      methods: the records of each method, all its seeds together, by name. The first is the baseline. A method that was not scored on
        all problems of the baseline is left out.
      goal: metric to make large, such as ``pass@64``.
      mixtures: whether a mixture of two decodings has at least the weighted mean of their goals, and may be chosen.
    """
    known = {name: found for name, records in methods.items() if (found := _values(records, goal)) is not None}
    if len(known) < len(methods) or not known:
        return []
    baseline = next(iter(known.values()))
    problems = next(iter(baseline.values()))[0].shape[1]
    known = {name: one for name, one in known.items() if {v.shape[1] for s in one.values() for v in s} == {problems}}
    if problems < 2 or baseline is not next(iter(known.values()), None):
        return []
    drawn_RP = np.random.default_rng(0).standard_gamma(1.0, (RESAMPLES, problems))
    weight_RP = np.concatenate([np.ones((1, problems)), drawn_RP])  # the first draw is the data as it is
    values = {name: np.array(list(one.values())) for name, one in known.items()}
    first_DP = next(iter(values.values()))[:, :, 0].mean(axis=1)
    highest = [_mean(first_DP, half_RP).max(axis=1) for half_RP in _halves(weight_RP)]
    rows: list[dict[str, Any]] = []
    for share in shares:
        theirs: MethodScores | None = None
        for name, mine_DS2P in values.items():
            about = {"name": name, "loss": methods[name][0].loss, "seeds": mine_DS2P.shape[1]}
            rows.append({**about, "problems": problems, "goal": goal, "share": share, "tried": len(mine_DS2P)})
            mine = _score(mine_DS2P, [share * one_R for one_R in highest], weight_RP, mixtures)
            if mine is None:
                continue
            rows[-1] |= {f"decoding_{n}": one.name(list(known[name])) for n, one in enumerate(mine.choices, start=1)}
            for key, which in (("precision", 0), ("value", 1)):
                over_seeds = student(mine.value_S2[:, which].tolist())[1]
                rows[-1] |= mean_cells(key, _over_problems(mine.value_R2[:, which], over_seeds))
            if theirs is None:
                theirs = mine
            else:
                over_seeds = welch(mine.value_S2[:, 1].tolist(), theirs.value_S2[:, 1].tolist())
                rows[-1] |= mean_cells("gain", _over_problems((mine.value_R2 - theirs.value_R2)[:, 1], over_seeds))
    return rows


class MethodScores(NamedTuple):
    """One method: the choice on each half, and precision and goal, for each draw of the weights and for each seed."""

    choices: list[HalfChoice]
    value_R2: Array
    value_S2: Array


def _halves(weight_RP: Array) -> list[Array]:
    """The weights with those of the odd problems set to 0, and with those of the even ones."""
    even_P = np.arange(weight_RP.shape[1]) % 2 == 0
    return [np.where(half_P, weight_RP, 0.0) for half_P in (even_P, ~even_P)]


def _score(mine_DS2P: Array, floors: Sequence[Array], weight_RP: Array, mixtures: bool) -> MethodScores | None:
    """Score each half under the choice of the other; None if no decoding has the required precision."""
    mine_D2P, even_P = mine_DS2P.mean(axis=1), np.arange(mine_DS2P.shape[-1]) % 2 == 0
    choices = [
        _choice(_mean(mine_D2P[:, 0], half_RP), _mean(mine_D2P[:, 1], half_RP), floor_R, mixtures)
        for half_RP, floor_R in zip(_halves(weight_RP), floors, strict=True)
    ]
    if any(np.isnan(one.share_R[0]) for one in choices):
        return None
    first, second = choices
    value_R2P = np.where(even_P, second.mixed(mine_D2P), first.mixed(mine_D2P))
    value_R2 = np.einsum("rkp,rp->rk", value_R2P, weight_RP) / weight_RP.sum(axis=1, keepdims=True)
    value_S2 = np.where(even_P, second.mixed(mine_DS2P)[0], first.mixed(mine_DS2P)[0]).mean(axis=-1)
    return MethodScores(choices, value_R2, value_S2)


def _mean(values_DP: Array, weight_RP: Array) -> Array:
    """Weighted means over problems, [R, D]."""
    mean_RD: Array = (weight_RP @ values_DP.T) / weight_RP.sum(axis=1, keepdims=True)
    return mean_RD


def _choice(precision_RD: Array, goal_RD: Array, floor_R: Array, mixtures: bool) -> HalfChoice:
    """The decoding, or the mixture of two, with the largest goal among those with the required precision."""
    enough_RD = precision_RD >= floor_R[:, None]
    first_R = np.where(enough_RD, goal_RD, -np.inf).argmax(axis=1)
    second_R, draw_R = first_R.copy(), np.arange(len(first_R))
    share_R, best_R = np.where(enough_RD.any(axis=1), 1.0, np.nan), goal_RD[draw_R, first_R]
    for colder in (
        range(precision_RD.shape[1]) if mixtures else ()
    ):  # mixed with every decoding that misses the required precision
        over_R1 = (precision_RD[:, colder] - floor_R)[:, None]
        under_RD = floor_R[:, None] - precision_RD
        with np.errstate(divide="ignore", invalid="ignore"):
            part_RD = np.where((over_R1 >= 0) & (under_RD > 0), under_RD / (over_R1 + under_RD), np.nan)
        goal_mixed_RD = part_RD * goal_RD[:, [colder]] + (1 - part_RD) * goal_RD
        hotter_R = np.where(np.isnan(goal_mixed_RD), -np.inf, goal_mixed_RD).argmax(axis=1)
        better_R = goal_mixed_RD[draw_R, hotter_R] > best_R
        first_R, second_R = np.where(better_R, colder, first_R), np.where(better_R, hotter_R, second_R)
        share_R = np.where(better_R, part_RD[draw_R, hotter_R], share_R)
        best_R = np.where(better_R, goal_mixed_RD[draw_R, hotter_R], best_R)
    return HalfChoice(first_R, second_R, share_R)


def _over_problems(value_R: Array, half_width: float | None) -> Mean:
    """The value on the data as it is, with its interval over problems, and ``half_width`` over seeds."""
    low, high = np.nanquantile(value_R[1:], [0.025, 0.975]).tolist()
    return Mean(value=float(value_R[0]), half_width=half_width, low=low, high=high)


def _values(records: Sequence[Record], goal: str) -> Values | None:
    """Precision and goal by decoding and seed; None if they are not known by problem, or if a seed was scored twice.

    Scores of one name on several files of prompts, such as the folds of a cross-validation, are joined.
    """
    points: dict[Decoding, dict[Any, dict[str, dict[str, Record]]]] = {}
    for record in records:
        if record.decoding is not None:
            files = points.setdefault(record.decoding, {}).setdefault(record.seed, {})
            point = files.setdefault(str(record.score.get("prompts", "")), {})
            if record.metric in point:  # two settings share a name
                return None
            point[record.metric] = record
    found: Values = {}
    for decoding, of_seed in points.items():
        seeds = next(iter(points.values()))
        if of_seed.keys() != seeds.keys():
            return None
        for files in (of_seed[seed] for seed in seeds):
            parts = [_both(files[name], goal) for name in sorted(files)]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            found.setdefault(decoding, []).append(np.concatenate(known, axis=1))
    return found or None


def _both(point: Point, goal: str) -> Array | None:
    """Precision and goal of each problem, [2, P], if both are known."""
    if "precision" not in point or goal not in point:
        return None
    precision, value = values_by_problem(point, "precision"), values_by_problem(point, goal)
    return None if precision is None or value is None or len(precision) != len(value) else np.stack([precision, value])
