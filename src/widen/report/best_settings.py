"""The best setting for a target: every model's best decoding at each required score, chosen by `widen.run.best_setting`.

With several seeds each seed is scored under the decoding that was chosen on the others. With one seed the choice is in-sample, and the
page says so. Gains are split in this order: NLL moves from its best temperature to its best decoding, then the loss changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from widen.run.best_setting import BestSetting, best_setting
from widen.run.record import Record
from widen.sample.decoding import Decoding

from .lines import ModelLine, baseline
from .parts import Panel, Section

OTHER = {"recall": "precision", "precision": "recall"}
"""What is maximised, and what is required."""
STEPS, USUAL = 12, (50, 80, 90, 95, 98)
"""Levels of the slider: about so many over the measured range, and these percentages."""


class Model(NamedTuple):
    """One model at one target: its best decoding, for NLL its best temperature (None: target not reached), and its number of settings."""

    line: ModelLine
    best: BestSetting | None
    alone: BestSetting | None
    settings: int


class Answer(NamedTuple):
    """What the page shows for one target: sentences, and the rows of the table, best model first."""

    sentences: list[str]
    rows: list[list[str]]


def best_settings(lines: Sequence[ModelLine], kinds: Sequence[str]) -> list[Section]:
    """The panel that answers targets; no section if nothing is scored."""
    if not kinds:
        return []
    text = [
        "Choose a target: the page shows each model's best decoding that reaches it, among all that were measured. "
        "The gains say what the decoding brought and what the loss brought."
    ]
    panel = Panel(
        name="best_setting", data={"kinds": [_kind(lines, kind) for kind in kinds]}, scripts=["best_setting.js"]
    )
    return [Section(title="Best setting for a target", short="Best setting", text=text, parts=[panel])]


def verdict(lines: Sequence[ModelLine], kinds: Sequence[str]) -> list[str]:
    """The answer for the first kind of score, at the usual target: the most recall with precision at least 0.9, or near it."""
    if not kinds:
        return ["No model has a score with precision and recall, so there is nothing to compare yet."]
    mine = [line for line in lines if line.of_kind(kinds[0])]
    levels = _levels(mine, kinds[0], "recall")
    usual = max((level for level in levels if level <= 90), default=levels[0])
    answer = target(mine, kinds[0], want="recall", least=usual / 100)
    return [f"{answer.sentences[0].rstrip('.')} ({kinds[0]}).", *answer.sentences[1:]]


def _kind(lines: Sequence[ModelLine], kind: str) -> dict[str, Any]:
    """All answers of one kind of score: {target: {levels, all, shared}}; equal answers are stored once."""
    mine = [line for line in lines if line.of_kind(kind)]
    grids = {line.name: {point.decoding for point in line.of_kind(kind)} for line in mine}
    common = set.intersection(*grids.values())
    alike = all(grid == common for grid in grids.values())
    answers: dict[str, Answer] = {}

    def numbers(want: str, levels: Sequence[int], among: Collection[Decoding] | None) -> list[int]:
        found = [target(mine, kind, want=want, least=level / 100, among=among) for level in levels]
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


def target(
    lines: Sequence[ModelLine],
    kind: str,
    *,
    want: str = "recall",
    least: float,
    among: Collection[Decoding] | None = None,
) -> Answer:
    """The answer for the most ``want`` with the other score at least ``least``; ``among`` limits the decodings."""
    models = [_model(line, kind, want, least, among) for line in lines]
    ranked = sorted(models, key=lambda model: -_reached(model))
    by_name = {model.line.name: model for model in models}
    rows, gains = [], {}
    for model in ranked:
        nll = model.line if model.line.loss == "nll" else baseline(model.line, lines)
        from_decoding = from_loss = ""
        if nll is not None and model.best and (base := by_name[nll.name]).alone and base.best:
            from_decoding = _gain(base.best, base.alone)
            from_loss = "" if base is model else _gain(model.best, base.best)
            gains[model.line.name] = (base, from_decoding, from_loss)
        best, precision, recall = model.best, "–", "–"
        if best:
            scores = [_mean(best.precision), _mean(best.recall)]
            precision, recall = scores if want == "recall" else scores[::-1]
        cells = [model.line.name, best.decoding.spec if best else "–", precision, recall]
        cells += [from_decoding or "–", from_loss or "–", str(model.settings), _seeds(model) if best else "–"]
        rows.append(cells)
    return Answer(_sentences(ranked, gains, want, least), rows)


def _model(line: ModelLine, kind: str, want: str, least: float, among: Collection[Decoding] | None) -> Model:
    points = [point for point in line.of_kind(kind) if among is None or point.decoding in among]
    seeds = {seed for point in points for seed in point.seeds}
    scored = [point for point in points if point.seeds.keys() == seeds]
    names = ("precision", "recall") if want == "recall" else ("recall", "precision")
    records = [
        Record(task=kind, model="", loss=line.loss, decoding=point.decoding, seed=seed, metric=name, value=value)
        for point in scored
        for seed, values in point.seeds.items()
        for name, value in zip(names, values, strict=True)
    ]

    def chosen(allowed: Callable[[Decoding], bool] | None) -> BestSetting | None:
        return best_setting(records, precision=least, among=allowed) if records else None

    alone = chosen(lambda one: one.temperature_alone) if line.loss == "nll" else None
    return Model(line, chosen(None), alone, len(scored))


def _reached(model: Model) -> float:
    return model.best.recall.value if model.best else -1.0


def _sentences(ranked: Sequence[Model], gains: dict[str, tuple[Model, str, str]], want: str, least: float) -> list[str]:
    given = OTHER[want]
    top = ranked[0]
    if top.best is None:
        return [f"No model reaches {given} {least:.2f} at any measured decoding."]
    if top.best.recall.value == 0:
        return [f"No winner: every model has {want} 0 where {given} is at least {least:.2f}."]
    said = [
        f"Most {want} with {given} at least {least:.2f}: {top.line.name} (`{top.line.loss}`) at `{top.best.decoding.spec}`, "
        f"{want} {_mean(top.best.recall)}, {given} {_mean(top.best.precision)}, best of {top.settings} settings."
    ]
    if top.line.name in gains:
        base, from_decoding, from_loss = gains[top.line.name]
        assert base.alone is not None
        start = (
            f"{base.line.name} at temperature alone (`{base.alone.decoding.spec}`, {want} {_mean(base.alone.recall)})"
        )
        loss = f"the loss {from_loss}" if from_loss else "no other loss reaches more"
        said.append(f"Over {start}: the decoding brings {from_decoding}, {loss}.")
    else:
        said.append(
            "No NLL model that was trained alike reaches this target at temperature alone: there is no gain to show."
        )
    rival = next((model.best for model in ranked[1:] if model.best), None)
    if rival and not _clear(top.best, rival):
        said.append("The lead over the next model is smaller than its interval: no clear winner.")
    said.append(
        f"Held-out over {top.best.recall.count} seeds: each seed is scored at the decoding chosen on the others."
        if top.best.recall.count > 1
        else "One seed: the setting was chosen on the numbers that it is scored on (in-sample), so the score is optimistic."
    )
    return said


def _clear(first: BestSetting, second: BestSetting) -> bool:
    half = _half(first, second)
    return half is None or first.recall.value - second.recall.value > half


def _half(first: BestSetting, second: BestSetting) -> float | None:
    halves = (first.recall.half_width, second.recall.half_width)
    return None if None in halves else math.hypot(*(half or 0.0 for half in halves))


def _gain(one: BestSetting, other: BestSetting) -> str:
    value, half = one.recall.value - other.recall.value, _half(one, other)
    same = one is other or one == other
    return f"{value:+.3f}".replace("-", "−") + ("" if half is None or same else f"\u00a0±\u00a0{half:.3f}")


def _mean(mean: Any) -> str:
    return f"{mean.value:.3f}" + ("" if mean.half_width is None else f"\u00a0±\u00a0{mean.half_width:.3f}")


def _seeds(model: Model) -> str:
    assert model.best is not None
    return str(model.best.recall.count) if model.best.recall.count > 1 else "1 (in-sample)"
