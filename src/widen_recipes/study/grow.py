"""Growth: training on answers that a model found and a check verified.

On Countdown (`study:grow`; `study:countdown_small_grow` for two CPU cores), on E2E NLG (`study:e2e_grow`), and on MathQA-Python
(`study:mathqa_grow`), where a sandbox runs the programs.

From one NLL model, all methods go on for as many steps: NLL on the same data, NLL on the data and the answers that two rounds of growth
found, with three kinds of weights, and, as the ceiling, NLL on all right answers that are known. A second control is NLL on the same data
with the lowest held-out NLL. The kinds share one growth, so that only the weights differ. Two more methods train on the plain rows: one
with a loss for recall, and, where growth also samples prompts that the data does not have, one without their answers. Soups average a
grown model with the NLL model of the same seed. On two CPU cores there are also two other losses on the same data, and an average of NLL
and the model before fine-tuning (WiSE-FT).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.grow import WEIGHTS, Growth

from .countdown import NOT_IN_PAPER as COUNTDOWN
from .countdown import SMALL_NOT_IN_PAPER, SMALL_VARIABLE, nll_start, small_start
from .countdown import experiment_of as countdown_experiment
from .e2e import NOT_IN_PAPER as E2E
from .e2e import experiment_of as e2e_experiment
from .e2e import source_of
from .mathqa import NOT_IN_PAPER as MATHQA
from .mathqa import experiment_of as mathqa_experiment
from .mathqa import nll_start as mathqa_start
from .mathqa import source_of as mathqa_source
from .methods import METHODS, SEEDS, few_decodings, nll_model, path_of

LOWEST, ALL_ANSWERS = "NLL, lowest held-out NLL", "NLL on all answers"
LOSS, KNOWN = "TruncR 0.1", "known prompts"
"""Grown models that differ from ``plain`` in one thing: the loss, or that answers to new prompts are left out."""
GROWN = (*WEIGHTS, LOSS, KNOWN)
BASE = "base"
"""The model before fine-tuning, in an average."""
SOUPS = (("plain", 0.25), ("plain", 0.5), ("uniform", 0.5))
"""Kind of weights of the grown model, or `BASE`, and its share; the rest is NLL."""
NOT_IN_PAPER = {
    "growth": "two rounds; Countdown: 12 samples of 12,000 training problems, E2E: 16 of 513 training meanings and of 1,000 new ones, "
    "MathQA: 8 of every question; min-p 0.05, then t = 1.5",
    "steps": "after the start: 300 batches, of 256 for Countdown, of 32 for E2E, of 64 for MathQA",
    "NLL, lowest held-out NLL": "of four evaluations of NLL on the way, the model with the lowest held-out NLL",
    "soups": "the average of a grown model's weights and those of NLL with the same seed",
}
E2E_NOT_IN_PAPER = {
    **E2E,
    **NOT_IN_PAPER,
    "task": "E2E NLG: one right human text for each of 513 meanings to train on, 48 others for validation, 128 others to test on",
    "epochs": "NLL for 8 at most, until the held-out NLL has not fallen for 2",
    "lr": "2e-4, then 1e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16; batches of 32",
}
SMALL_GROWTH = {
    **SMALL_NOT_IN_PAPER,
    "growth": "one round; 12 samples of 1,500 training problems, 48 tokens at most; min-p 0.05, then t = 1.5",
    "steps": "after the start: 100 batches of 32; 1e-4, falling to a tenth along a cosine after 10 steps of warm-up",
    "soups": NOT_IN_PAPER["soups"] + "; base: the model before fine-tuning (WiSE-FT)",
    "seeds": "three; they change the order of the last phase; the NLL start and the growth are one for all",
    "dtype": "models are scored in bfloat16",
}


@dataclass(frozen=True, kw_only=True)
class GrowthStudy:
    """The comparison on one task.

    Args:
      start: the NLL model that is sampled and that every method goes on from.
      steps: of every training after the start.
      all_answers: every right answer that is known; None if the data has one for each problem.
      growth: of the start; `make_grown` fills in its model and training.
      experiment: scores a model, given a name and a seed.
      folder: of what is grown.
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
    others: tuple[str, ...] = (LOSS, LOWEST, ALL_ANSWERS)
    losses: Mapping[str, str] = field(default_factory=dict)
    soups: tuple[tuple[str, float], ...] = SOUPS
    steps: int = 300
    seeds: Sequence[int] = SEEDS

    @property
    def last(self) -> FineTune:
        """The training after the start."""
        last = replace(self.start, after=self.start, evaluate=None, patience=None, save_dtype="bfloat16")
        return replace(last, max_steps=self.steps, lr=1e-4)

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
        return replace(last, train=self.rows(name)) if name in GROWN else last

    def rows(self, kind: str) -> Source:
        """The rows to train on, with one kind of weights."""
        return Source(path=f"{self.folder}/{kind}.jsonl")

    def trained(self) -> list[Experiment]:
        """The start and every fine-tuned model; NLL first, which the others are compared with."""
        labels = {name: name for name in ("NLL", *self.losses)}
        labels |= {name: f"grown, {name}" if name in GROWN else name for name in (*WEIGHTS, *self.others)}
        found = [
            self.experiment(label, self.model(name, seed), seed)
            for seed in self.seeds
            for name, label in labels.items()
        ]
        return [*found, self.experiment("NLL start", self.start, 0)]

    def soup(self, kind: str, share: float, seed: int) -> str:
        """The folder of a soup."""
        return f"{self.folder}/soup-{kind}-{share:g}-seed{seed}"

    def experiments(self) -> list[Experiment]:
        """All models, with the soups."""
        soups = [
            self.experiment(f"soup of NLL and {share:g} {kind}", self.soup(kind, share, seed), seed)
            for seed in self.seeds
            for kind, share in self.soups
        ]
        return [*self.trained(), *soups]


