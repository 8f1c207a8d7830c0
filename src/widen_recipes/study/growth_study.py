"""What a comparison of growth holds: one NLL start, and methods that all go on from it for as many steps.

NLL goes on with the same data. The other methods train on the data and the answers that growth found, with some kinds of weights. The kinds
share one growth, so that only the weights differ. The ceiling trains on all right answers that are known. A second control is NLL on the
same data with the lowest held-out NLL. Soups average a grown model, or the model before fine-tuning, with the NLL model of the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.grow import WEIGHTS, Growth

from .methods import LOSSES, METHODS, SEEDS

LOWEST, ALL_ANSWERS = "NLL, lowest held-out NLL", "NLL on all answers"
LOSS, KNOWN = "TruncR 0.1", "known prompts"
"""Grown models that differ from ``plain`` in one thing: the loss, or that answers to new prompts are left out."""
GROWN = (*WEIGHTS, LOSS, KNOWN)
BASE, EMA = "base", "EMA"
"""In an average: the model before fine-tuning, and the running average of NLL's weights."""
SOUPS = (("plain", 0.25), ("plain", 0.5), ("uniform", 0.5))
"""Kind of weights of the grown model, `BASE` or `EMA`, and its share; the rest is NLL."""


@dataclass(frozen=True, kw_only=True)
class GrowthStudy:
    """The comparison on one task.

    Args:
      start: the NLL model that is sampled and that every method goes on from.
      steps, lr: of every training after the start.
      all_answers: every right answer that is known; None if the data has one for each problem.
      growth: of the start; `make_grown` fills in its model and training.
      experiment: scores a model, given a name and a seed.
      folder: of what is grown.
      kinds: of weights that are compared.
      others: methods besides NLL and the kinds of weights.
      losses: other losses on the same data as NLL, by name.
      soups: averages with NLL; see `SOUPS`.
      seeds: of every method.
    """

    start: FineTune
    all_answers: Source | None
    growth: Growth
    experiment: Callable[[str, FineTune | str, int], Experiment]
    folder: str
    kinds: tuple[str, ...] = WEIGHTS
    others: tuple[str, ...] = (LOSS, LOWEST, ALL_ANSWERS)
    losses: Mapping[str, str] = field(default_factory=dict)
    soups: tuple[tuple[str, float], ...] = SOUPS
    steps: int = 300
    lr: float = 1e-4
    seeds: Sequence[int] = SEEDS

    def of_losses(self, *, others: tuple[str, ...] = ()) -> GrowthStudy:
        """Every loss instead of growth, from the same NLL start and for as many steps."""
        return replace(self, kinds=(), others=others, soups=(), losses=LOSSES)

    @property
    def last(self) -> FineTune:
        """The training after the start."""
        last = replace(self.start, after=self.start, evaluate=None, patience=None, save_dtype="bfloat16")
        return replace(last, max_steps=self.steps, lr=self.lr)

    def model(self, name: str, seed: int) -> FineTune:
        """NLL, another loss, one of the two controls, or a kind of weights."""
        last = replace(self.last, seed=seed)
        if name in self.losses:
            return replace(last, loss=self.losses[name])
        if name == LOWEST:
            return replace(last, evaluate=self.start.evaluate, eval_steps=max(1, self.steps // 4), patience=4)
        if name == ALL_ANSWERS and self.all_answers is not None:
            return replace(last, train=self.all_answers)
        if name == LOSS:
            return replace(last, train=self.rows("plain"), loss=METHODS[LOSS])
        if name in GROWN:
            return replace(last, train=self.rows(name))
        return replace(last, ema=0.95) if EMA in dict(self.soups) else last

    def rows(self, kind: str) -> Source:
        """The rows to train on, with one kind of weights."""
        return Source(path=f"{self.folder}/{kind}.jsonl")

    def soup(self, kind: str, share: float, seed: int) -> str:
        """The folder of a soup."""
        return f"{self.folder}/soup-{kind}-{share:g}-seed{seed}"

    def averaged(self) -> list[FineTune]:
        """The models that the averages are made of."""
        kinds = {"NLL": None} | {kind: None for kind, _ in self.soups if kind not in (BASE, EMA)}
        return [self.model(kind, seed) for seed in self.seeds for kind in kinds] if self.soups else []

    def experiments(self) -> list[Experiment]:
        """All models: NLL first, which the others are compared with, and other losses last."""
        soups = [
            self.experiment(
                "NLL, EMA" if kind == EMA else f"soup of NLL and {share:g} {kind}", self.soup(kind, share, seed), seed
            )
            for seed in self.seeds
            for kind, share in self.soups
        ]
        start = self.experiment("NLL start", self.start, 0)
        return [*self._trained("NLL", *self.kinds, *self.others), start, *soups, *self._trained(*self.losses)]

    def _trained(self, *names: str) -> list[Experiment]:
        labels = {name: f"grown, {name}" if name in GROWN and name not in self.losses else name for name in names}
        return [
            self.experiment(label, self.model(name, seed), seed)
            for seed in self.seeds
            for name, label in labels.items()
        ]
