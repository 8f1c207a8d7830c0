"""Records of many runs -> the table of a recipe: one row per setting and decoding, means and intervals over seeds, as CSV and as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from widen.sample.decoding import Decoding
from widen.train.settings import Configuration

from .against_nll import Mean, Point, gains, matched_temperature, mean_of, training_key
from .experiment import Experiment
from .record import Record, by_decoding
from .value import content_hash, to_json


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting at one decoding.

    Args:
      matched_temperature: where NLL has this setting's population optimum.
      b: training proportion of the rare half of the integer task.
      num_samples: n of the expected recall, where scores are exact.
      values: by metric.
      published: what the paper prints, by metric, and ``where``.
      versus: NLL at the matched temperature, trained and asked alike but for the loss, where the recipe has it.
      gains: values less NLL's there.
    """

    recipe: str
    name: str
    task: str = ""
    model: str = ""
    loss: str = ""
    b: float | None = None
    decoding: str = "t=1"
    temperature: float = 1.0
    matched_temperature: float | None = None
    seeds: int | None = None
    num_samples: int | None = None
    values: dict[str, Mean] = field(default_factory=dict)
    published: dict[str, float] = field(default_factory=dict)
    where: str = ""
    versus: str = ""
    gains: dict[str, Mean] = field(default_factory=dict)

    @property
    def precision(self) -> float:
        """Mean precision."""
        return self.values["precision"].value

    @property
    def recall(self) -> float:
        """Mean recall."""
        return self.values["recall"].value

    @property
    def precision_half_width(self) -> float | None:
        """Of the interval of precision over seeds."""
        return self.values["precision"].half_width

    @property
    def recall_half_width(self) -> float | None:
        """Of the interval of recall over seeds."""
        return self.values["recall"].half_width

    def cells(self) -> dict[str, Any]:
        """The row as columns: each metric with its intervals and what the paper prints for it."""
        found: dict[str, Any] = {name: getattr(self, name) for name in ABOUT}
        for name, mean in self.values.items():
            found |= _columns(name, mean)
            if name in self.published:
                found[f"published_{name}"] = self.published[name]
        found |= {"where": self.where, "versus": self.versus}
        for name, mean in self.gains.items():
            found |= _columns(f"gain_{name}", mean)
        return {name: value for name, value in found.items() if value is not None}


ABOUT = tuple(f.name for f in fields(Row) if f.name not in ("values", "published", "where", "versus", "gains"))
ENDS = ("half_width", "low", "high")
NUMBERS = ("b", "temperature", "matched_temperature", "seeds", "num_samples")


def _columns(name: str, mean: Mean) -> dict[str, Any]:
    return {name: mean.value, **{f"{name}_{end}": getattr(mean, end) for end in ENDS}}


def summarise(recipe: str, scored: Iterable[tuple[Experiment, Sequence[Record]]]) -> list[Row]:
    """Rows in the order in which settings first appear, decodings in the order of the experiment."""
    groups: dict[tuple[str, Decoding | None], list[tuple[Experiment, Point]]] = {}
    for experiment, records in scored:
        for decoding, point in _points(records).items():
            groups.setdefault((experiment.setting, decoding), []).append((experiment, point))
    rows = [_row(recipe, decoding, members) for (_, decoding), members in groups.items()]
    seeds = [[point for _, point in members] for members in groups.values()]
    keys = [_but_for_the_loss(members[0][0]) for members in groups.values()]
    nll = {
        (key, row.decoding): (row, points)
        for key, row, points in reversed(list(zip(keys, rows, seeds, strict=True)))
        if row.loss == "nll"
    }
    return [_against_nll(row, mine, nll, key) for row, mine, key in zip(rows, seeds, keys, strict=True)]


def _points(records: Sequence[Record]) -> dict[Decoding | None, Point]:
    """Records by decoding. What has no decoding is of the model's own law: it joins t = 1, and is left out of a run without t = 1."""
    points = {decoding: dict(point) for (_, decoding), point in by_decoding(records).items()}
    if len(points) > 1 and (own := points.pop(None, None)) and Decoding() in points:
        points[Decoding()] |= own
    return dict(points)


