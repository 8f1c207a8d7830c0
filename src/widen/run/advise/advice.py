"""Advice: the model and the decoding for a wish, chosen on validation prompts and measured on test prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from widen.disk.inside import inside
from widen.metrics.interval import mean_interval, student
from widen.sample.decoding import Decoding

from ..against_nll import Point, values_by_problem
from ..folder import RunFolder
from ..value import from_json
from .wish import Points, Wish

FILE = "advice.json"
AS_IT_IS = "the model as it is"
PLAIN = Decoding()
"""t = 1 without a filter."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """A number with its 95 % interval over prompts or texts."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    @property
    def signed(self) -> str:
        """As a difference."""
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def value_of(point: Point, metric: str) -> Value:
    """A metric with its interval: that of the record, or else over the prompts."""
    record, values = point[metric], values_by_problem(point, metric)
    low, high = record.low, record.high
    if low is None or high is None:
        low, high = mean_interval(values) if values is not None else (-math.inf, math.inf)
    return Value(value=record.value, low=low, high=high)


def difference(mine: Point, theirs: Point, metric: str) -> Value:
    """``mine`` minus ``theirs``: paired by prompt, or with the intervals of both added in squares if there are no values by prompt."""
    a, b = values_by_problem(mine, metric), values_by_problem(theirs, metric)
    if a is not None and b is not None and len(a) == len(b):
        value, half = student(list(a - b))
    else:
        value = mine[metric].value - theirs[metric].value
        half = math.hypot(*((one.high - one.low) / 2 for one in (value_of(mine, metric), value_of(theirs, metric))))
    half = math.inf if half is None else half
    return Value(value=value, low=value - half, high=value + half)


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """A trained model.

    Args:
      loss: empty for the model as it is.
      share: of the trained weights; the rest is the model as it is (WiSE-FT).
      new: right answers that were found and that it was trained on too; 0 for the data alone.
      folder: of the model with new answers.
      test: the scores of `to_test`.
    """

    loss: str
    steps: int
    share: float = 1.0
    new: int = 0
    folder: str = ""
    validation: Points
    test: Points = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As in the text."""
        name = {"": AS_IT_IS, "nll": "NLL"}.get(self.loss, self.loss)
        if self.new:
            return f"{name} plus {self.new:,} new right answers"
        return name if self.share == 1 else f"the average of {name} ({self.share:g}) and {AS_IT_IS}"

    def tested(self, wish: Wish) -> Point:
        """Scores on the test prompts, under the decoding chosen on validation."""
        return self.test[wish.choose(self.validation).decoding]


def to_test(finalist: Finalist, wish: Wish) -> tuple[Decoding, ...]:
    """The decodings that are scored on the test prompts: the best one, the best temperature alone, and t = 1."""
    any_decoding = wish.choose(finalist.validation).decoding
    alone = wish.choose(finalist.validation, lambda one: one.temperature_alone).decoding
    return tuple({one.name: one for one in (any_decoding, alone, PLAIN)}.values())


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to do, and why.

    Args:
      met: whether a decoding of some model reaches the level of the wish on the validation prompts.
      loss, steps: of the recommended model; the loss is empty for the model as it is.
      share: of its weights; the rest is the model as it is.
      decoding: spec.
      expected: metrics of the wish on the test prompts.
      test_prompts: their number.
      parts: differences on the test prompts: what training, the loss and the decoding bring to the goal, and the lead over NLL at t = 1.
      reasons: sentences.
      train, average, use: the commands to train and to average, and the decoding for other software; filled in by
        `widen.run.advise.search`.
      new: right answers that were found and that the recommended model was trained on too.
      grow: the command that finds them; or one to try, where a judge can tell and there was no time to grow.
    """

    wish: str
    met: bool
    loss: str
    steps: int
    decoding: str
    expected: dict[str, Value]
    parts: dict[str, Value]
    reasons: tuple[str, ...]
    train: str = ""
    folder: str = ""
    grow: str = ""
    use: dict[str, str] = field(default_factory=dict)
    test_prompts: int = 0
    share: float = 1.0
    average: str = ""
    new: int = 0

    @property
    def headline(self) -> str:
        """The recommendation in one sentence."""
        if not self.met:
            return f"The wish cannot be met: {self.wish}."
        start = {"": "Do not train", "nll": "Keep NLL"}.get(self.loss, f"Train with {self.loss}")
        if self.share < 1:
            start += f", average it with the model as it is ({self.share:g} and {1 - self.share:g} of the weights)"
        if self.new:
            start += f", train it on {self.new:,} new right answers too"
        return f"{start}, decode with {Decoding.parse(self.decoding).in_words}."

    @property
    def outlook(self) -> str:
        """The expected scores in one sentence."""
        expected = ", ".join(f"{name} {value}" for name, value in self.expected.items())
        return f"Expected on new prompts: {expected} (95 % interval over the {self.test_prompts:,} test prompts)."

    @property
    def sentences(self) -> list[str]:
        """The recommendation, why, and what it brings."""
        lines = [self.headline, *self.reasons]
        if self.met:
            goal, bound = self.wish.split()[0], self.wish.split()[2]
            lines += [
                self.outlook,
                f"What each part brings to {goal}: {part_words(self.parts) or 'nothing to compare'}.",
            ]
            behind = [
                f"{self.parts[key].signed} {name}"
                for name in (goal, bound)
                if (key := f"{name} over NLL at t=1") in self.parts
            ]
            lines += [f"Against NLL at t = 1: {', '.join(behind)}."] if behind else []
        return lines

    @property
    def commands(self) -> list[str]:
        """How to train, grow and use the recommended model, in lines."""
        lines = [f"model: {self.folder}", f"train: {self.train}"] if self.train else []
        lines += [f"average: {self.average}"] if self.average else []
        lines += ["", f"grow: {self.grow}"] if self.grow else []
        for name, text in self.use.items():
            lines += ["", f"{name}:" + ("\n" if "\n" in text else " ") + text]
        return lines


