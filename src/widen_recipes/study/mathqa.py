"""MathQA-Python, category "gain": growth, losses and averages of a code model, on templates that no training question has.

Half of the training templates have programs (`templates.py`). NLL trains on these programs. Growth also samples the questions of the other
half, whose answers are known: a program is right if it prints the answer. Every method goes on from the NLL model for as many steps.
The ceiling trains on a human program for every training question. `growth_study.py` says what is compared.
"""

from __future__ import annotations

from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.grow import Growth
from widen.run.score_settings import ProgramScore

from .growth_study import ALL_ANSWERS, BASE, EMA, GrowthStudy
from .methods import METHODS, nll_model, path_of

MADE_BY = {"mathqa": "python -m widen_recipes.study grow mathqa {out}"}
"""The command that makes the averages of the recipe."""
DECODINGS = ("t=0.5", "t=1", "min_p=0.1 then t=1.5", "top_p=0.9 then t=1.2")
"""The same for every method. All of them are sampled and all programs run, so they are few."""
NUM = 12
"""Samples per question."""
NOT_IN_PAPER = {
    "data": "category gain, split by the words of the questions: 200 test questions, each of a template that training does not have; every "
    "other training template has programs, the others have answers alone",
    "model": "Qwen2.5-Coder-0.5B-Instruct in bf16, asked without a chat template; the paper has Olmo-1B",
    "epochs": "NLL for 3",
    "lr": "5e-5, then 3e-5, falling to a tenth along a cosine after 10 steps of warm-up; batches of 64",
    "steps": "after the start: 60 batches of 64",
    "growth": "one round; 8 samples of every training question; min-p 0.05, then t = 1.5",
    "max_tokens": "192; a few of the reference programs are longer",
    "coverage": f"distinct right programs among {NUM}: names, unused variables, `print` and the order of terms do not count",
    "averages": "a soup: of a grown model and NLL with the same seed, or of NLL and the model before fine-tuning; EMA: the running average "
    "of NLL's own weights, decay 0.95",
    "seeds": "three; they change the order of the last phase and the samples; the NLL start and the growth are one for all",
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
        growth=Growth(
            model=model,
            prompts=source_of("problems"),
            data=train,
            rounds=1,
            num=8,
            max_tokens=192,
            wall_seconds=5.0,
            dtype="bfloat16",
        ),
        experiment=experiment_of,
        folder=f"{path_of('WIDEN_GROWN')}/mathqa",
        others=(ALL_ANSWERS,),
        losses={name: loss for name, loss in METHODS.items() if name != "NLL"},
        soups=(("plain", 0.5), (BASE, 0.1), (EMA, 1.0)),
    )


def mathqa() -> list[Experiment]:
    """Growth, losses and averages from one NLL model, on unseen templates of MathQA-Python; pass@1 to pass@12."""
    return mathqa_growth().experiments()


def source_of(name: str) -> Source:
    """A file of `templates`."""
    return Source(task="mathqa_python", path=f"{path_of('WIDEN_TEMPLATES')}/{name}.jsonl")


def experiment_of(name: str, model: FineTune | str, seed: int) -> Experiment:
    """Programs for each of 200 test questions under every decoding."""
    return Experiment(
        name=name,
        model=model,
        prompts=source_of("test"),
        num_prompts=200,
        num_samples=NUM,
        decoding=DECODINGS,
        max_tokens=192,
        seed=seed,
        score=ProgramScore(ks=(1, 4, NUM), wall_seconds=5.0, cpu_seconds=5, distinct=True),
        not_in_paper=NOT_IN_PAPER,
    )
