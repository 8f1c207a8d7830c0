"""Countdown: combine four numbers into a target. Every right answer is listed, so that precision and coverage are exact.

    python -m widen_recipes.study data/countdown                  writes train, new and test .jsonl, the same on every machine
    export WIDEN_COUNTDOWN=data/countdown
    export WIDEN_SMOLLM2=models/smollm2-135m                      a folder that transformers opens, or HuggingFaceTB/SmolLM2-135M-Instruct
    widen run study:countdown --device cuda --jobs 4 --out runs

A problem has five or more right answers. No test problem has the numbers of a training problem. From one NLL model, each method goes on
for one epoch over the same data, three seeds each. The decoding of a method is chosen on the first half of the test problems and reported
on the second half.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from widen.data.countdown import Countdown
from widen.disk.atomic import write_text
from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import ExactScore

from .methods import METHODS, SEEDS, decodings, path_of

DATA = Countdown(numbers=4, high=13, max_target=60, fewest=5, num_test=400, num_samples=48_000)
NOT_IN_PAPER = {
    "task": "Countdown with four numbers from 1 to 13 and a target up to 60; five answers or more per problem",
    "num_samples": "n = 100 samples per problem for the coverage",
    "epochs": "3 of NLL, then 1 of each loss; NLL 2x goes on for 2, and NLL on new answers for 1 over as many answers that were not seen",
    "lr": "3e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16",
    "seeds": "three; they change the order of the last phase; the NLL start is one for all",
}


def countdown() -> list[Experiment]:
    """Every method from one NLL model, on Countdown, under the same decodings."""
    data, start = path_of("WIDEN_COUNTDOWN"), nll_start()
    last = replace(start, after=start, epochs=1, lr=1e-4)
    models = {name: replace(last, loss=loss) for name, loss in METHODS.items()}
    models["NLL 2x"] = replace(last, epochs=2)
    models["NLL on new answers"] = replace(last, train=Source(path=f"{data}/new.jsonl"))
    return [experiment_of(name, replace(one, seed=seed), seed) for seed in SEEDS for name, one in models.items()]


def nll_start() -> FineTune:
    """The NLL model that every method goes on from."""
    return FineTune(
        model=path_of("WIDEN_SMOLLM2"),
        train=Source(path=f"{path_of('WIDEN_COUNTDOWN')}/train.jsonl"),
        loss="nll",
        max_length=64,
        epochs=3,
        batch_size=256,
        micro_batch=256,
        lr=3e-4,
        schedule="cosine_with_min_lr",
        warmup_steps=10,
    )


def experiment_of(name: str, model: FineTune | str, seed: int) -> Experiment:
    """The exact scores of one model on the test problems, under all decodings."""
    return Experiment(
        name=name,
        model=model,
        prompts=Source(task="answers", path=f"{path_of('WIDEN_COUNTDOWN')}/test.jsonl"),
        decoding=decodings(),
        dtype="float32",
        seed=seed,
        score=ExactScore(num_samples=100),
        not_in_paper=NOT_IN_PAPER,
    )


def write_countdown(folder: str | Path, task: Countdown = DATA) -> None:
    """The task as files: training rows of one answer each, as many new ones for the same problems, and test problems with all answers.

    ``problems`` lists the training problems with all their answers, ``all`` every one of these answers as a row.
    """
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    new = replace(task, seed=task.seed + 1).train_records()
    problems = task.train_problems()
    every = [{"prompt": one["prompt"], "completion": answer} for one in problems for answer in one["answers"]]
    files = {"train": task.train_records(), "new": new, "test": task.test_records(), "problems": problems, "all": every}
    for name, records in files.items():
        write_text(where / f"{name}.jsonl", "".join(json.dumps(record) + "\n" for record in records))
