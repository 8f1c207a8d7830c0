"""Countdown: several right answers per problem, all listed, on the paper's small Llama. Not in the paper.

The integer task has one problem with 9,801 right answers. Here 200 test problems, not seen in training, have between two and some dozens
each. With ``skew=1`` some answers are rare in the training data, so a model must cover more than its data shows.
"""

from __future__ import annotations

from dataclasses import replace

from widen.data.countdown import Countdown
from widen.models.tiny_llama import LlamaShape
from widen.run.experiment import Experiment
from widen.run.score_settings import ExactScore
from widen.train.settings import AdamW, Configuration, Schedule, Train

from .mulmod import WARM_UP, shrunk
from .paper_texts import temperatures

SEEDS = range(3)
TEMPERATURES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 2.0)
LOSSES = {
    "NLL": "nll",
    "TruncR 0.25": f"{WARM_UP}truncr:drop=0.25",
    "c-Div 1.25": f"{WARM_UP}cdiv:alpha=1.25",
    "c-Div 1.5": f"{WARM_UP}cdiv:alpha=1.5",
}
NOT_IN_PAPER = {
    "task": "Countdown with four numbers from 1 to 9; the paper has no task with several right answers per prompt that can be listed",
    "num_samples": "n = 64 samples per problem for the expected recall",
    "skew": "1: the i-th answer of a problem has a weight of 1/i in training",
    "model": "8 layers of 64 dimensions: more than the integer task needs",
    "training": "gradients shortened to norm 1, as the integer task needs for c-Div",
}


def losses() -> list[Experiment]:
    """Four losses over temperature; NLL also at 1.25 t and 1.5 t, where it has the population optimum of c-Div."""
    train = Train(
        steps=15_000,
        batch_size=512,
        optimizer=AdamW(lr=1e-3, max_grad_norm=1.0),
        schedule=Schedule(decay="linear", warmup_steps=200),
    )
    matched = sorted({round(alpha * t, 6) for alpha in (1.0, 1.25, 1.5) for t in TEMPERATURES})
    data = Countdown(num_samples=200_000, skew=1.0)
    shape = LlamaShape(vocab=data.vocab, layers=8, dim=64, heads=4, hidden=256, init_std=0.05)
    return [
        Experiment(
            name=name,
            model=Configuration(data=replace(data, seed=seed), model=shape, loss=loss, train=train, seed=seed),
            decoding=temperatures(matched if loss == "nll" else TEMPERATURES),
            score=ExactScore(num_samples=64),
            not_in_paper=NOT_IN_PAPER,
        )
        for name, loss in LOSSES.items()
        for seed in SEEDS
    ]


def tiny(recipe: list[Experiment]) -> list[Experiment]:
    """Small form: three numbers up to 5, a small model, a few steps, one seed."""
    decoding, data = temperatures((0.5, 1.0, 1.25)), {"numbers": 3, "high": 5, "num_test": 8, "num_samples": 128}
    return [shrunk(run, decoding=decoding, data=data, num_samples=20) for run in recipe if run.model_seed == 0]