def read_advice(root: str | Path) -> Advice | None:
    """The advice that `widen advise` left in its output folder; None if there is none."""
    path = inside(root, Path(root) / FILE)
    if not path.is_file():
        return None
    return from_json(Advice, RunFolder(root).read(path)["advice"], where="advice")


def advise_from(finalists: Sequence[Finalist], wish: Wish) -> Advice:
    """Choose on validation; keep a simpler model unless the gain over it on the test prompts is outside the noise of the prompts.

    If no decoding reaches the level, the advice names the one that comes closest.

    Args:
      finalists: the model as it is, NLL, their average, NLL with new right answers, and another loss, simplest first.
    """
    able = [one for one in finalists if wish.choose(one.validation).met]
    best = max(able or finalists, key=lambda one: wish.rank(one.validation))
    reasons = []
    for simpler in reversed([one for one in able if finalists.index(one) < finalists.index(best)]):
        gain = difference(best.tested(wish), simpler.tested(wish), wish.goal)
        if gain.low > 0 and not (_misses(best, wish) and not _misses(simpler, wish)):
            continue
        why = "inside the noise" if gain.low <= 0 else f"but its {wish.bound} misses {wish.level:g} on the test prompts"
        text = f"{_capital(best.name)} has {gain.signed} {wish.goal} over {simpler.name}, {why}: keep {simpler.name}."
        reasons.append(text)
        best = simpler
    decoding = wish.choose(best.validation).decoding
    expected = {name: value_of(best.tested(wish), name) for name in (wish.bound, wish.goal)}
    if able:
        reasons += _remarks(finalists, best, wish)
    else:
        found = f"{wish.bound} {expected[wish.bound]} on the test prompts"
        reasons = [
            f"No decoding of any model reaches {wish.bound} >= {wish.level:g}.",
            f"The closest is {best.name} with {decoding.in_words}: {found}.",
            "Lower the level, give more budget, or give data with more right answers.",
        ]
    return Advice(
        wish=str(wish),
        met=bool(able),
        loss=best.loss,
        steps=best.steps,
        share=best.share,
        new=best.new,
        decoding=decoding.spec,
        expected=expected,
        parts=_parts(finalists, best, wish) if able else {},
        reasons=tuple(reasons),
    )


