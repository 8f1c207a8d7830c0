"""Runs -> lines: the seeds of one setting become one line; its points are keyed by the score and the whole decoding."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widen.run.against_nll import Mean, mean_of
from widen.run.record import Record
from widen.sample.decoding import Decoding

from .run_data import RunData


@dataclass(frozen=True, kw_only=True)
class PublishedPoint:
    """A point that the paper prints."""

    name: str
    precision: float
    recall: float


@dataclass(frozen=True, kw_only=True)
class LinePoint:
    """One setting at one decoding, by one kind of score.

    ``ceiling`` is the recall of the reference itself, ``n`` the number of samples. ``seeds`` holds (number of the run, precision,
    recall) of each seed.
    """

    kind: str
    decoding: Decoding
    precision: Mean
    recall: Mean
    ceiling: float | None = None
    auc: Mean | None = None
    n: int | None = None
    seeds: tuple[tuple[int, float, float], ...] = ()
    curve_precision: tuple[float, ...] = ()
    curve_recall: tuple[float, ...] = ()

    @property
    def temperature(self) -> float:
        """Of the decoding."""
        return self.decoding.temperature

    @property
    def method(self) -> str:
        """The decoding without its temperature; empty where there is nothing else."""
        return replace(self.decoding, temperature=1.0).spec.removeprefix("t=1").removeprefix(",")


@dataclass(frozen=True, kw_only=True)
class ModelLine:
    """One setting: its runs, which differ in seeds alone, and its points."""

    name: str
    loss: str
    runs: Sequence[RunData]
    points: Sequence[LinePoint]

    @property
    def experiment(self) -> Mapping[str, Any]:
        """The setting, as its first run has it."""
        return self.runs[0].experiment

    @property
    def published(self) -> list[PublishedPoint]:
        """The paper's points for this setting."""
        return [
            PublishedPoint(
                name=f"paper: {self.name} ({given.get('where', '')})",
                precision=given["values"]["precision"],
                recall=given["values"]["recall"],
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


def setting(experiment: Mapping[str, Any]) -> str:
    """What two runs must share to be seeds of one setting: the whole model without its seeds."""
    return json.dumps(seedless(experiment.get("model", {})), sort_keys=True)


def seedless(value: Any) -> Any:
    """A value without its seeds, at every depth."""
    if isinstance(value, Mapping):
        return {key: seedless(item) for key, item in value.items() if key != "seed"}
    return value


def group(runs: Sequence[RunData]) -> list[ModelLine]:
    """One line per setting, in the order of the runs. Settings that share a name are told apart by what differs."""
    labels = _kind_labels(record for run in runs for record in run.records)
    groups: dict[tuple[str, str], list[RunData]] = {}
    for run in runs:
        name = str(run.experiment.get("name") or run.name)
        groups.setdefault((name, setting(run.experiment)), []).append(run)
    lines = []
    for (name, _), members in groups.items():
        rivals = [other for (same, _), (other, *_) in groups.items() if same == name]
        shown = name if len(rivals) == 1 else f"{name} ({_difference(members[0], rivals)})"
        lines.append(ModelLine(name=shown, loss=members[0].loss, runs=members, points=_points(members, labels)))
    return _unique(lines)


def _unique(lines: Sequence[ModelLine]) -> list[ModelLine]:
    """No two lines of one name: figures, legends and tables go by names."""
    taken: dict[str, int] = {}
    out = []
    for line in lines:
        taken[line.name] = taken.get(line.name, 0) + 1
        out.append(line if taken[line.name] == 1 else replace(line, name=f"{line.name} [{taken[line.name]}]"))
    return out


def _kind_key(record: Record) -> tuple[str, str]:
    """What records must share to be compared: task, score and its settings, except the points of the curve that are listed."""
    return record.kind, json.dumps({k: v for k, v in record.score.items() if k != "lams"}, sort_keys=True)


def _kind_labels(records: Iterable[Record]) -> dict[tuple[str, str], str]:
    """A name for each kind of score: the plain one, with the settings that differ where one score has several."""
    keys = list(dict.fromkeys(map(_kind_key, records)))
    labels = {}
    for kind, settings in keys:
        mine, rivals = json.loads(settings), [json.loads(other) for same, other in keys if same == kind]
        differs = [key for key in mine if any(other.get(key) != mine[key] for other in rivals)]
        labels[kind, settings] = f"{kind} ({', '.join(f'{key}={mine[key]}' for key in differs)})" if differs else kind
    return labels


def _points(runs: Sequence[RunData], labels: Mapping[tuple[str, str], str]) -> list[LinePoint]:
    """Means over seeds of every kind and decoding that has both precision and recall."""
    seeds: dict[tuple[str, Decoding], dict[tuple[int, int | None], dict[str, Record]]] = {}
    for number, run in enumerate(runs):
        for record in run.records:
            if record.decoding is not None:
                at = seeds.setdefault((labels[_kind_key(record)], record.decoding), {})
                at.setdefault((number, record.seed), {})[record.metric] = record
    found = []
    for (kind, decoding), points in seeds.items():
        whole = {key: point for key, point in points.items() if {"precision", "recall"} <= point.keys()}
        if whole:
            seeds_of = tuple((n, p["precision"].value, p["recall"].value) for (n, _), p in whole.items())
            found.append(replace(_point(kind, decoding, list(whole.values())), seeds=seeds_of))
    return sorted(found, key=lambda point: (point.kind, point.method, point.temperature))


def _point(kind: str, decoding: Decoding, seeds: Sequence[Mapping[str, Record]]) -> LinePoint:
    areas = [point["auc"] for point in seeds if "auc" in point]
    curves = [area.detail for area in areas if area.detail.get("curve_precision")]
    recall = seeds[0]["recall"]
    return LinePoint(
        kind=kind,
        decoding=decoding,
        precision=mean_of([point["precision"] for point in seeds]),
        recall=mean_of([point["recall"] for point in seeds]),
        ceiling=recall.detail.get("ceiling"),
        auc=mean_of(areas) if areas else None,
        n=recall.n,
        curve_precision=tuple(np.mean([curve["curve_precision"] for curve in curves], axis=0)) if curves else (),
        curve_recall=tuple(np.mean([curve["curve_recall"] for curve in curves], axis=0)) if curves else (),
    )


def _difference(run: RunData, rivals: Sequence[RunData]) -> str:
    """The keys of the model in which the runs differ, with this run's values; another start is named by its loss."""
    flat = [_flat(seedless(other.experiment.get("model", {}))) for other in rivals]
    mine = _flat(seedless(run.experiment.get("model", {})))
    keys = sorted(key for key in mine if any(other.get(key) != mine[key] for other in flat))
    own = [f"{key.rpartition('.')[2]}={mine[key]}" for key in keys if key.partition(".")[0] != "after"]
    if len({json.dumps(other.experiment.get("model", {}).get("after"), sort_keys=True) for other in rivals}) > 1:
        own.insert(0, f"after {mine['after.loss']}" if "after.loss" in mine else "from the start")
    return ", ".join(own[:3]) or "another setting"


def _flat(value: Any, where: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {
            k: v for key, item in value.items() for k, v in _flat(item, f"{where}.{key}" if where else str(key)).items()
        }
    return {where: value}
