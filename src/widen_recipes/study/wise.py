"""WiSE-FT on two CPU cores: the average of a model before and after fine-tuning, against the fine-tuned model, under the same decodings.

    python -m widen_recipes.study wise RUNS          # trains the models of both tasks and averages them
    widen run study:countdown_wise --out RUNS        # scores them
    widen run study:coverageqa_wise --out RUNS

WiSE-FT is from Wortsman et al., "Robust fine-tuning of zero-shot models" (CVPR 2022).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from widen.disk.atomic_folder import write_folder
from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source, fine_tune
from widen.run.finetune.average import average_models
from widen.run.progress_lines import progress_lines

from .countdown import SMALL_NOT_IN_PAPER as COUNTDOWN
from .countdown import SMALL_VARIABLE, small_start
from .countdown import experiment_of as countdown_experiment
from .coverageqa import FOLDS
from .coverageqa import NOT_IN_PAPER as COVERAGEQA
from .coverageqa import experiment_of as coverageqa_experiment
from .methods import nll_model, path_of

SHARES = (0.9, 0.75)
"""Shares of the fine-tuned model. The rest is the model before fine-tuning."""
WISE = {
    "WiSE-FT": "the average of the weights before and after fine-tuning; the number is the share of the fine-tuned model"
}
COVERAGEQA_WISE = {
    **{name: COVERAGEQA[name] for name in ("task", "num_samples", "folds")},
    "epochs": "NLL for 3 at most, until the held-out NLL of 5 other questions has not fallen for 1; one row per answer, its first alias",
    "lr": "2e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16; batches of 32",
    **WISE,
}


def countdown_wise() -> list[Experiment]:
    """The fine-tuned model of `study:countdown_small`, and its averages with the model before fine-tuning."""
    score = partial(countdown_experiment, variable=SMALL_VARIABLE, not_in_paper={**COUNTDOWN, **WISE})
    return [score(name, model, 0) for name, model in _models(small_start()).items()]


def coverageqa_wise() -> list[Experiment]:
    """SmolLM2, trained on CoverageQA for a short time, and its averages with the model before fine-tuning."""
    score = partial(coverageqa_experiment, not_in_paper=COVERAGEQA_WISE)
    return [
        score(name, model, 0, fold=fold) for fold in FOLDS for name, model in _models(coverageqa_start(fold)).items()
    ]


def coverageqa_start(fold: int) -> FineTune:
    """NLL on the questions of the other fold."""
    folder = path_of("WIDEN_COVERAGEQA")
    train, valid = (Source(path=f"{folder}/{name}-{fold}.jsonl") for name in ("train", "valid"))
    model = path_of("WIDEN_SMOLLM2")
    return nll_model(model, train, valid, batch_size=32, max_length=256, lr=2e-4, epochs=3, patience=1)


def make_wise(root: str) -> None:
    """Train the models and average them. What is there is not made again."""
    for start in (small_start(), *map(coverageqa_start, FOLDS)):
        trained = fine_tune(start, root, progress=progress_lines(), say=print)
        for share in SHARES:
            if not (path := Path(_average(start, share))).exists():
                models, weights = [start.model, str(trained.checkpoint)], [1 - share, share]
                write_folder(path, partial(average_models, models, weights))


def _models(start: FineTune) -> dict[str, FineTune | str]:
    return {"NLL": start} | {f"WiSE-FT {share:g}": _average(start, share) for share in SHARES}


def _average(start: FineTune, share: float) -> str:
    return f"{path_of('WIDEN_AVERAGES')}/{share:g}-{start.folder_name}"
