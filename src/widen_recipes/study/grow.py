"""Growth: training on answers that a model found and a check verified, on one GPU.

On Countdown (`study:grow`) and on E2E NLG (`study:e2e_grow`). `mathqa.py` has MathQA-Python, `grow_small.py` has smaller ones for two CPU
cores, `growth_study.py` says what is compared. Besides the kinds of weights, one method trains on the plain rows with a loss for recall.
Where growth also samples prompts that the data does not have, one leaves out their answers.
"""

from __future__ import annotations

from functools import partial

from widen.run.experiment import Experiment
from widen.run.finetune import Source
from widen.run.grow import Growth

from .countdown import NOT_IN_PAPER as COUNTDOWN
from .countdown import experiment_of as countdown_experiment
from .countdown import nll_start
from .e2e import NOT_IN_PAPER as E2E
from .e2e import experiment_of as e2e_experiment
from .e2e import source_of
from .growth_study import KNOWN, GrowthStudy
from .methods import nll_model, path_of

NOT_IN_PAPER = {
    "growth": "two rounds; 12 samples of 12,000 training problems; min-p 0.05, then t = 1.5",
    "steps": "after the start: 300 batches of 256",
    "NLL, lowest held-out NLL": "of four evaluations of NLL on the way, the model with the lowest held-out NLL",
    "soups": "the average of a grown model's weights and those of NLL with the same seed",
}
E2E_NOT_IN_PAPER = {
    **E2E,
    **NOT_IN_PAPER,
    "task": "E2E NLG: one right human text for each of 513 meanings to train on, 48 others for validation, 128 others to test on",
    "epochs": "NLL for 8 at most, until the held-out NLL has not fallen for 2",
    "lr": "2e-4, then 1e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16; batches of 32",
    "growth": "one round; 16 samples of 513 training meanings and of 1,000 new ones; min-p 0.05, then t = 1.5",
    "steps": "after the start: 150 batches of 32",
}


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


def e2e_growth() -> GrowthStudy:
    """Growth on E2E NLG."""
    one, valid = source_of("one"), source_of("valid")
    start = nll_model(path_of("WIDEN_SMOLLM2"), one, valid, batch_size=32, max_length=192, lr=2e-4)
    return GrowthStudy(
        start=start,
        steps=150,
        all_answers=None,
        growth=Growth(
            model=start.model,
            prompts=source_of("meanings"),
            data=one,
            rounds=1,
            num=16,
            max_tokens=96,
            dtype="bfloat16",
        ),
        experiment=partial(e2e_experiment, not_in_paper=E2E_NOT_IN_PAPER),
        folder=f"{path_of('WIDEN_GROWN')}/e2e",
        kinds=("plain", "uniform"),
        others=(KNOWN,),
        soups=(("plain", 0.5),),
    )


def grow() -> list[Experiment]:
    """Training on verified answers, weighted in three ways, against NLL for as many steps, soups, and NLL on all right answers."""
    return countdown_growth().experiments()


def e2e_grow() -> list[Experiment]:
    """The same on E2E NLG, from one right human text per meaning."""
    return e2e_growth().experiments()
