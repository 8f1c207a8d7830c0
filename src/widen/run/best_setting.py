"""The best decoding of each method at a required precision, and what came from the decoding and what from the loss.

Every method must have been scored under the same decodings, so that none had more tries than another; the number of tries is part of
every result. With several seeds the choice is held out: each seed is scored under the decoding that was chosen on the other seeds, so
that the best of many decodings is not best by luck alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from widen.metrics.interval import student
from widen.sample.decoding import Decoding

from .against_nll import Mean, last_loss
from .record import Record

__all__ = ["LEVELS", "BestSetting", "MethodBest", "best_of_methods", "best_setting", "what_helped"]

LEVELS = (0.9, 0.95, 0.98)
"""The precisions that tables ask for."""

Points = dict[Decoding, tuple[float, float]]
"""Precision and recall of one seed, by decoding."""


@dataclass(frozen=True, kw_only=True)
class BestSetting:
    """The decoding of highest recall among those that reach a precision.

    Args:
      decoding: chosen on the mean over all seeds.
      precision, recall: over seeds, each seed under the decoding that was chosen on the others. With one seed, those of that seed under
        `decoding`. A held-out precision may fall a little below the one that was asked for.
      tried: how many decodings the choice was made from.
    """

    decoding: Decoding
    precision: Mean
    recall: Mean
    tried: int


def best_setting(
    records: Sequence[Record], *, precision: float = 0.9, among: Callable[[Decoding], bool] | None = None
) -> BestSetting | None:
    """The best decoding of one method; None if no decoding reaches the precision.

    With several seeds it is also None if some choice of all seeds but one finds no such decoding.

    Args:
      records: of one method, of one or more seeds, each under the same decodings. Metrics other than precision and recall are ignored.
      precision: required of the mean over the seeds that the choice is made on.
      among: which decodings may be chosen, such as ``lambda decoding: decoding.temperature_alone``; None allows all.

    Examples:
      >>> about = dict(task="mulmod", model="llama", loss="nll", seed=0)
      >>> points = {"t=1": (0.95, 0.6), "t=2": (0.8, 0.7), "t=2,min_p=0.1,order=temperature_last": (0.91, 0.7)}
      >>> records = [
      ...     Record(**about, decoding=Decoding.parse(spec), metric=metric, value=value)
      ...     for spec, values in points.items()
      ...     for metric, value in zip(("precision", "recall"), values)
      ... ]
      >>> best = best_setting(records, precision=0.9)
      >>> best.decoding.in_words, best.recall.value, best.tried
      ('min_p=0.1 then t=2', 0.7, 3)
      >>> best_setting(records, among=lambda decoding: decoding.temperature_alone).decoding.in_words
      't=1'
    """
    if not 0 <= precision <= 1:
        raise ValueError(f"precision={precision}: must be between 0 and 1")
    seeds = _by_seed(records)
    allowed = [one for one in seeds[0] if among is None or among(one)]
    chosen = _choice(seeds, allowed, precision)
    if chosen is None:
        return None
    folds = (
        [chosen] if len(seeds) == 1 else [_choice(_without(seeds, i), allowed, precision) for i in range(len(seeds))]
    )
    if None in folds:
        return None
    found = [points[one] for points, one in zip(seeds, folds, strict=True) if one is not None]
    means = [
        Mean(value=value, half_width=width, count=len(seeds)) for value, width in map(student, zip(*found, strict=True))
    ]
    return BestSetting(decoding=chosen, precision=means[0], recall=means[1], tried=len(allowed))


def _by_seed(records: Sequence[Record]) -> list[Points]:
    """One dictionary per seed; every seed must have the same decodings."""
    values: dict[Any, dict[Decoding, dict[str, float]]] = {}
    for record in records:
        if record.metric in ("precision", "recall") and record.decoding is not None:
            at = values.setdefault(record.seed, {}).setdefault(record.decoding, {})
            if record.metric in at:
                raise ValueError(
                    f"records: two values of {record.metric} at {record.decoding.spec}, seed {record.seed}; give the records of one method"
                )
            at[record.metric] = record.value
    if not values:
        raise ValueError("records: none holds precision or recall under a decoding")
    first = next(iter(values.values()))
    for seed, points in values.items():
        if points.keys() != first.keys() or any(len(point) < 2 for point in points.values()):
            raise ValueError(
                f"records: seed {seed} was not scored under the same decodings as the others; score it again"
            )
    return [{one: (points[one]["precision"], points[one]["recall"]) for one in first} for points in values.values()]


def _without(seeds: Sequence[Points], left_out: int) -> list[Points]:
    return [points for i, points in enumerate(seeds) if i != left_out]


def _choice(seeds: Sequence[Points], allowed: Sequence[Decoding], precision: float) -> Decoding | None:
    """The decoding of highest mean recall whose mean precision is enough; the first of several."""
    means = {one: np.mean([points[one] for points in seeds], axis=0) for one in allowed}
    enough = [one for one in allowed if means[one][0] >= precision]
    return max(enough, key=lambda one: float(means[one][1]), default=None)


@dataclass(frozen=True, kw_only=True)
class MethodBest:
    """One method at one required precision: its best temperature, and its best decoding of any kind.

    Args:
      name, loss: of the method.
      seeds: how many.
      level: the required precision.
      temperature_alone, any_decoding: None where the precision is not reached.
      tried_alone, tried: numbers of settings.
    """

    name: str
    loss: str
    seeds: int
    level: float
    temperature_alone: BestSetting | None
    any_decoding: BestSetting | None
    tried_alone: int
    tried: int

    def cells(self, recipe: str) -> list[dict[str, Any]]:
        """Two rows of a CSV table."""
        rows = []
        for family, best, tried in (
            ("temperature alone", self.temperature_alone, self.tried_alone),
            ("any decoding", self.any_decoding, self.tried),
        ):
            row = {"recipe": recipe, "name": self.name, "loss": self.loss, "seeds": self.seeds, "level": self.level}
            row |= {"family": family, "settings": tried}
            if best is not None:
                row |= {"decoding": best.decoding.spec}
                for metric, mean in (("precision", best.precision), ("recall", best.recall)):
                    row |= {metric: mean.value, f"{metric}_half_width": mean.half_width}
            rows.append(row)
        return rows


def best_of_methods(methods: Mapping[str, Sequence[Record]], *, levels: Sequence[float] = LEVELS) -> list[MethodBest]:
    """The best settings of every method at every level. All methods must have been scored under the same decodings.

    Args:
      methods: the records of each method, all seeds together, by its name.
    """
    grids = {
        name: frozenset(r.decoding for r in records if r.decoding is not None) for name, records in methods.items()
    }
    if len(set(grids.values())) > 1:
        counts = ", ".join(f"{name} {len(grid)}" for name, grid in grids.items())
        raise ValueError(
            f"methods: each must be scored under the same decodings for a fair comparison; they have {counts}"
        )
    return [
        MethodBest(
            name=name,
            loss=records[0].loss,
            seeds=len({record.seed for record in records}),
            level=level,
            temperature_alone=best_setting(records, precision=level, among=lambda one: one.temperature_alone),
            any_decoding=best_setting(records, precision=level),
            tried_alone=sum(one.temperature_alone for one in grids[name] if one is not None),
            tried=len(grids[name]),
        )
        for level in levels
        for name, records in methods.items()
    ]


def what_helped(rows: Sequence[MethodBest], *, level: float = 0.9) -> str:
    """One sentence: NLL's recall at temperature alone, what the decoding adds to it, and what the best other loss adds to that."""
    at = [row for row in rows if row.level == level]
    nll = [row for row in at if _is_nll(row)]
    others = [row for row in at if not _is_nll(row)]
    cold = max((row for row in nll if row.temperature_alone), key=_recall_alone, default=None)
    warm = max((row for row in nll if row.any_decoding), key=_recall, default=None)
    if cold is None or warm is None:
        return f"At precision >= {level:g}: no NLL model reaches it."
    assert cold.temperature_alone is not None
    assert warm.any_decoding is not None
    start = f"At precision >= {level:g}: {cold.name} has recall {_recall_alone(cold):.3f} at temperature alone"
    start += f" ({cold.temperature_alone.decoding.in_words}, best of {cold.tried_alone} settings)"
    decoding = f"{_recall(warm) - _recall_alone(cold):+.3f} from the decoding"
    decoding += f" ({warm.any_decoding.decoding.in_words}, best of {warm.tried})"
    top = max((row for row in others if row.any_decoding), key=_recall, default=None)
    if top is None:
        return f"{start}; {decoding}; no other loss reaches that precision."
    assert top.any_decoding is not None
    loss = f"{_recall(top) - _recall(warm):+.3f} from the loss"
    loss += f" ({top.name}, {top.any_decoding.decoding.in_words}, best of {len(others)} losses x {top.tried})"
    return f"{start}; {decoding}; {loss}."


def _is_nll(row: MethodBest) -> bool:
    return last_loss(row.loss) == last_loss("nll")


def _recall(row: MethodBest) -> float:
    return row.any_decoding.recall.value if row.any_decoding else -1.0


def _recall_alone(row: MethodBest) -> float:
    return row.temperature_alone.recall.value if row.temperature_alone else -1.0
