"""The table of a recipe: one row per setting and decoding, with means and intervals over seeds; as CSV and as text."""

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
      b: training proportion of the rare half of the integer task.
      matched_temperature: the temperature at which NLL has the same population optimum.
      num_samples: n of the expected recall, for exact scores.
      values: by metric.
      published: the paper's numbers, by metric; ``where`` names its table or figure.
      versus: the NLL row at the matched temperature, if the recipe has one that differs in the loss only.
      gains: ``values`` minus those of ``versus``.
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

    def cells(self) -> dict[str, Any]:
        """The row as columns: each metric with its intervals and the paper's number."""
        found: dict[str, Any] = {name: getattr(self, name) for name in ABOUT}
        for name, mean in self.values.items():
            found |= mean_cells(name, mean)
            if name in self.published:
                found[f"published_{name}"] = self.published[name]
        found |= {"where": self.where, "versus": self.versus}
        for name, mean in self.gains.items():
            found |= mean_cells(f"gain_{name}", mean)
        return {name: value for name, value in found.items() if value is not None}


ABOUT = tuple(f.name for f in fields(Row) if f.name not in ("values", "published", "where", "versus", "gains"))
ENDS = ("half_width", "low", "high")
NUMBERS = ("b", "temperature", "matched_temperature", "seeds", "num_samples")
NOTES = (
    "# half_width: 95 % Student interval over seeds; low, high: 95 % interval over problems or texts, averaged over seeds;\n"
    "# matched_temperature: where NLL has the same population optimum; gain_*: minus NLL's there, half_width by Welch over\n"
    "# seeds, low and high paired over problems; published_*: the paper's numbers, between 0 and 1; recall of exact\n"
    "# scores: expected share of the right answers among num_samples samples of a problem\n"
)


def mean_cells(name: str, mean: Mean) -> dict[str, Any]:
    """A mean and its intervals as columns."""
    return {name: mean.value, **{f"{name}_{end}": getattr(mean, end) for end in ENDS}}


def summarise(recipe: str, scored: Iterable[tuple[Experiment, Sequence[Record]]]) -> list[Row]:
    """Rows in the order in which settings first appear, decodings in the order of the experiment."""
    groups: dict[tuple[str, Decoding | None], list[tuple[Experiment, Point]]] = {}
    for experiment, records in scored:
        for decoding, point in _points(records).items():
            groups.setdefault((experiment.setting, decoding), []).append((experiment, point))
    found = [
        (_row(recipe, decoding, members), [point for _, point in members], _all_but_the_loss(members[0][0]))
        for (_, decoding), members in groups.items()
    ]
    nll = {(key, row.decoding): (row, points) for row, points, key in reversed(found) if row.loss == "nll"}
    rows = []
    for row, mine, key in found:
        wanted = Decoding(temperature=row.matched_temperature or 1.0).spec
        plain = row.decoding == Decoding(temperature=row.temperature).spec
        if row.loss not in ("", "nll") and plain and (key, wanted) in nll:
            other, theirs = nll[key, wanted]
            row = replace(row, versus=f"{other.name}, {wanted}", gains=gains(mine, theirs))
        rows.append(row)
    return rows


def _points(records: Sequence[Record]) -> dict[Decoding | None, Point]:
    """Records by decoding. Records without one describe the model itself: they join t = 1, or are dropped if t = 1 was not scored."""
    points = {decoding: dict(point) for (_, decoding), point in by_decoding(records).items()}
    if len(points) > 1 and (own := points.pop(None, None)) and Decoding() in points:
        points[Decoding()] |= own
    return dict(points)


def _row(recipe: str, decoding: Decoding | None, members: Sequence[tuple[Experiment, Point]]) -> Row:
    """The seeds of one setting at one decoding."""
    (first, point), points = members[0], [point for _, point in members]
    drawn = decoding or Decoding()
    printed = [one for one in first.published if Decoding.parse(one.decoding) == drawn]
    published = next((one for one in printed if one.values), printed[0] if printed else None)
    small = isinstance(first.model, Configuration)
    return Row(
        recipe=recipe,
        name=first.name,
        task=first.task,
        model=first.base_of_all_seeds,
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


def _all_but_the_loss(experiment: Experiment) -> str:
    """Key that ignores loss, seed, decoding, name and memory-only settings."""
    aside = ("name", "model", "decoding", "seed", "published", "not_in_paper")
    asked = {key: value for key, value in to_json(experiment).items() if key not in aside}
    return content_hash(training_key(to_json(experiment.model)), asked)


def to_csv(
    rows: Sequence[Mapping[str, Any]],
    *,
    command: str,
    env: Mapping[str, object],
    models: Iterable[Mapping[str, object]] = (),
    notes: str = NOTES,
) -> str:
    """Rows as CSV under the union of their columns, after comment lines with what made the rows and the models; floats have six digits."""
    out = io.StringIO()
    out.write(f"# command: {command}\n# made with: {dict(env)}\n")
    out.writelines(f"# models made with: {dict(model)}\n" for model in models)
    out.write(notes)
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return out.getvalue()


def read_cells(path: str | Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV table as text by column, without comment lines and empty cells."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        for cells in csv.DictReader(line for line in file if not line.startswith("#")):
            yield {key: value for key, value in cells.items() if isinstance(value, str) and value}


def read_csv(path: str | Path) -> list[Row]:
    """The rows of a CSV table that hold a metric; missing columns take their defaults."""
    rows = []
    for cells in read_cells(path):
        if not {"recipe", "name"} <= cells.keys():
            raise ValueError(f"{path}: columns {sorted(cells)}; a table of results has recipe, name and metrics")
        row = read_row(path, cells)
        rows += [row] if row.values else []
    return rows


def read_row(path: str | Path, cells: Mapping[str, str]) -> Row:
    """One row of `read_cells`. Errors name the file."""
    aside = (*ABOUT, "where", "versus", "mass", "quantile", "tokens")
    named = [name for name in cells if name not in aside]
    numbers = {name: _number(path, name, cells[name]) for name in (*named, *NUMBERS) if name in cells}
    temperature, seeds, samples = numbers.get("temperature", 1.0), numbers.get("seeds"), numbers.get("num_samples")
    means = {
        name: Mean(value=numbers[name], **{end: numbers.get(f"{name}_{end}") for end in ENDS}, count=int(seeds or 1))
        for name in named
        if not name.endswith(ENDS) and not name.startswith("published_")
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


def _number(path: str | Path, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{path}: column {name} holds {text!r}, not a number") from None


def as_text(rows: Sequence[Row]) -> str:
    """The table for a terminal, with the paper's numbers in brackets; then the gains over NLL."""
    names = list(dict.fromkeys(metric for row in rows for metric in row.values))
    lines = [["name", "model", "task", "decoding", "seeds", *names]]
    lines += [
        [row.name, row.model, row.task, row.decoding, str(row.seeds), *(_shown(row, name) for name in names)]
        for row in rows
    ]
    text = _aligned(lines)
    matched = [row for row in rows if row.gains]
    if not matched:
        return text
    names = [name for name in names if any(name in row.gains for row in matched)]
    lines = [["name", "decoding", "against", *names]]
    lines += [[row.name, row.decoding, row.versus, *(_gain(row.gains.get(name)) for name in names)] for row in matched]
    title = "gain over NLL at the matched temperature ± over seeds (interval over problems)"
    return f"{text}\n\n{title}\n{_aligned(lines)}"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


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
