"""MathQA-Python, category "gain": growth, losses and averages, on templates that no training question has.

Half of the training templates have programs (`templates.py`). NLL trains on these programs. Growth samples the questions of the other half,
whose answers are known: a program is right if it prints the answer. Every method goes on from the NLL model for as many steps.
The ceiling trains on a program for every training question. `growth_study.py` says what is compared.

`mathqa` has a code model, on a GPU. `mathqa_small_grow` and `mathqa_small_losses` have SmolLM2 and shorter programs, for two CPU cores.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.grow import Growth
from widen.run.score_settings import ProgramScore

from .growth_study import ALL_ANSWERS, BASE, EMA, GrowthStudy
from .methods import LOSSES, nll_model, path_of
from .templates import SHORT

DATA, SMALL = "WIDEN_TEMPLATES", "WIDEN_TEMPLATES_SMALL"
"""The folders of both forms of the data."""
_COUNTED = "names, unused variables, `print` and the order of terms do not count"
NOT_IN_PAPER = {
    "data": "category gain, split by the words of the questions: 200 test questions, each of a template that training does not have; every "
    "other training template has programs, the others have answers alone",
    "model": "Qwen2.5-Coder-0.5B-Instruct in bf16, asked without a chat template; the paper has Olmo-1B",
    "epochs": "NLL for 3",
    "lr": "5e-5, then 3e-5, falling to a tenth along a cosine after 10 steps of warm-up; batches of 64",
    "steps": "after the start: 60 batches of 64",
    "growth": "one round; 8 samples of every training question that has no program; min-p 0.05, then t = 1.5",
    "max_tokens": "192; a few of the reference programs are longer",
    "coverage": f"distinct right programs among 12: {_COUNTED}",
    "averages": "a soup: of a grown model and NLL with the same seed, or of NLL and the model before fine-tuning; EMA: the running average "
    "of NLL's own weights, decay 0.95",
    "seeds": "three; they change the order of the last phase and the samples; the NLL start and the growth are one for all",
}
SMALL_NOT_IN_PAPER = {
    "seeds": NOT_IN_PAPER["seeds"],
    "growth": "one round; 8 samples of every training question that has no program; min-p 0.1 at t = 1, chosen after a look at "
    "these questions: min-p 0.05 then t = 1.5, as in the other studies, found fewer new programs",
    "data": f"category gain, programs of at most {SHORT} lines, split by the words of the questions: 180 test questions, each of a "
    "template that training does not have; every other training template has programs, the others have answers alone",
    "model": "SmolLM2-135M-Instruct in bf16, asked without a chat template; the paper has Olmo-1B",
    "epochs": "NLL for 3; its best epoch on held-out data",
    "lr": "2e-4, then 1e-4, falling to a tenth along a cosine after 10 steps of warm-up; batches of 16",
    "steps": "after the start: 40 batches of 16",
    "max_tokens": "112; all reference programs are shorter",
    "coverage": f"distinct right programs among 8: {_COUNTED}",
    "soups": "the average of a grown model's weights and those of NLL with the same seed",
    "dtype": "models are scored in bfloat16",
}


def mathqa_growth() -> GrowthStudy:
    """What is compared. Half of the training questions have a program; the answers to all are known."""
    train, dev = source_of("train"), source_of("dev")
    model, size = path_of("WIDEN_QWEN"), {"batch_size": 64, "micro_batch": 32, "max_length": 512}
    return GrowthStudy(
        start=nll_model(model, train, dev, lr=5e-5, epochs=3, patience=None, group_by_length=True, **size),
        steps=60,
        lr=3e-5,
        all_answers=source_of("all"),
        growth=growth_of(model, max_tokens=192),
        experiment=partial(
            experiment_of,
            num_prompts=200,
            num_samples=12,
            decoding=("t=0.5", "t=1", "min_p=0.1 then t=1.5", "top_p=0.9 then t=1.2"),
            max_tokens=192,
            score=ProgramScore(ks=(1, 4, 12), wall_seconds=5.0, cpu_seconds=5, distinct=True),
            not_in_paper=NOT_IN_PAPER,
        ),
        folder=f"{path_of('WIDEN_GROWN')}/mathqa",
        others=(ALL_ANSWERS,),
        losses=LOSSES,
        soups=(("plain", 0.5), (BASE, 0.1), (EMA, 1.0)),
    )


def mathqa_small_growth() -> GrowthStudy:
    """Growth alone, with SmolLM2 and shorter programs."""
    train, dev = source_of("train", SMALL), source_of("dev", SMALL)
    model = path_of("WIDEN_SMOLLM2")
    return GrowthStudy(
        start=nll_model(model, train, dev, lr=2e-4, epochs=3, batch_size=16, max_length=256, group_by_length=True),
        steps=40,
        all_answers=source_of("all", SMALL),
        growth=growth_of(model, SMALL, max_tokens=112, decoding="min_p=0.1"),
        experiment=partial(
            experiment_of,
            data=SMALL,
            num_samples=8,
            decoding=("t=0.5", "min_p=0.1"),
            dtype="bfloat16",
            max_tokens=112,
            score=ProgramScore(ks=(1, 8), wall_seconds=5.0, cpu_seconds=5, distinct=True),
            not_in_paper=SMALL_NOT_IN_PAPER,
        ),
        folder=f"{path_of('WIDEN_GROWN')}/mathqa_small",
        others=(ALL_ANSWERS,),
        soups=(("plain", 0.5),),
    )


def mathqa() -> list[Experiment]:
    """Growth, losses and averages from one NLL model, on unseen templates of MathQA-Python; pass@1 to pass@12."""
    return mathqa_growth().experiments()


def mathqa_small_grow() -> list[Experiment]:
    """Growth on MathQA-Python, for two CPU cores: verified programs for questions that had none, against NLL for as many steps."""
    return mathqa_small_growth().experiments()


def mathqa_small_losses() -> list[Experiment]:
    """Losses instead of growth, from the same NLL model, for two CPU cores."""
    about = {name: text for name, text in SMALL_NOT_IN_PAPER.items() if name not in ("growth", "soups")}
    return [replace(one, not_in_paper=about) for one in mathqa_small_growth().of_losses().experiments()]


def source_of(name: str, data: str = DATA) -> Source:
    """A file of `templates`."""
    return Source(task="mathqa_python", path=f"{path_of(data)}/{name}.jsonl")


def growth_of(model: str, data: str = DATA, **more: Any) -> Growth:
    """One round on the questions without programs."""
    return Growth(
        model=model,
        prompts=source_of("problems", data),
        data=source_of("train", data),
        rounds=1,
        num=8,
        wall_seconds=5.0,
        dtype="bfloat16",
        **more,
    )


def experiment_of(name: str, model: FineTune | str, seed: int, *, data: str = DATA, **about: Any) -> Experiment:
    """Programs for the test questions under every decoding, the same for every method."""
    return Experiment(name=name, model=model, prompts=source_of("test", data), seed=seed, **about)
