"""Scores of texts -> the table of a recipe: a row a setting and decoding, mean and interval over seeds, the paper's number beside ours."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from widen.sample.decoding import Decoding

from .finetune.config import FineTune, decisive
from .table import interval
from .text_compare import gains
from .text_experiment import TextExperiment
from .text_points import Mean, TextPoint
from .value import content_hash, to_json


@dataclass(frozen=True, kw_only=True)
class TextRow:
    """One setting at one decoding.

    Args:
      matched_temperature: where NLL has this setting's population optimum.
      values: by the name of the score.
      published: what the paper prints, by the same names, and ``where``.
      versus: NLL, trained alike but for the loss, at the matched temperature, where the recipe has it.
      gains: values less NLL's there.
    """

    recipe: str
    name: str
    task: str
    model: str
    loss: str
    decoding: str
    temperature: float
    matched_temperature: float
    seeds: int
    values: dict[str, Mean] = field(default_factory=dict)
    published: dict[str, float] = field(default_factory=dict)
    where: str = ""
    versus: str = ""
    gains: dict[str, Mean] = field(default_factory=dict)

    def cells(self) -> dict[str, Any]:
        """The row as columns: each score with its intervals and what the paper prints for it."""
        found: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "recipe",
                "name",
                "task",
                "model",
                "loss",
                "decoding",
                "temperature",
                "matched_temperature",
                "seeds",
            )
        }
        for name, mean in self.values.items():
            found |= {name: mean.value, f"{name}_half_width": mean.half_width}
            found |= {f"{name}_low": mean.low, f"{name}_high": mean.high}
            if name in self.published:
                found[f"published_{name}"] = self.published[name]
        found |= {"where": self.where, "versus": self.versus}
        for name, mean in self.gains.items():
            found |= {f"gain_{name}": mean.value, f"gain_{name}_half_width": mean.half_width}
            found |= {f"gain_{name}_low": mean.low, f"gain_{name}_high": mean.high}
        return found


def summarise(recipe: str, scored: Sequence[tuple[TextExperiment, Sequence[TextPoint]]]) -> list[TextRow]:
    """Rows in the order in which settings first appear; experiments that differ in their seeds alone are one setting."""
    groups: dict[tuple[str, str], list[tuple[TextExperiment, TextPoint]]] = {}
    for experiment, points in scored:
        for point in points:
            groups.setdefault((setting_key(experiment), point.decoding), []).append((experiment, point))
    rows = [_row(recipe, members) for members in groups.values()]
    seeds = [[point for _, point in members] for members in groups.values()]
    nll = {
        (lossless_key(members[0][0]), row.decoding): (row, points)
        for members, row, points in reversed(list(zip(groups.values(), rows, seeds, strict=True)))
        if row.loss == "nll"
    }
    trained = [lossless_key(members[0][0]) for members in groups.values()]
    return [_against_nll(row, mine, nll, key) for row, mine, key in zip(rows, seeds, trained, strict=True)]


def _row(recipe: str, members: Sequence[tuple[TextExperiment, TextPoint]]) -> TextRow:
    """The seeds of one setting at one decoding."""
    (first, point), points = members[0], [point for _, point in members]
    published = next((p for p in first.published if Decoding.parse(p.decoding).spec == point.decoding), None)
    return TextRow(
        recipe=recipe,
        name=first.name,
        task=first.prompts.task,
        model=first.base,
        loss=first.loss,
        decoding=point.decoding,
        temperature=point.temperature,
        matched_temperature=round(first.matched(point.temperature), 9),
        seeds=len(members),
        values={score: _mean(points, score) for score in point.values},
        published=dict(published.values) if published else {},
        where=published.where if published else "",
    )


def _against_nll(
    row: TextRow,
    mine: Sequence[TextPoint],
    nll: Mapping[tuple[str, str], tuple[TextRow, Sequence[TextPoint]]],
    key: str,
) -> TextRow:
    """The row with its gains over NLL at the matched temperature, where the table has NLL trained and asked in the same way."""
    wanted = Decoding.parse(f"t={row.matched_temperature:g}").spec
    if row.loss in ("", "nll") or row.decoding != Decoding.parse(f"t={row.temperature:g}").spec:
        return row
    if (key, wanted) not in nll:
        return row
    other, theirs = nll[key, wanted]
    return replace(row, versus=f"{other.name}, {wanted}", gains=gains(mine, theirs))


def lossless_key(experiment: TextExperiment) -> str:
    """What experiments share that differ in the loss alone, besides seeds, decoding, names and what decides memory and not the result.

    The scale of the weights goes with the loss: NLL's are all 1, so that it has none.
    """
    model = experiment.model
    if isinstance(model, FineTune):
        plain = {"loss": "nll", "weight_scale": "raw", "seed": 0, "micro_batch": model.batch_size, "evaluate": None}
        unsaid = {"packing": False, "gradient_checkpointing": False}
        trained: Any = decisive(to_json(model)) | plain | unsaid
    else:
        trained = model
    shell = replace(experiment, name="", model="", decoding=("t=1",), seed=0, published=(), not_in_paper={})
    return content_hash(trained, shell)


def setting_key(experiment: TextExperiment) -> str:
    """What experiments share that are seeds of one setting: everything but the seeds."""
    model = experiment.model
    unseeded = model if isinstance(model, str) else replace(model, seed=0)
    return content_hash(replace(experiment, model=unseeded, seed=0))


def _mean(points: Sequence[TextPoint], score: str) -> Mean:
    found = [point.values[score] for point in points]
    value, half_width = interval([one.value for one in found])
    ends = [(one.low, one.high) for one in found if one.low is not None and one.high is not None]
    if len(ends) < len(found):
        return Mean(value=value, half_width=half_width)
    low, high = (interval([end[i] for end in ends])[0] for i in (0, 1))
    return Mean(value=value, half_width=half_width, low=low, high=high)


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
        "# seeds, low and high in pairs over problems; published_*: what the paper prints, as a share of 1\n"
    )
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def as_text(rows: Sequence[TextRow]) -> str:
    """The table for a terminal, without the intervals over problems; the paper's number stands in brackets. Then the gains over NLL."""
    names = list(dict.fromkeys(score for row in rows for score in row.values))
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


def _shown(row: TextRow, name: str) -> str:
    if name not in row.values:
        return ""
    mean, digits = row.values[name], ".2%" if name.startswith("sparsity") else ".3f"
    spread = f" ± {mean.half_width:{digits}}" if mean.half_width is not None else ""
    printed = f" [{row.published[name]:{digits}}]" if name in row.published else ""
    return f"{mean.value:{digits}}{spread}{printed}"