def _row(recipe: str, decoding: Decoding | None, members: Sequence[tuple[Experiment, Point]]) -> Row:
    """The seeds of one setting at one decoding."""
    (first, point), points = members[0], [point for _, point in members]
    drawn = decoding or Decoding()
    published = next((p for p in first.published if Decoding.parse(p.decoding) == drawn and p.values), None)
    published = published or next((p for p in first.published if Decoding.parse(p.decoding) == drawn), None)
    small = isinstance(first.model, Configuration)
    return Row(
        recipe=recipe,
        name=first.name,
        task=first.task,
        model=first.base,
        loss=first.loss,
        b=getattr(first.model.data, "under_representation", None) if isinstance(first.model, Configuration) else None,
        decoding=drawn.spec,
        temperature=drawn.temperature,
        matched_temperature=matched_temperature(first.loss, drawn.temperature),
        seeds=len(members),
        num_samples=point["recall"].n if small else None,
        values={metric: mean_of([point[metric] for point in points]) for metric in point},
        published=dict(published.values) if published else {},
        where=published.where if published else "",
    )


def _but_for_the_loss(experiment: Experiment) -> str:
    """What experiments share that differ in the loss, the seeds, the decoding and the names alone."""
    aside = ("name", "model", "decoding", "seed", "published", "not_in_paper")
    asked = {key: value for key, value in to_json(experiment).items() if key not in aside}
    return content_hash(training_key(to_json(experiment.model)), asked)


def _against_nll(
    row: Row, mine: Sequence[Point], nll: Mapping[tuple[str, str], tuple[Row, Sequence[Point]]], key: str
) -> Row:
    """The row with its gains over NLL at the matched temperature, if the table has NLL trained and asked in the same way."""
    assert row.matched_temperature is not None
    wanted = Decoding(temperature=row.matched_temperature).spec
    plain = row.decoding == Decoding(temperature=row.temperature).spec
    if row.loss in ("", "nll") or not plain or (key, wanted) not in nll:
        return row
    other, theirs = nll[key, wanted]
    return replace(row, versus=f"{other.name}, {wanted}", gains=gains(mine, theirs))


def best_recall(rows: Sequence[Row], *, precision: float) -> dict[str, Row | None]:
    """For each setting the row of highest recall whose precision is at least ``precision``; None if no decoding reaches it."""
    found: dict[str, Row | None] = {}
    for row in rows:
        found.setdefault(row.name, None)
        best = found[row.name]
        if row.precision >= precision and (best is None or row.recall > best.recall):
            found[row.name] = row
    return found


def to_csv(
    rows: Sequence[Mapping[str, Any]],
    *,
    command: str,
    env: Mapping[str, object],
    models: Sequence[Mapping[str, object]] = (),
) -> str:
    """Rows as CSV under the union of their columns, after comment lines that say how they, and the models, were made."""
    out = io.StringIO()
    out.write(f"# command: {command}\n# made with: {dict(env)}\n")
    out.writelines(f"# models made with: {dict(model)}\n" for model in models)
    out.write(
        "# half_width: 95 % Student interval over seeds; low, high: 95 % interval over problems or texts, averaged over seeds;\n"
        "# matched_temperature: where NLL has the same population optimum; gain_*: less NLL's there, half_width by Welch over\n"
        "# seeds, low and high in pairs over problems; published_*: what the paper prints, as a share of 1; recall of exact\n"
        "# scores: expected share of the right answers among num_samples samples of a problem\n"
    )
    _write(out, rows)
    return out.getvalue()


def best_csv(rows: Sequence[Mapping[str, Any]], *, command: str, env: Mapping[str, object]) -> str:
    """The best settings of each method as CSV, after comment lines that say how they were chosen."""
    out = io.StringIO()
    out.write(f"# command: {command}\n# made with: {dict(env)}\n")
    out.write(
        "# level: required precision; settings: how many decodings the best was chosen from, the same for every method;\n"
        "# decoding: chosen on the mean over all seeds; precision, recall: each seed under the decoding chosen on the other\n"
        "# seeds (on itself if there is one seed); half_width: 95 % Student interval over seeds; no values: level not reached\n"
    )
    _write(out, rows)
    return out.getvalue()


