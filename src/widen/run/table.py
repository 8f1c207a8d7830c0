"""Scores of many runs -> the table of a recipe: one row a setting and temperature, mean and 95 % interval over seeds, as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from scipy.special import stdtrit

from widen.metrics.exact import ExactPoint

from .experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting at one temperature. Half-widths are of 95 % Student intervals over seeds; None where there is one seed."""

    recipe: str
    name: str
    loss: str
    b: float | None
    temperature: float
    seeds: int
    precision: float
    precision_half_width: float | None
    recall: float
    recall_half_width: float | None
    auc: float
    auc_half_width: float | None
    recall_at_half: float
    recall_at_one: float
    num_samples: int


def summarise(recipe: str, scored: Iterable[tuple[Experiment, Sequence[ExactPoint]]]) -> list[Row]:
    """Rows in the order in which settings first appear, temperatures ascending."""
    cells: dict[tuple[str, str, float | None, float], list[ExactPoint]] = {}
    for experiment, points in scored:
        b = experiment.model.data.under_representation
        for point in points:
            cells.setdefault((experiment.name, str(experiment.model.loss), b, point.temperature), []).append(point)
    order = {key[:3]: i for i, key in reversed(list(enumerate(cells)))}
    rows = []
    for name, loss, b, temperature in sorted(cells, key=lambda key: (order[key[:3]], key[3])):
        points = cells[name, loss, b, temperature]
        precision, recall, auc = (interval([getattr(p, n) for p in points]) for n in ("precision", "recall", "auc"))
        at = {lam: sum(p.recall_at[p.lams.index(lam)] for p in points) / len(points) for lam in (0.5, 1.0)}
        rows.append(
            Row(
                recipe=recipe,
                name=name,
                loss=loss,
                b=b,
                temperature=temperature,
                seeds=len(points),
                precision=precision[0],
                precision_half_width=precision[1],
                recall=recall[0],
                recall_half_width=recall[1],
                auc=auc[0],
                auc_half_width=auc[1],
                recall_at_half=at[0.5],
                recall_at_one=at[1.0],
                num_samples=points[0].num_samples,
            )
        )
    return rows


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and half-width of the 95 % Student interval.

    >>> mean, half = interval([1.0, 2.0, 3.0])
    >>> round(mean, 3), round(half, 3)
    (2.0, 2.484)
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, None
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, float(stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n)


def best_recall(rows: Sequence[Row], *, precision: float) -> dict[str, Row | None]:
    """For each setting the row of highest recall whose precision is at least ``precision``; None where no temperature reaches it."""
    found: dict[str, Row | None] = {}
    for row in rows:
        found.setdefault(row.name, None)
        best = found[row.name]
        if row.precision >= precision and (best is None or row.recall > best.recall):
            found[row.name] = row
    return found


def to_csv(rows: Sequence[Row], *, command: str, env: dict[str, object]) -> str:
    """The table as CSV, after comment lines that say how it was made."""
    out = io.StringIO()
    out.write(f"# command: {command}\n# made with: {env}\n")
    out.write(
        "# half_width: 95 % Student interval over seeds; recall: expected share of the support among num_samples samples\n"
    )
    writer = csv.writer(out, lineterminator="\n")
    names = [f.name for f in fields(Row)]
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(getattr(row, name)) for name in names])
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def read_csv(path: str | Path) -> list[Row]:
    """Read such a table back."""
    lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    kinds = {f.name: f.type for f in fields(Row)}
    rows = []
    for record in csv.DictReader(lines):
        if set(record) != set(kinds):
            raise ValueError(f"{path}: columns {sorted(record)}; expected {sorted(kinds)}")
        rows.append(Row(**{name: _parse(kinds[name], text) for name, text in record.items()}))  # type: ignore[arg-type]
    return rows


def _parse(kind: object, text: str) -> object:
    if "float" in str(kind):
        return float(text) if text else None
    return int(text) if kind == "int" else text
