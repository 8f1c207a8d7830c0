"""The best setting for a target: every model's best decoding at each required score, chosen by `widen.run.best_setting`.

With several seeds each seed is scored under the decoding that was chosen on the others. With one seed the choice is in-sample, and the
page says so. Gains are split in this order: NLL moves from its best temperature to its best decoding, then the data changes, then the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from widen.run.best_setting import BestSetting, best_setting
from widen.run.record import Record
from widen.sample.decoding import Decoding

from .frontier_plot import meaning
from .lines import ModelLine, baseline, kinds_of, on_other_data
from .parts import Panel, Section

OTHER = {"recall": "precision", "precision": "recall"}
"""What is maximised, and what is required."""
STEPS, USUAL = 12, (50, 80, 90, 95, 98)
"""Levels of the slider: about so many over the measured range, and these percentages."""


NO_GAIN = "No NLL model that was trained alike reaches this target at temperature alone: there is no gain to show."
IN_SAMPLE = (
    "One seed: the setting was chosen on the numbers that it is scored on (in-sample), so the score is optimistic."
)


class Method(NamedTuple):
    """A model with the records to choose from, and its number of settings."""

    line: ModelLine
    records: list[Record]
    settings: int

    def best(self, least: float, among: Callable[[Decoding], bool] | None = None) -> BestSetting | None:
        """The best setting whose required score is at least ``least``."""
        return best_setting(self.records, precision=least, among=among) if self.records else None


class Answer(NamedTuple):
    """What the page shows for one target: sentences, and the rows of the table, best model first."""

    sentences: list[str]
    rows: list[list[str]]


def best_settings(lines: Sequence[ModelLine]) -> list[Section]:
    """The panel that answers targets; no section if nothing is scored."""
    kinds = kinds_of(lines)
    if not kinds:
        return []
    text = [
        "Choose a target: the page shows each model's best decoding that reaches it, among all that were measured. "
        "The gains say what the decoding, the data and the loss brought."
    ]
    panel = Panel(
        name="best_setting", data={"kinds": [_kind(lines, kind) for kind in kinds]}, scripts=["best_setting.js"]
    )
    return [Section(title="Best setting for a target", short="Best setting", text=text, parts=[panel])]


def verdict(lines: Sequence[ModelLine]) -> list[Section]:
    """The answer for the first kind of score, at the usual target: the most recall with precision at least 0.9, or near it."""
    text = ["No model has a score with precision and recall, so there is nothing to compare yet."]
    for kind in kinds_of(lines)[:1]:
        mine = [line for line in lines if line.of_kind(kind)]
        levels = _levels(mine, kind, "recall")
        usual = max((level for level in levels if level <= 90), default=levels[0])
        first, *others = target(methods(mine, kind), least=usual / 100).sentences
        text = [f"{first.rstrip('.')} ({kind}).", *others, meaning(mine[0].of_kind(kind)[0])]
    return [Section(title="Verdict", text=text)]


def _kind(lines: Sequence[ModelLine], kind: str) -> dict[str, Any]:
    """All answers of one kind of score: {target: {levels, all, shared}}; equal answers are stored once."""
    mine = [line for line in lines if line.of_kind(kind)]
    grids = {line.name: {point.decoding for point in line.of_kind(kind)} for line in mine}
    common = set.intersection(*grids.values())
    alike = all(grid == common for grid in grids.values())
    answers: dict[str, Answer] = {}

    def numbers(want: str, levels: Sequence[int], among: Collection[Decoding] | None) -> list[int]:
        models = methods(mine, kind, want=want, among=among)
        found = [target(models, want=want, least=level / 100) for level in levels]
        answers.update({repr(answer): answer for answer in found})
        return [list(answers).index(repr(answer)) for answer in found]

    targets = {}
    for want in OTHER:
        levels = _levels(mine, kind, want)
        targets[want] = {"levels": levels, "all": numbers(want, levels, None)}
        if not alike:
            targets[want]["shared"] = numbers(want, levels, common)
    counts = ", ".join(f"{name}: {len(grid)}" for name, grid in list(grids.items())[:8])
    return {
        "kind": kind,
        "grids": "" if alike else counts + (", …" if len(grids) > 8 else ""),
        "targets": targets,
        "answers": [answer._asdict() for answer in answers.values()],
    }


def _levels(lines: Sequence[ModelLine], kind: str, want: str) -> list[int]:
    """Required scores in percent, from the lowest to the highest that was measured."""
    values = [getattr(point, OTHER[want]).value for line in lines for point in line.of_kind(kind)]
    low, high = math.floor(100 * max(0.0, min(values))), math.floor(100 * min(1.0, max(values)))
    step = max(1, math.ceil((high - low) / STEPS))
    return sorted({*range(low, high + 1, step), high, *(level for level in USUAL if low <= level <= high)})


def methods(
    lines: Sequence[ModelLine], kind: str, *, want: str = "recall", among: Collection[Decoding] | None = None
) -> list[Method]:
    """Every model with its records of one kind of score. To maximise precision, the two scores change their names."""
    names = ("precision", "recall") if want == "recall" else ("recall", "precision")
    found = []
    for line in lines:
        points = [point for point in line.of_kind(kind) if among is None or point.decoding in among]
        seeds = {seed for point in points for seed in point.seeds}
        points = [point for point in points if point.seeds.keys() == seeds]
        records = [
            Record(task=kind, model="", loss=line.loss, decoding=point.decoding, seed=seed, metric=name, value=value)
            for point in points
            for seed, values in point.seeds.items()
            for name, value in zip(names, values, strict=True)
        ]
        found.append(Method(line, records, len(points)))
    return found


def target(found: Sequence[Method], *, want: str = "recall", least: float) -> Answer:
    """The answer for the most ``want`` with the other score at least ``least``."""
    lines = [method.line for method in found]
    best = {method.line.name: method.best(least) for method in found}
    alone = {m.line.name: m.best(least, lambda one: one.temperature_alone) for m in found if m.line.loss == "nll"}
    first = next((line for line in lines if line.loss == "nll"), None)
    rows, gains = [], dict[str, str]()
    ranked = sorted(found, key=lambda method: -one.recall.value if (one := best[method.line.name]) else 1.0)
    for line, _, settings in ranked:
        nll = line if line.loss == "nll" else baseline(line, lines)
        base = first if nll and first and on_other_data(nll, first) else nll
        chosen = best[line.name]
        by = ["–"] * 3
        if (
            chosen
            and nll
            and base
            and (mine := best[nll.name])
            and (warm := best[base.name])
            and (cold := alone[base.name])
        ):
            steps = (warm, cold), (mine, warm) if nll is not base else None, (chosen, mine) if nll is not line else None
            by = [_gain(*step) if step else "–" for step in steps]
            at = f"{base.name} at temperature alone (`{cold.decoding.in_words}`, {want} {_mean(cold.recall)})"
            more = [
                f"{lever} {gain}" for lever, gain in zip(("the data", "the loss"), by[1:], strict=True) if gain != "–"
            ]
            brought = ", ".join([f"the decoding brings {by[0]}", *(more or ["nothing else brings more"])])
            gains[line.name] = f"Over {at}: {brought}."
        cells = ["–"] * 3
        if chosen:
            scores = [_mean(chosen.precision), _mean(chosen.recall)]
            cells = [chosen.decoding.in_words, *(scores if want == "recall" else scores[::-1])]
        seeds = "–" if not chosen else str(chosen.recall.count) if chosen.recall.count > 1 else "1 (in-sample)"
        rows.append([line.name, *cells, *by, str(settings), seeds])
    return Answer(_sentences([(method, best[method.line.name]) for method in ranked], gains, want, least), rows)


def _sentences(
    ranked: Sequence[tuple[Method, BestSetting | None]], gains: Mapping[str, str], want: str, least: float
) -> list[str]:
    (line, _, settings), best = ranked[0]
    given = OTHER[want]
    if best is None:
        return [f"No model reaches {given} {least:.2f} at any measured decoding."]
    if best.recall.value == 0:
        return [f"No winner: every model has {want} 0 where {given} is at least {least:.2f}."]
    said = [
        f"Most {want} with {given} at least {least:.2f}: {line.name} (`{line.loss}`) at `{best.decoding.in_words}`, "
        f"{want} {_mean(best.recall)}, {given} {_mean(best.precision)}, best of {settings} settings.",
        gains.get(line.name, NO_GAIN),
    ]
    rival = next((other for _, other in ranked[1:] if other), None)
    half = _half(best, rival) if rival else None
    if rival and half is not None and best.recall.value - rival.recall.value <= half:
        said.append("The lead over the next model is smaller than its interval: no clear winner.")
    seeds = best.recall.count
    held_out = f"Held-out over {seeds} seeds: each seed is scored at the decoding chosen on the others."
    return [*said, held_out if seeds > 1 else IN_SAMPLE]


def _half(first: BestSetting, second: BestSetting) -> float | None:
    halves = (first.recall.half_width, second.recall.half_width)
    return None if None in halves else math.hypot(*(half or 0.0 for half in halves))


def _gain(one: BestSetting, other: BestSetting) -> str:
    value, half = one.recall.value - other.recall.value, _half(one, other)
    return f"{value:+.3f}".replace("-", "−") + ("" if half is None or one == other else f"\u00a0±\u00a0{half:.3f}")


def _mean(mean: Any) -> str:
    return f"{mean.value:.3f}" + ("" if mean.half_width is None else f"\u00a0±\u00a0{mean.half_width:.3f}")