def countdown_growth() -> GrowthStudy:
    """Growth on Countdown."""
    data, start = path_of("WIDEN_COUNTDOWN"), nll_start()
    problems = Source(task="answers", path=f"{data}/problems.jsonl", limit=12_000)
    test = Source(task="answers", path=f"{data}/test.jsonl")
    return GrowthStudy(
        start=start,
        all_answers=Source(path=f"{data}/all.jsonl", limit=300 * start.batch_size),  # each row once; there are more
        growth=Growth(
            model=start.model,
            prompts=problems,
            data=start.train,
            held_out=test,
            num=12,
            held_out_num=16,
            max_tokens=48,
            dtype="bfloat16",
        ),
        experiment=partial(countdown_experiment, not_in_paper={**COUNTDOWN, **NOT_IN_PAPER}),
        folder=f"{path_of('WIDEN_GROWN')}/countdown",
    )


def small_growth() -> GrowthStudy:
    """Growth on the smaller Countdown, and two losses on its data, for two CPU cores."""
    data, start = path_of(SMALL_VARIABLE), small_start()
    test = Source(task="answers", path=f"{data}/test.jsonl")
    return GrowthStudy(
        start=start,
        steps=100,
        all_answers=Source(path=f"{data}/all.jsonl", limit=100 * start.batch_size),
        growth=Growth(
            model=start.model,
            prompts=Source(task="answers", path=f"{data}/problems.jsonl", limit=1500),
            data=start.train,
            held_out=test,
            rounds=1,
            num=12,
            held_out_num=16,
            max_tokens=48,
            dtype="bfloat16",
        ),
        experiment=partial(
            countdown_experiment,
            variable=SMALL_VARIABLE,
            decoding=few_decodings(),
            dtype="bfloat16",
            not_in_paper=SMALL_GROWTH,
        ),
        folder=f"{path_of('WIDEN_GROWN')}/countdown_small",
        others=(ALL_ANSWERS,),
        losses={"TruncR 0.1": "truncr:drop=0.1,score=sum", "c-Div 1.4": METHODS["c-Div 1.4"]},
        soups=(("plain", 0.5), ("uniform", 0.5), (BASE, 0.1)),
    )


def e2e_growth() -> GrowthStudy:
    """Growth on E2E NLG."""
    one, valid = source_of("one"), source_of("valid")
    start = nll_model(path_of("WIDEN_SMOLLM2"), one, valid, batch_size=32, max_length=192, lr=2e-4)
    return GrowthStudy(
        start=start,
        all_answers=source_of("all"),
        growth=Growth(
            model=start.model,
            prompts=source_of("meanings"),
            data=one,
            held_out=valid,
            num=16,
            held_out_num=16,
            max_tokens=96,
            dtype="bfloat16",
        ),
        experiment=partial(e2e_experiment, not_in_paper=E2E_NOT_IN_PAPER),
        folder=f"{path_of('WIDEN_GROWN')}/e2e",
        others=(LOSS, KNOWN, LOWEST, ALL_ANSWERS),
    )


def mathqa_growth() -> GrowthStudy:
    """Growth on MathQA-Python: each training question has one program, and others may be right too."""
    start, dev = mathqa_start(), mathqa_source("dev")
    train = start.train
    return GrowthStudy(
        start=start,
        all_answers=None,
        growth=Growth(
            model=start.model,
            prompts=train,
            held_out=dev,
            num=8,
            held_out_num=8,
            max_tokens=192,
            wall_seconds=5.0,
            dtype="bfloat16",
        ),
        experiment=partial(mathqa_experiment, not_in_paper={**MATHQA, **NOT_IN_PAPER}),
        folder=f"{path_of('WIDEN_GROWN')}/mathqa",
        others=(LOSS, LOWEST),
    )


STUDIES = {
    "countdown": countdown_growth,
    "countdown_small": small_growth,
    "e2e": e2e_growth,
    "mathqa": mathqa_growth,
}


def grow() -> list[Experiment]:
    """Training on verified answers, weighted in three ways, against NLL for as many steps, soups, and NLL on all right answers."""
    return countdown_growth().experiments()


def countdown_small_grow() -> list[Experiment]:
    """The same on the smaller Countdown, for two CPU cores, with two losses and WiSE-FT beside it."""
    return small_growth().experiments()


def e2e_grow() -> list[Experiment]:
    """The same on E2E NLG, from one right human text per meaning."""
    return e2e_growth().experiments()


def mathqa_grow() -> list[Experiment]:
    """The same on MathQA-Python, on templates that training does not have; without a ceiling, which is not known."""
    return mathqa_growth().experiments()
