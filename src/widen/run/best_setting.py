"""The best decoding of each method at a required precision, and how much of its recall comes from the data, the decoding and the loss.

All methods choose from the same decodings, so that none has more tries than another. With several seeds the choice is held out: each
seed is scored under the decoding that the other seeds chose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from widen.metrics.interval import student
from widen.sample.decoding import Decoding

from .against_nll import Mean, last_loss
from .record import Record

LEVELS = (0.9, 0.95, 0.98)
"""The precisions that tables ask for."""
NOTES = (
    "# level: required precision; settings: number of decodings compared, the same for every method;\n"
    "# decoding: chosen on the mean over all seeds; precision, recall: each seed under the decoding chosen on the other\n"
    "# seeds (on itself if there is one seed); half_width: 95 % Student interval over seeds; no values: level not reached\n"
)

Points = dict[Decoding, tuple[float, float]]
"""Precision and recall of one seed, by decoding."""


@dataclass(frozen=True, kw_only=True)
class BestSetting:
    """The decoding of highest recall among those that reach a precision.

    Args:
      decoding: chosen on the mean over all seeds.
      precision, recall: means over seeds, each seed under the decoding that the other seeds chose (with one seed: under `decoding`). A
        held-out precision may fall slightly below the required one.
      tried: number of decodings that were compared.
    """

    decoding: Decoding
    precision: Mean
    recall: Mean
    tried: int


def best_setting(
    records: Sequence[Record], *, precision: float = 0.9, among: Callable[[Decoding], bool] | None = None
) -> BestSetting | None:
    """The best decoding of one method, or None if no decoding reaches the precision (on all seeds, or on all but one).

    Args:
      records: of one method; every seed under the same decodings. Metrics other than precision and recall are ignored.
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
    folds = [seeds] if len(seeds) == 1 else [seeds[:i] + seeds[i + 1 :] for i in range(len(seeds))]
    chosen, *held_out = (_choice(some, allowed, precision) for some in (seeds, *folds))
    if chosen is None or None in held_out:
        return None
    found = [points[one] for points, one in zip(seeds, held_out, strict=True) if one is not None]
    means = [
        Mean(value=value, half_width=width, count=len(seeds)) for value, width in map(student, zip(*found, strict=True))
    ]
    return BestSetting(decoding=chosen, precision=means[0], recall=means[1], tried=len(allowed))


def _by_seed(records: Sequence[Record]) -> list[Points]:
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


def _choice(seeds: Sequence[Points], allowed: Sequence[Decoding], precision: float) -> Decoding | None:
    means = {one: np.mean([points[one] for points in seeds], axis=0) for one in allowed}
    enough = [one for one in allowed if means[one][0] >= precision]
    return max(enough, key=lambda one: float(means[one][1]), default=None)


@dataclass(frozen=True, kw_only=True)
class MethodBest:
    """One method at one required precision.

    Args:
      level: the required precision.
      temperature_alone, any_decoding: the best setting of each family; None where the precision is not reached.
      tried_alone, tried: how many decodings each family has.
      other_data: whether the method learns from other data than the first method.
    """

    name: str
    loss: str
    seeds: int
    level: float
    temperature_alone: BestSetting | None
    any_decoding: BestSetting | None
    tried_alone: int
    tried: int
    other_data: bool = False

    @property
    def recall_alone(self) -> float:
        """Best recall at temperature alone; -1 if the precision is not reached."""
        return self.temperature_alone.recall.value if self.temperature_alone else -1.0

    @property
    def recall(self) -> float:
        """Best recall under any decoding; -1 if the precision is not reached."""
        return self.any_decoding.recall.value if self.any_decoding else -1.0

    def cells(self) -> list[dict[str, Any]]:
        """Two rows of a CSV table."""
        about = {"name": self.name, "loss": self.loss, "seeds": self.seeds, "level": self.level}
        alone = {**about, "family": "temperature alone", "settings": self.tried_alone} | _cells(self.temperature_alone)
        return [alone, {**about, "family": "any decoding", "settings": self.tried} | _cells(self.any_decoding)]


def _cells(best: BestSetting | None) -> dict[str, Any]:
    if best is None:
        return {}
    cells: dict[str, Any] = {"decoding": best.decoding.spec}
    for metric, mean in (("precision", best.precision), ("recall", best.recall)):
        cells |= {metric: mean.value, f"{metric}_half_width": mean.half_width}
    return cells


def best_of_methods(
    methods: Mapping[str, Sequence[Record]], *, levels: Sequence[float] = LEVELS, other_data: Collection[str] = ()
) -> list[MethodBest]:
    """The best settings of every method at every level, over the decodings that all methods have; empty if they share none.

    Args:
      methods: the records of each method, all its seeds together, by name.
      other_data: names of methods that learn from other data than the first one.
    """
    grids = [{r.decoding for r in records if r.decoding is not None} for records in methods.values()]
    shared = set.intersection(*grids) if grids else set()
    if not shared:
        return []
    rows = []
    for level in levels:
        for name, records in methods.items():
            mine = [record for record in records if record.decoding in shared]
            rows.append(
                MethodBest(
                    name=name,
                    loss=mine[0].loss,
                    seeds=len({record.seed for record in mine}),
                    level=level,
                    temperature_alone=best_setting(mine, precision=level, among=lambda one: one.temperature_alone),
                    any_decoding=best_setting(mine, precision=level),
                    tried_alone=sum(one.temperature_alone for one in shared),
                    tried=len(shared),
                    other_data=name in other_data,
                )
            )
    return rows


def what_helped(rows: Sequence[MethodBest], *, level: float = 0.9) -> str:
    """One sentence: NLL's recall at temperature alone, what the decoding adds, and what other data and the best other loss add to that."""
    at = [row for row in rows if row.level == level]
    data = [row for row in at if row.other_data]
    same = [(row, last_loss(row.loss) == last_loss("nll")) for row in at if not row.other_data]
    nll, losses = ([row for row, is_nll in same if is_nll is wanted] for wanted in (True, False))
    cold = max(nll, key=lambda row: row.recall_alone, default=None)
    warm = max(nll, key=lambda row: row.recall, default=None)
    if cold is None or warm is None or cold.temperature_alone is None or warm.any_decoding is None:
        return f"At precision >= {level:g}: no NLL model reaches it."
    text = (
        f"At precision >= {level:g}: {cold.name} has recall {cold.recall_alone:.3f} at temperature alone "
        f"({cold.temperature_alone.decoding.in_words}, best of {cold.tried_alone} settings); "
        f"{warm.recall - cold.recall_alone:+.3f} from the decoding ({warm.any_decoding.decoding.in_words}, best of {warm.tried})"
    )
    for lever, others, kind in (("data", data, "data sets"), ("loss", losses, "losses")):
        top = max(others, key=lambda row: row.recall, default=None)
        if top is not None and top.any_decoding is not None:
            number = f", best of {len(others)} {kind} x {top.tried}" if len(others) > 1 else ""
            which = f"{top.name}, {top.any_decoding.decoding.in_words}{number}"
            text += f"; {top.recall - warm.recall:+.3f} from the {lever} ({which})"
    reached = any(row.any_decoding for row in losses)
    return text + ("." if reached else "; no other loss reaches that precision.")
