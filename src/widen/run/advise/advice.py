"""Advice: the model and the decoding for a wish, chosen on validation prompts and measured on test prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from widen.sample.decoding import Decoding

from .differences import Value, difference, value_of
from .wish import Point, Points, Wish

AS_IT_IS = "the model as it is"
PLAIN = Decoding()
"""t = 1 without a filter."""


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """A model of the last comparison; ``loss`` is empty for the model as it is. ``test`` holds the scores of `to_test`."""

    loss: str
    steps: int
    validation: Points
    test: Points = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As in the text."""
        return {"": AS_IT_IS, "nll": "NLL"}.get(self.loss, self.loss)


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
      decoding: spec.
      expected: metrics of the wish on the test prompts.
      parts: differences on the test prompts: what training, the loss and the decoding bring to the goal, and the lead over NLL at t = 1.
      reasons: sentences.
      train, use: the command to train, and the decoding for other software; filled in by `widen.run.advise.search`.
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
    use: dict[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The recommendation in one sentence."""
        words = Decoding.parse(self.decoding).in_words
        if not self.met:
            return f"The wish cannot be met: {self.wish}."
        start = {"": "Do not train", "nll": "Keep NLL"}.get(self.loss, f"Train with {self.loss}")
        return f"{start}, decode with {words}."


def advise_from(finalists: Sequence[Finalist], wish: Wish) -> Advice:
    """Choose on validation; keep a simpler model unless the gain over it on the test prompts is outside the noise of the prompts.

    Args:
      finalists: the model as it is, NLL, and other losses, simplest first.
    """
    able = [one for one in finalists if wish.choose(one.validation).met]
    if not able:
        return _unmet(finalists, wish)
    best = max(able, key=lambda one: wish.rank(one.validation))
    reasons = []
    for simpler in reversed([one for one in able if finalists.index(one) < finalists.index(best)]):
        gain = difference(_chosen(best, wish), _chosen(simpler, wish), wish.goal)
        if gain.low > 0 and not (_misses(best, wish) and not _misses(simpler, wish)):
            continue
        why = "inside the noise" if gain.low <= 0 else f"but its {wish.bound} misses {wish.level:g} on the test prompts"
        reasons.append(
            f"{_capital(best.name)} has {gain.signed} {wish.goal} over {simpler.name}, {why}: keep {simpler.name}."
        )
        best = simpler
    return Advice(
        wish=str(wish),
        met=True,
        loss=best.loss,
        steps=best.steps,
        decoding=wish.choose(best.validation).decoding.spec,
        expected={name: value_of(_chosen(best, wish), name) for name in (wish.bound, wish.goal)},
        parts=_parts(finalists, best, wish),
        reasons=(*reasons, *_remarks(finalists, best, wish)),
    )


def _chosen(one: Finalist, wish: Wish) -> Point:
    """Scores on the test prompts, under the decoding chosen on validation."""
    return one.test[wish.choose(one.validation).decoding]


def _misses(one: Finalist, wish: Wish) -> bool:
    """Whether the required metric is below its level on the test prompts, beyond the noise."""
    return value_of(_chosen(one, wish), wish.bound).high < wish.level


def _parts(finalists: Sequence[Finalist], best: Finalist, wish: Wish) -> dict[str, Value]:
    """Differences of the goal on the test prompts. A part is missing if one of its two sides does not reach the level."""
    by_loss = {one.loss: one for one in finalists if wish.choose(one.validation).met}
    rivals = [one for loss, one in by_loss.items() if loss not in ("", "nll")]
    parts = {}
    alone = wish.choose(best.validation, lambda one: one.temperature_alone)
    if alone.met and alone.decoding != wish.choose(best.validation).decoding:
        parts["decoding"] = difference(_chosen(best, wish), best.test[alone.decoding], wish.goal)
    if "nll" in by_loss and rivals:
        rival = max(rivals, key=lambda one: wish.rank(one.validation))
        parts["loss"] = difference(_chosen(rival, wish), _chosen(by_loss["nll"], wish), wish.goal)
    if "nll" in by_loss and "" in by_loss:
        parts["training"] = difference(_chosen(by_loss["nll"], wish), _chosen(by_loss[""], wish), wish.goal)
    for one in finalists:
        if one.loss == "nll":
            for metric in (wish.goal, wish.bound):
                parts[f"{metric} over NLL at t=1"] = difference(_chosen(best, wish), one.test[PLAIN], metric)
    return parts


def _remarks(finalists: Sequence[Finalist], best: Finalist, wish: Wish) -> list[str]:
    said = [
        "Every model was trained with one seed: repeat with another --seed before you rely on a small gain."
    ] * bool(best.loss)
    alone = wish.choose(best.validation, lambda one: one.temperature_alone)
    if not alone.met:
        most = best.validation[alone.decoding][wish.bound].value
        said.append(
            f"No temperature alone reaches {wish.bound} >= {wish.level:g}: at most {most:.3f} ({alone.decoding.in_words})."
        )
    if never := [one.name for one in finalists if not wish.choose(one.validation).met]:
        said.append(
            f"{_capital(' and '.join(never))} never reach{'es' * (len(never) == 1)} {wish.bound} >= {wish.level:g}."
        )
    found = value_of(_chosen(best, wish), wish.bound)
    if found.value < wish.level:
        sure = "" if found.high < wish.level else ", within the noise"
        said.append(f"Warning: on the test prompts {wish.bound} is {found.value:.3f}, below {wish.level:g}{sure}.")
    return said


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _unmet(finalists: Sequence[Finalist], wish: Wish) -> Advice:
    """No decoding reaches the level: report the one that comes closest."""
    closest = max(finalists, key=lambda one: wish.rank(one.validation))
    decoding = wish.choose(closest.validation).decoding
    found = value_of(closest.test[decoding], wish.bound)
    text = f"No decoding of any model reaches {wish.bound} >= {wish.level:g}."
    near = f"The closest is {closest.name} with {decoding.in_words}: {wish.bound} {found} on the test prompts."
    return Advice(
        wish=str(wish),
        met=False,
        loss=closest.loss,
        steps=closest.steps,
        decoding=decoding.spec,
        expected={name: value_of(closest.test[decoding], name) for name in (wish.bound, wish.goal)},
        parts={},
        reasons=(text, near, "Lower the level, give more budget, or give data with more right answers."),
    )


def part_words(parts: Mapping[str, Value]) -> str:
    """What each part brought, such as ``decoding +0.036 [+0.020, +0.052], loss +0.004 [-0.010, +0.018] (inside the noise)``."""
    shown = {name: value for name, value in parts.items() if " over " not in name}
    noise = {name: " (inside the noise)" if value.low <= 0 <= value.high else "" for name, value in shown.items()}
    return ", ".join(f"{name} {value.signed}{noise[name]}" for name, value in shown.items())