def _write(out: io.StringIO, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows under the union of their columns."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def read_cells(path: str | Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV table as text by column, without its comment lines and empty cells."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        for cells in csv.DictReader(line for line in file if not line.startswith("#")):
            yield {key: value for key, value in cells.items() if isinstance(value, str) and value}


def read_csv(path: str | Path) -> list[Row]:
    """The rows of a CSV table that hold a metric; columns that are not there take their defaults."""
    rows = []
    for cells in read_cells(path):
        if not {"recipe", "name"} <= cells.keys():
            raise ValueError(f"{path}: columns {sorted(cells)}; a table of results has recipe, name and metrics")
        row = read_row(path, cells)
        rows += [row] if row.values else []
    return rows


def read_row(path: str | Path, cells: Mapping[str, str]) -> Row:
    """One row of `read_cells`; errors name the file."""
    try:
        return _row_of(cells)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _row_of(cells: Mapping[str, str]) -> Row:
    named = [
        name for name in cells if name not in ABOUT and name not in ("where", "versus", "mass", "quantile", "tokens")
    ]
    metrics = [name for name in named if not name.endswith(ENDS) and not name.startswith("published_")]
    numbers = {name: _number(name, cells[name]) for name in (*named, *NUMBERS) if name in cells}
    temperature, seeds, samples = numbers.get("temperature", 1.0), numbers.get("seeds"), numbers.get("num_samples")
    means = {
        name: Mean(
            value=numbers[name],
            half_width=numbers.get(f"{name}_half_width"),
            low=numbers.get(f"{name}_low"),
            high=numbers.get(f"{name}_high"),
            count=int(seeds or 1),
        )
        for name in metrics
    }
    return Row(
        **{name: cells.get(name, "") for name in ("recipe", "name", "task", "model", "loss", "where", "versus")},
        b=numbers.get("b"),
        decoding=cells.get("decoding", Decoding(temperature=temperature).spec),
        temperature=temperature,
        matched_temperature=numbers.get("matched_temperature"),
        seeds=None if seeds is None else int(seeds),
        num_samples=None if samples is None else int(samples),
        values={name: mean for name, mean in means.items() if not name.startswith("gain_")},
        published={name.removeprefix("published_"): numbers[name] for name in named if name.startswith("published_")},
        gains={name.removeprefix("gain_"): mean for name, mean in means.items() if name.startswith("gain_")},
    )


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"column {name} holds {text!r}, not a number") from None


def as_text(rows: Sequence[Row]) -> str:
    """The table for a terminal, without the intervals over problems; the paper's number is in brackets. Then the gains over NLL."""
    names = list(dict.fromkeys(metric for row in rows for metric in row.values))
    lines = [["name", "model", "task", "decoding", "seeds", *names]]
    for row in rows:
        about = [row.name, row.model, row.task, row.decoding, str(row.seeds)]
        lines.append([*about, *(_shown(row, name) for name in names)])
    text = _aligned(lines)
    matched = [row for row in rows if row.gains]
    if not matched:
        return text
    names = [name for name in names if any(name in row.gains for row in matched)]
    lines = [["name", "decoding", "against", *names]]
    for row in matched:
        lines.append([row.name, row.decoding, row.versus, *(_gain(row.gains.get(name)) for name in names)])
    return (
        f"{text}\n\ngain over NLL at the matched temperature ± over seeds (interval over problems)\n{_aligned(lines)}"
    )


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def _gain(mean: Mean | None) -> str:
    if mean is None:
        return ""
    spread = f" ± {mean.half_width:.3f}" if mean.half_width is not None else ""
    ends = f" ({mean.low:+.3f} {mean.high:+.3f})" if mean.low is not None and mean.high is not None else ""
    return f"{mean.value:+.3f}{spread}{ends}"


def _shown(row: Row, name: str) -> str:
    if name not in row.values:
        return ""
    mean, digits = row.values[name], ".2%" if name.startswith("sparsity") else ".3f"
    spread = f" ± {mean.half_width:{digits}}" if mean.half_width is not None else ""
    printed = f" [{row.published[name]:{digits}}]" if name in row.published else ""
    return f"{mean.value:{digits}}{spread}{printed}"
