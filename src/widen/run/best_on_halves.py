"""The best decoding of each method, chosen on one half of the problems and scored on the other, and its gain over a baseline.

Both halves take both parts, so that every problem is scored once, under a decoding that it did not help to choose.
Shapes: S seeds, P problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widen.metrics.interval import student
from widen.sample.decoding import Decoding

from .against_nll import Array, Mean, Point, values_by_problem, welch
from .record import Record
from .table import mean_cells

SHARES = (0.0, 0.5, 0.65, 0.8, 0.95)
"""Required precisions, as shares of the best precision of the baseline; 0 requires none."""
NOTES = (
    "# share: required precision, as a share of the best precision of the first method; tried: decodings to choose from;\n"
    "# decoding_1, decoding_2: chosen on each half of the problems for the largest goal; precision, value: each half under the\n"
    "# decoding chosen on the other; gain: over the first method; half_width: 95 % interval over seeds; low, high: 95 % Student\n"
    "# interval over problems, paired for the gain; no values: no decoding has the required precision\n"
)
Half = NDArray[np.bool_]
Values = dict[Decoding, list[Array]]
"""Precision and goal of every problem, [2, P], for each seed."""


def best_on_halves(
    methods: Mapping[str, Sequence[Record]], *, goal: str, shares: Sequence[float] = SHARES
) -> list[dict[str, Any]]:
    """The best decoding of every method at every share, as rows of a CSV; empty if the scores are not known by problem.

    A row without values belongs to a method that has no decoding with the required precision.

    Args:
      methods: the records of each method, all its seeds together, by name. The first is the baseline. A method that was not scored on
        all problems of the baseline is left out.
      goal: metric to make large, such as ``pass@64``.
    """
    known = {name: found for name, records in methods.items() if (found := _values(records, goal)) is not None}
    if len(known) < len(methods) or not known:
        return []
    baseline = next(iter(known.values()))
    problems = next(iter(baseline.values()))[0].shape[1]
    known = {name: one for name, one in known.items() if {v.shape[1] for s in one.values() for v in s} == {problems}}
    if problems < 2 or baseline is not next(iter(known.values()), None):
        return []
    even = np.arange(problems) % 2 == 0
    rows: list[dict[str, Any]] = []
    for share in shares:
        floors = [share * max(_mean(baseline[one], 0, half) for one in baseline) for half in (even, ~even)]
        theirs_SP: Array | None = None
        for name, mine in known.items():
            first, second = (_choice(mine, floor, half) for floor, half in zip(floors, (even, ~even), strict=True))
            about = {"name": name, "loss": methods[name][0].loss, "seeds": len(next(iter(mine.values())))}
            rows.append({**about, "problems": problems, "goal": goal, "share": share, "tried": len(mine)})
            if first is None or second is None:
                continue
            precision_SP, goal_SP = np.where(even, mine[second], mine[first]).swapaxes(0, 1)
            rows[-1] |= {"decoding_1": first.spec, "decoding_2": second.spec}
            rows[-1] |= mean_cells("precision", _over(precision_SP)) | mean_cells("value", _over(goal_SP))
            if mine is baseline:
                theirs_SP = goal_SP
            elif theirs_SP is not None:
                rows[-1] |= mean_cells("gain", _over(goal_SP, theirs_SP))
    return rows


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


def _mean(seeds: Sequence[Array], which: int, half: Half) -> float:
    """Mean over seeds of the precision (``which`` 0) or the goal (1) on one half of the problems."""
    return float(np.mean([seed[which][half] for seed in seeds]))


def _choice(values: Values, floor: float, half: Half) -> Decoding | None:
    enough = [one for one, seeds in values.items() if _mean(seeds, 0, half) >= floor]
    return max(enough, key=lambda one: _mean(values[one], 1, half), default=None)


def _over(mine_SP: Array, theirs_SP: Array | None = None) -> Mean:
    """The mean, or the mean difference, with intervals over seeds and over problems."""
    mine_S = mine_SP.mean(axis=1).tolist()
    half_width = student(mine_S)[1]
    by_problem = mine_SP.mean(axis=0)
    if theirs_SP is not None:
        by_problem = by_problem - theirs_SP.mean(axis=0)
        half_width = welch(mine_S, theirs_SP.mean(axis=1).tolist())
    value, half = student(by_problem.tolist())
    low, high = (None, None) if half is None else (value - half, value + half)
    return Mean(value=value, half_width=half_width, low=low, high=high, count=len(mine_S))
