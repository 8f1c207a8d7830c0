"""A real model on a real task and one GPU: SmolLM2-135M on MathQA-Python, category "gain" (after table ``tab:pr-wp-mathqa``).

WIDEN_SMOLLM2 names the model, WIDEN_MATHQA_GAIN a folder with gain_train.jsonl and gain_test.jsonl: question, program, answer. Use the same
paths on all machines: they are part of the run folders' names. Each loss continues from one NLL model for as long again. c-Div(alpha) at t
has the population optimum of NLL at alpha t; NLL is sampled there, so a difference at matched temperatures comes from training.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from widen.run.experiment import Experiment, Published
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import ProgramScore

from .study.methods import path_of
from .tiny_texts import first_seeds

SEEDS = range(3)
ALPHA = 1.4
TEMPERATURES = (0.4, 0.7, 1.0)
"""Of c-Div; NLL and TruncR are sampled at alpha times these."""
LOSSES = {
    "NLL": "nll",
    f"c-Div {ALPHA:g}": f"cdiv:alpha={ALPHA},cap=100",
    "TruncR 0.1": "truncr:drop=0.1,window=4096,score=sum",
}
PUBLISHED = Published(
    where="tab:pr-wp-mathqa",
    claim="Olmo-1B on all of MathQA-Python at t = 1: NLL .420/.366, TruncR .298/.433, c-Div 1.4 .301/.461 (precision/recall)",
)
NOT_IN_PAPER = {
    "model": "SmolLM2-135M in place of Olmo-1B: it trains in seconds",
    "data": "the category gain of MathQA-Python, 3,655 problems; the first 128 of its test set",
    "epochs": "2 of NLL, then 2 of each loss; the paper trains for 3 and starts its losses after 1 of NLL",
    "lr": "1e-4 falling to a tenth along a cosine, after 10 steps of warm-up: 1e-6 hardly moves a model of this size",
    "batch_size": "64 in place of 8",
    "cap": "c-Div's weights end at 100: a token the model holds for impossible may not decide a step",
    "window": "TruncR's quantile is over the last 4,096 sequences, more than an epoch",
    "temperatures": "c-Div at .4, .7, 1; NLL and TruncR at 1.4 times these, where NLL has c-Div's population optimum",
    "max_tokens": "160; six of the 128 reference programs are longer, so that pass@100 can hardly exceed .95",
    "seeds": "three; they change the order of the second phase and the samples; the NLL start is one for all",
}


def gain() -> list[Experiment]:
    """Three losses from one NLL model, three seeds, matched temperatures; pass@1, 10, 100 of 128 problems."""
    return experiments(path_of("WIDEN_SMOLLM2"), path_of("WIDEN_MATHQA_GAIN"))


def experiments(model: str, data: str) -> list[Experiment]:
    """The same with a model (folder or hub name) and a data folder (``gain_train.jsonl``, ``gain_test.jsonl``) of your choice."""
    train = Source(task="mathqa_python", path=f"{data}/gain_train.jsonl")
    steps: dict[str, Any] = {
        "batch_size": 64,
        "micro_batch": 64,
        "epochs": 2,
        "warmup_steps": 10,
        "schedule": "cosine_with_min_lr",
    }
    start = FineTune(model=model, train=train, loss="nll", max_length=512, lr=1e-4, **steps)
    return [
        Experiment(
            name=name,
            model=replace(start, loss=loss, after=start, seed=seed),
            prompts=Source(task="mathqa_python", path=f"{data}/gain_test.jsonl"),
            num_prompts=128,
            num_samples=100,
            decoding=tuple(f"t={t if loss.startswith('cdiv') else round(ALPHA * t, 6):g}" for t in TEMPERATURES),
            max_tokens=160,
            seed=seed,
            score=ProgramScore(ks=(1, 10, 100), wall_seconds=5.0, cpu_seconds=5),
            published=(PUBLISHED,),
            not_in_paper=NOT_IN_PAPER,
        )
        for name, loss in LOSSES.items()
        for seed in SEEDS
    ]


tiny = first_seeds
