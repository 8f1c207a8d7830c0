"""Runs -> lines: the seeds of one setting become one line; its points are keyed by the score and the whole decoding."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from widen.run.against_nll import Mean, mean_of, training_key
from widen.run.asking import score_key, score_labels
from widen.run.record import Record
from widen.sample.decoding import Decoding

from .run_data import RunData


class PublishedPoint(NamedTuple):
    """A point that the paper prints."""

    name: str
    precision: float
    recall: float


@dataclass(frozen=True, kw_only=True)
class LinePoint:
    """One setting at one decoding, by one kind of score.

    ``score`` is the name of the score, ``ceiling`` the recall of the reference itself, ``n`` the number of samples. ``seeds`` holds
    precision and recall of each seed.
    """

    kind: str
    decoding: Decoding
    precision: Mean
    recall: Mean
    score: str = ""
    ceiling: float | None = None
    auc: Mean | None = None
    n: int | None = None
    seeds: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    curve_precision: tuple[float, ...] = ()
    curve_recall: tuple[float, ...] = ()

    @property
    def temperature(self) -> float:
        """The temperature of the decoding."""
        return self.decoding.temperature


@dataclass(frozen=True, kw_only=True)
class ModelLine:
    """One setting: its runs, which differ in seeds alone, and its points. ``style`` is the number of its colour, dash and symbol."""

    name: str
    loss: str
    runs: Sequence[RunData]
    points: Sequence[LinePoint]
    style: int = 0

    @property
    def experiment(self) -> Mapping[str, Any]:
        """The experiment of the first run."""
        return self.runs[0].experiment

    @property
    def published(self) -> list[PublishedPoint]:
        """The paper's points for this setting."""
        return [
            PublishedPoint(
                f"paper: {self.name} ({given.get('where', '')})",
                given["values"]["precision"],
                given["values"]["recall"],
            )
            for given in self.experiment.get("published") or ()
            if {"precision", "recall"} <= (given.get("values") or {}).keys()
        ]

    def of_kind(self, kind: str) -> list[LinePoint]:
        """The points of one kind of score."""
        return [point for point in self.points if point.kind == kind]


def kinds_of(lines: Iterable[ModelLine]) -> list[str]:
    """Every kind of score with points, in order of appearance."""
    return list(dict.fromkeys(point.kind for line in lines for point in line.points))


def baseline(line: ModelLine, lines: Iterable[ModelLine]) -> ModelLine | None:
    """The NLL line that was trained alike but for the loss; None if there is none."""
    key = training_key(line.experiment.get("model"))
    return next((o for o in lines if o.loss == "nll" and training_key(o.experiment.get("model")) == key), None)


def on_other_data(line: ModelLine, first: ModelLine) -> bool:
    """Whether two models were trained alike but for the loss and the data."""

    def key(one: ModelLine, *, data: bool) -> str:
        model = one.experiment.get("model") or {}
        return training_key(model if data else {k: v for k, v in model.items() if k not in ("data", "train")})

    return key(line, data=False) == key(first, data=False) and key(line, data=True) != key(first, data=True)


def setting(experiment: Mapping[str, Any]) -> str:
    """Key that the seeds of one setting share: the model without its seeds."""
    return json.dumps(_seedless(experiment.get("model", {})), sort_keys=True)


def _seedless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _seedless(item) for key, item in value.items() if key != "seed"}
    return value


def group(runs: Sequence[RunData]) -> list[ModelLine]:
    """One line per setting, NLL first, then in the order of the runs. No two lines share a name."""
    labels = score_labels(record for run in runs for record in run.records)
    groups: dict[tuple[str, str], list[RunData]] = {}
    for run in runs:
        name = str(run.experiment.get("name") or run.name)
        groups.setdefault((name, setting(run.experiment)), []).append(run)
    taken: dict[str, int] = {}
    lines = []
    for (name, _), members in groups.items():
        rivals = [other for (same, _), (other, *_) in groups.items() if same == name]
        shown = name if len(rivals) == 1 else f"{name} ({_difference(members[0], rivals)})"
        taken[shown] = taken.get(shown, 0) + 1
        unique = shown if taken[shown] == 1 else f"{shown} [{taken[shown]}]"
        lines.append(ModelLine(name=unique, loss=members[0].loss, runs=members, points=_points(members, labels)))
    lines.sort(key=lambda line: line.loss != "nll")
    return [replace(line, style=number) for number, line in enumerate(lines)]


def _points(runs: Sequence[RunData], labels: Mapping[tuple[str, str], str]) -> list[LinePoint]:
    """Means over seeds of every kind and decoding that has both precision and recall."""
    at: dict[tuple[str, Decoding], dict[int, dict[str, Record]]] = {}
    numbers: dict[tuple[int, int | None], int] = {}
    for index, run in enumerate(runs):
        for record in run.records:
            if record.decoding is not None:
                seed = numbers.setdefault((index, record.seed), len(numbers))
                point = at.setdefault((labels[score_key(record)], record.decoding), {}).setdefault(seed, {})
                point[record.metric] = record
    found = []
    for (kind, decoding), seeds in at.items():
        whole = {seed: point for seed, point in seeds.items() if {"precision", "recall"} <= point.keys()}
        if whole:
            found.append(_point(kind, decoding, whole))
    return sorted(found, key=lambda p: (p.kind, replace(p.decoding, temperature=1.0).spec, p.temperature))


def _point(kind: str, decoding: Decoding, seeds: Mapping[int, Mapping[str, Record]]) -> LinePoint:
    each = list(seeds.values())
    areas = [point["auc"] for point in each if "auc" in point]
    curves = [area.detail for area in areas if area.detail.get("curve_precision")]
    recall = each[0]["recall"]
    return LinePoint(
        kind=kind,
        decoding=decoding,
        precision=mean_of([point["precision"] for point in each]),
        recall=mean_of([point["recall"] for point in each]),
        score=str(recall.score.get("kind", "")),
        ceiling=recall.detail.get("ceiling"),
        auc=mean_of(areas) if areas else None,
        n=recall.n,
        seeds={seed: (point["precision"].value, point["recall"].value) for seed, point in seeds.items()},
        curve_precision=tuple(np.mean([curve["curve_precision"] for curve in curves], axis=0)) if curves else (),
        curve_recall=tuple(np.mean([curve["curve_recall"] for curve in curves], axis=0)) if curves else (),
    )


def _difference(run: RunData, rivals: Sequence[RunData]) -> str:
    """The model's keys in which the runs differ, with this run's values; another start is named by its loss."""
    mine, *others = (flat(_seedless(one.experiment.get("model", {}))) for one in (run, *rivals))
    keys = sorted(key for key in mine if any(other.get(key) != mine[key] for other in others))
    own = [f"{key.rpartition('.')[2]}={mine[key]}" for key in keys if key.partition(".")[0] != "after"]
    if len({json.dumps(other.experiment.get("model", {}).get("after"), sort_keys=True) for other in rivals}) > 1:
        own.insert(0, f"after {mine['after.loss']}" if "after.loss" in mine else "from the start")
    return ", ".join(own[:3]) or "another setting"


def flat(value: Any, where: str = "") -> dict[str, Any]:
    """The values of nested mappings under dotted names."""
    if not isinstance(value, Mapping):
        return {where: value}
    return {k: v for key, item in value.items() for k, v in flat(item, f"{where}.{key}".lstrip(".")).items()}
