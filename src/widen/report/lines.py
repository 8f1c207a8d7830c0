"""Runs -> lines: the seeds of one setting become one line, with means and 95 % intervals of Student's t."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from .curves import PublishedPoint
from .run_data import RunData, ScorePoint


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over ``count`` runs, and the half width of its 95 % interval; None for a single run without an interval of its own."""

    mean: float
    half_width: float | None
    count: int


@dataclass(frozen=True, kw_only=True)
class LinePoint:
    """One setting at one temperature, by one kind of score."""

    kind: str
    temperature: float
    precision: Estimate
    recall: Estimate
    recall_ceiling: float | None
    auc: Estimate | None
    num_samples: int | None
    curve_precision: tuple[float, ...]
    curve_recall: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One setting: its runs, which differ in seeds alone, and its points by kind and temperature."""

    name: str
    loss: str
    runs: Sequence[RunData]
    points: Sequence[LinePoint]

    @property
    def experiment(self) -> Mapping[str, Any]:
        """The setting, as its first run has it."""
        return self.runs[0].experiment

    @property
    def published(self) -> PublishedPoint | None:
        """The paper's point for this setting, as fractions, where it prints one."""
        given = self.experiment.get("published") or {}
        precision, recall = given.get("precision"), given.get("recall")
        if precision is None or recall is None:
            return None
        scale = 100.0 if max(precision, recall) > 1 else 1.0  # the paper's tables are in percent
        return PublishedPoint(
            name=f"paper: {self.name} ({given.get('where', '')})", precision=precision / scale, recall=recall / scale
        )


def estimate(values: Sequence[float], own: Sequence[float | None] = ()) -> Estimate:
    """Mean and half width t_(0.975, n-1) s / sqrt(n) over seeds; a single value keeps the half width it came with.

    Examples:
      >>> e = estimate([0.8, 0.9, 1.0])
      >>> round(e.mean, 6), round(e.half_width, 6), e.count
      (0.9, 0.248414, 3)
      >>> estimate([0.8], [0.1]).half_width, estimate([0.8]).half_width
      (0.1, None)
    """
    n = len(values)
    if n == 1:
        return Estimate(mean=float(values[0]), half_width=own[0] if own else None, count=1)
    half = float(stdtrit(n - 1, 0.975)) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Estimate(mean=float(np.mean(values)), half_width=half, count=n)


def setting(experiment: Mapping[str, Any]) -> str:
    """What two runs must share to be seeds of one setting: the whole model, every ``seed`` aside."""
    return json.dumps(seedless(experiment.get("model", {})), sort_keys=True)


def seedless(value: Any) -> Any:
    """A value without its seeds, at every depth."""
    if isinstance(value, Mapping):
        return {key: seedless(item) for key, item in value.items() if key != "seed"}
    return value


def group(runs: Sequence[RunData]) -> list[Line]:
    """One line a setting, in the order of the runs. A name that stands for several settings is told apart by what differs."""
    names = [str(run.experiment.get("name") or run.name) for run in runs]
    groups: dict[tuple[str, str], list[RunData]] = {}
    for name, run in zip(names, runs, strict=True):
        groups.setdefault((name, setting(run.experiment)), []).append(run)
    lines = []
    for (name, _), members in groups.items():
        rivals = [other for (same, _), (other, *_) in groups.items() if same == name]
        shown = name if len(rivals) == 1 else f"{name} ({_difference(members[0], rivals)})"
        lines.append(Line(name=shown, loss=members[0].loss, runs=members, points=_points(members)))
    return _unique(lines)


def _unique(lines: Sequence[Line]) -> list[Line]:
    """No two lines of one name: figures, legends and tables go by names."""
    taken: dict[str, int] = {}
    out = []
    for line in lines:
        taken[line.name] = taken.get(line.name, 0) + 1
        out.append(line if taken[line.name] == 1 else replace(line, name=f"{line.name} [{taken[line.name]}]"))
    return out


def _points(runs: Sequence[RunData]) -> list[LinePoint]:
    cells: dict[tuple[str, float], list[ScorePoint]] = {}
    for run in runs:
        for point in run.points:
            cells.setdefault((point.kind, point.temperature), []).append(point)
    return [_mean(points) for _, points in sorted(cells.items())]


def _mean(points: Sequence[ScorePoint]) -> LinePoint:
    first = points[0]
    areas = [point.auc for point in points if point.auc is not None]
    curves = [point for point in points if point.curve_precision]
    return LinePoint(
        kind=first.kind,
        temperature=first.temperature,
        precision=estimate([p.precision for p in points], [p.precision_half_width for p in points]),
        recall=estimate([p.recall for p in points], [p.recall_half_width for p in points]),
        recall_ceiling=first.recall_ceiling,
        auc=estimate(areas) if areas else None,
        num_samples=first.num_samples,
        curve_precision=tuple(np.mean([p.curve_precision for p in curves], axis=0).tolist()) if curves else (),
        curve_recall=tuple(np.mean([p.curve_recall for p in curves], axis=0).tolist()) if curves else (),
    )


def _difference(run: RunData, rivals: Sequence[RunData]) -> str:
    """The keys of the model in which the runs differ, with this run's values; another start counts as one, by its loss."""
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
