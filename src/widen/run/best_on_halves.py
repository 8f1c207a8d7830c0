"""The best decoding of each method, chosen on one half of the problems and scored on the other, and its gain over a baseline.

Both halves take both parts, so that every problem is scored once, under a decoding that it did not help to choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widen.metrics.interval import student
from widen.metrics.passes import pass_at_k
from widen.sample.decoding import Decoding

from .against_nll import Mean, Point, welch
from .record import Record
from .table import csv_text

__all__ = ["SHARES", "HalvesBest", "best_on_halves", "halves_csv", "values_by_problem"]

SHARES = (0.0, 0.8, 0.95)
"""Required precisions, as shares of the best precision of the baseline; 0 requires none."""
Array = NDArray[np.float64]
Values = list[dict[Decoding, tuple[Array, Array]]]
"""Precision and goal of every problem, by seed and decoding."""


@dataclass(frozen=True, kw_only=True)
class HalvesBest:
    """One method at one required precision.

    Args:
      goal: the metric that the choice makes large.
      share: the required precision, as a share of the best precision of the baseline.
      tried: number of decodings to choose from.
      decodings: chosen on each half; empty if no decoding has the required precision, and then there are no values.
      precision, value: means over all problems and seeds. ``half_width`` is over seeds, ``low`` and ``high`` over problems.
      gain: of the value over that of the baseline; over problems it is paired.
    """

    name: str
    loss: str
    seeds: int
    problems: int
    goal: str
    share: float
    tried: int
    decodings: tuple[str, ...] = ()
    precision: Mean | None = None
    value: Mean | None = None
    gain: Mean | None = None

    def cells(self, recipe: str) -> dict[str, Any]:
        """The row of a CSV table."""
        names = ("name", "loss", "seeds", "problems", "goal", "share", "tried")
        row: dict[str, Any] = {"recipe": recipe, **{name: getattr(self, name) for name in names}}
        row |= {f"decoding_{half}": spec for half, spec in enumerate(self.decodings, start=1)}
        for name in ("precision", "value", "gain"):
            if (mean := getattr(self, name)) is not None:
                row |= {name: mean.value, f"{name}_half_width": mean.half_width}
                row |= {f"{name}_low": mean.low, f"{name}_high": mean.high}
        return row


def best_on_halves(
    methods: Mapping[str, Sequence[Record]], *, goal: str, shares: Sequence[float] = SHARES
) -> list[HalvesBest]:
    """The best decoding of every method at every share; empty if the scores are not known by problem.

    Args:
      methods: the records of each method, all its seeds together, by name. The first is the baseline. A method that was not scored on
        all problems of the baseline is left out.
      goal: metric to make large, such as ``pass@64``.
    """
    values = {name: _values(records, goal) for name, records in methods.items()}
    if not values or any(one is None for one in values.values()):
        return []
    all_known = {name: one for name, one in values.items() if one is not None}
    baseline = next(iter(all_known.values()))
    problems = len(next(iter(baseline[0].values()))[0])
    known = {
        name: one
        for name, one in all_known.items()
        if all(len(value) == problems for seed in one for _, value in seed.values())
    }
    if problems < 2 or next(iter(all_known)) not in known:
        return []
    even = np.arange(problems) % 2 == 0
    rows = []
    for share in shares:
        floors = [share * max(_mean(baseline, one, 0, half) for one in baseline[0]) for half in (even, ~even)]
        theirs: Array | None = None
        for name, mine in known.items():
            chosen = [_choice(mine, floor, half) for floor, half in zip(floors, (even, ~even), strict=True)]
            about: dict[str, Any] = {"name": name, "loss": methods[name][0].loss, "seeds": len(mine)}
            about |= {"problems": problems, "goal": goal, "share": share, "tried": len(mine[0])}
            first, second = chosen
            if first is None or second is None:
                rows.append(HalvesBest(**about))
                continue
            precision_SP, goal_SP = (
                np.stack([np.where(even, seed[second][i], seed[first][i]) for seed in mine]) for i in (0, 1)
            )
            theirs = goal_SP if mine is baseline else theirs
            rows.append(
                HalvesBest(
                    **about,
                    decodings=(first.spec, second.spec),
                    precision=_over(precision_SP),
                    value=_over(goal_SP),
                    gain=None if mine is baseline or theirs is None else _over(goal_SP, theirs),
                )
            )
    return rows


def _values(records: Sequence[Record], goal: str) -> Values | None:
    """Precision and goal by seed and decoding; None if they are not known by problem, or if a seed was scored twice.

    Scores of one name on several files of prompts, such as the folds of a cross-validation, are joined.
    """
    points: dict[Any, dict[Decoding, dict[str, dict[str, Record]]]] = {}
    for record in records:
        if record.decoding is not None:
            files = points.setdefault(record.seed, {}).setdefault(record.decoding, {})
            point = files.setdefault(str(record.score.get("prompts", "")), {})
            if record.metric in point:  # two settings share a name
                return None
            point[record.metric] = record
    found: Values = []
    for of_seed in points.values():
        here: dict[Decoding, tuple[Array, Array]] = {}
        for decoding, files in of_seed.items():
            parts = [_both(files[name], goal) for name in sorted(files)]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            here[decoding] = (np.concatenate([p for p, _ in known]), np.concatenate([v for _, v in known]))
        found.append(here)
    if not found or any(one.keys() != found[0].keys() for one in found):
        return None
    return found


def _both(point: Point, goal: str) -> tuple[Array, Array] | None:
    """Precision and goal of each problem, if both are known."""
    if "precision" not in point or goal not in point:
        return None
    precision, value = values_by_problem(point, "precision"), values_by_problem(point, goal)
    return None if precision is None or value is None or len(precision) != len(value) else (precision, value)


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


def _mean(seeds: Values, decoding: Decoding, which: int, half: NDArray[np.bool_]) -> float:
    """Mean over seeds of the precision (``which`` 0) or the goal (1) on one half of the problems."""
    return float(np.mean([seed[decoding][which][half] for seed in seeds]))


def _choice(seeds: Values, floor: float, half: NDArray[np.bool_]) -> Decoding | None:
    enough = [one for one in seeds[0] if _mean(seeds, one, 0, half) >= floor]
    return max(enough, key=lambda one: _mean(seeds, one, 1, half), default=None)


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


def halves_csv(rows: Sequence[HalvesBest], *, recipe: str, command: str, env: Mapping[str, object]) -> str:
    """The rows as CSV, after comment lines that say how they were made."""
    about = (
        f"# command: {command}\n# made with: {dict(env)}\n"
        "# share: required precision, as a share of the best precision of the first method; tried: decodings to choose from;\n"
        "# decoding_1, decoding_2: chosen on each half of the problems for the largest goal; precision, value: each half under the\n"
        "# decoding chosen on the other; gain: over the first method; half_width: 95 % interval over seeds; low, high: 95 % Student\n"
        "# interval over problems, paired for the gain; no values: no decoding has the required precision\n"
    )
    return about + csv_text([row.cells(recipe) for row in rows])