def _misses(one: Finalist, wish: Wish) -> bool:
    """Whether the required metric is below its level on the test prompts, beyond the noise."""
    return value_of(one.tested(wish), wish.bound).high < wish.level


def _parts(finalists: Sequence[Finalist], best: Finalist, wish: Wish) -> dict[str, Value]:
    """Differences of the goal on the test prompts. A part is missing if one of its two sides does not reach the level."""
    able = [one for one in finalists if wish.choose(one.validation).met]
    by_loss = {one.loss: one.tested(wish) for one in able if one.share == 1 and not one.new}
    rivals = [one for one in able if one.loss not in ("", "nll")]
    parts = {}
    alone = wish.choose(best.validation, lambda one: one.temperature_alone)
    if alone.met and alone.decoding != wish.choose(best.validation).decoding:
        parts["decoding"] = difference(best.tested(wish), best.test[alone.decoding], wish.goal)
    if "nll" in by_loss and rivals:
        rival = max(rivals, key=lambda one: wish.rank(one.validation))
        parts["loss"] = difference(rival.tested(wish), by_loss["nll"], wish.goal)
    for one in able:
        if one.share < 1 and one.loss in by_loss:
            parts["average"] = difference(one.tested(wish), by_loss[one.loss], wish.goal)
        if one.new and one.loss in by_loss:
            parts["new answers"] = difference(one.tested(wish), by_loss[one.loss], wish.goal)
    if "nll" in by_loss and "" in by_loss:
        parts["training"] = difference(by_loss["nll"], by_loss[""], wish.goal)
    for one in finalists:
        if one.loss == "nll" and one.share == 1 and not one.new:
            for metric in (wish.goal, wish.bound):
                parts[f"{metric} over NLL at t=1"] = difference(best.tested(wish), one.test[PLAIN], metric)
    return parts


def _remarks(finalists: Sequence[Finalist], best: Finalist, wish: Wish) -> list[str]:
    said = []
    if best.loss:
        said.append(
            "Every model was trained with one seed: repeat with another --seed before you rely on a small gain."
        )
    alone = wish.choose(best.validation, lambda one: one.temperature_alone)
    if not alone.met:
        most = f"at most {best.validation[alone.decoding][wish.bound].value:.3f} ({alone.decoding.in_words})"
        said.append(f"No temperature alone reaches {wish.bound} >= {wish.level:g}: {most}.")
    if never := [one.name for one in finalists if not wish.choose(one.validation).met]:
        *others, last = never
        names = _capital(f"{', '.join(others)} and {last}" if others else last)
        said.append(f"{names} never reach{'es' * (len(never) == 1)} {wish.bound} >= {wish.level:g}.")
    found = value_of(best.tested(wish), wish.bound)
    if found.value < wish.level:
        sure = "" if found.high < wish.level else ", within the noise"
        said.append(f"Warning: on the test prompts {wish.bound} is {found.value:.3f}, below {wish.level:g}{sure}.")
    return said


def _capital(text: str) -> str:
    """A sentence may begin with the spec of a loss, which stays as it is."""
    return text[0].upper() + text[1:] if text.startswith("the ") else text


def part_words(parts: Mapping[str, Value]) -> str:
    """What each part brought, such as ``decoding +0.036 [+0.020, +0.052], loss +0.004 [-0.010, +0.018] (inside the noise)``."""
    shown = {name: value for name, value in parts.items() if " over " not in name}
    noise = {name: " (inside the noise)" if value.low <= 0 <= value.high else "" for name, value in shown.items()}
    return ", ".join(f"{name} {value.signed}{noise[name]}" for name, value in shown.items())
