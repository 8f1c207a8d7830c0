"""Growth for two CPU cores: Countdown and CoverageQA with SmolLM2-135M, fewer rows, fewer steps and fewer decodings.

    python -m widen_recipes.study grow countdown_small RUNS 2         # makes the rows and the soups
    widen run study:countdown_small_grow --jobs 2 --out RUNS          # trains the other models and scores all

`growth_study.py` says what is compared. On Countdown there are also two other losses and an average of NLL and the model before fine-tuning
(WiSE-FT). On CoverageQA, the data has five answers to each training question, and a check knows all of them.
`study:coverageqa_small_losses` compares losses from the same NLL models and needs no growth.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from widen.run.experiment import Experiment
from widen.run.finetune import Source
from widen.run.grow import Growth

from .countdown import SMALL_NOT_IN_PAPER, SMALL_VARIABLE, small_start
from .countdown import experiment_of as countdown_experiment
from .coverageqa import FEW, FOLDS
from .coverageqa import NOT_IN_PAPER as COVERAGEQA
from .coverageqa import experiment_of as coverageqa_experiment
from .grow import NOT_IN_PAPER
from .growth_study import ALL_ANSWERS, BASE, LOWEST, GrowthStudy
from .methods import METHODS, few_decodings, matched_decodings, nll_model, path_of

_SEEDS = "three; they change the order of the last phase; the NLL start and the growth are one for all"
_DTYPE = "models are scored in bfloat16"
_LAST = "1e-4, falling to a tenth along a cosine after 10 steps of warm-up"
COUNTDOWN_SMALL = {
    **SMALL_NOT_IN_PAPER,
    "growth": "one round; 12 samples of 1,500 training problems, 48 tokens at most; min-p 0.05, then t = 1.5",
    "steps": f"after the start: 100 batches of 32; {_LAST}",
    "soups": NOT_IN_PAPER["soups"] + "; base: the model before fine-tuning (WiSE-FT)",
    "seeds": _SEEDS,
    "dtype": _DTYPE,
}
COVERAGEQA_SMALL = {
    **{name: COVERAGEQA[name] for name in ("num_samples", "folds")},
    "task": f"CoverageQA; the data has {FEW} right answers, drawn at random, to each training question; questions are asked without a chat "
    "template, and answered after a line break",
    "epochs": "NLL for 12 at most, until the held-out NLL of 5 other questions has not fallen for 2",
    "lr": "2e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16; batches of 32",
    "growth": "one round; 256 samples of each training question, 24 tokens at most; min-p 0.05, then t = 1.5",
    "steps": f"after the start: 32 batches of 32; {_LAST}",
    "NLL, lowest held-out NLL": NOT_IN_PAPER["NLL, lowest held-out NLL"],
    "soups": NOT_IN_PAPER["soups"],
    "seeds": _SEEDS,
    "dtype": _DTYPE,
}
COVERAGEQA_LOSSES = {name: about for name, about in COVERAGEQA_SMALL.items() if name not in ("growth", "soups")}


def countdown_small_growth() -> GrowthStudy:
    """Growth on the smaller Countdown, and two losses on its data."""
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
            not_in_paper=COUNTDOWN_SMALL,
        ),
        folder=f"{path_of('WIDEN_GROWN')}/countdown_small",
        others=(ALL_ANSWERS,),
        losses={name: METHODS[name] for name in ("TruncR 0.1", "c-Div 1.4")},
        soups=(("plain", 0.5), ("uniform", 0.5), (BASE, 0.1)),
    )


def coverageqa_small_growth(fold: int) -> GrowthStudy:
    """Growth on CoverageQA: answers to the training questions of one fold that the data does not have."""
    data = path_of("WIDEN_COVERAGEQA")
    few, valid, every = (Source(path=f"{data}/{name}-{fold}.jsonl") for name in ("few", "few-valid", "few-all"))
    model = path_of("WIDEN_SMOLLM2")
    start = nll_model(model, few, valid, batch_size=32, max_length=128, epochs=12, lr=2e-4)
    return GrowthStudy(
        start=start,
        steps=32,
        all_answers=every,
        growth=Growth(
            model=start.model,
            prompts=Source(task="answers", path=f"{data}/few-questions-{fold}.jsonl"),
            data=few,
            rounds=1,
            num=256,
            max_tokens=24,
            dtype="bfloat16",
        ),
        experiment=partial(
            coverageqa_experiment,
            fold=fold,
            chat=False,
            decoding=matched_decodings(),
            dtype="bfloat16",
            not_in_paper=COVERAGEQA_SMALL,
        ),
        folder=f"{path_of('WIDEN_GROWN')}/coverageqa_small_{fold}",
        kinds=("plain",),
        others=(LOWEST, ALL_ANSWERS),
        soups=(("plain", 0.5),),
    )


def countdown_small_grow() -> list[Experiment]:
    """Growth on the smaller Countdown, for two CPU cores, with two losses and WiSE-FT beside it."""
    return countdown_small_growth().experiments()


def coverageqa_small_grow() -> list[Experiment]:
    """Growth on CoverageQA, for two CPU cores: five answers per question, and answers that the model found."""
    return [one for fold in FOLDS for one in coverageqa_small_growth(fold).experiments()]


def coverageqa_small_losses() -> list[Experiment]:
    """Losses instead of growth, from the same NLL models on CoverageQA, for two CPU cores."""
    studies = [coverageqa_small_growth(fold).of_losses(others=(LOWEST,)) for fold in FOLDS]
    return [replace(one, not_in_paper=COVERAGEQA_LOSSES) for study in studies for one in study.experiments()]
