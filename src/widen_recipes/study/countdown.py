"""Countdown: combine four numbers into a target. Every right answer is listed, so that precision and coverage are exact.

A problem has five or more right answers. Training, validation and test problems have different numbers. NLL trains until the held-out NLL
stops falling. From its best epoch, each method goes on for one epoch over the same data.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from widen.data.countdown import Countdown
from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import ExactScore

from .methods import decodings, every_method, nll_model, path_of, two_families, write_files

DATA = Countdown(numbers=4, high=13, max_target=60, fewest=5, num_test=256, num_samples=48_000)
SMALL = Countdown(numbers=4, high=9, max_target=30, fewest=8, num_test=48, num_samples=3000)
"""For two CPU cores."""
NUM_VALID, SMALL_VALID = 64, 16
"""Validation problems, each with numbers of its own."""
SMALL_VARIABLE = "WIDEN_COUNTDOWN_SMALL"
NOT_IN_PAPER = {
    "task": "Countdown with four numbers from 1 to 13 and a target up to 60; five answers or more per problem",
    "num_samples": "n = 100 samples per problem for the coverage",
    "epochs": "NLL for 8 at most, until the held-out NLL of 64 other sets of numbers has not fallen for 2; then 1 of each loss. NLL 2x "
    "goes on for 2, and NLL on new answers for 1 over as many answers that were not seen",
    "lr": "3e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16",
    "seeds": "three; they change the order of the last phase; the NLL start is one for all",
}

SMALL_NOT_IN_PAPER = {
    "task": "Countdown with four numbers from 1 to 9 and a target up to 30; eight answers or more per problem; 3,000 rows to train on, 48 "
    "problems to test on",
    "num_samples": NOT_IN_PAPER["num_samples"],
    "epochs": "NLL for 3 at most, until the held-out NLL of 16 other sets of numbers has not fallen for 1",
    "lr": "3e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16; batches of 32",
}
SMALL_LOSSES = {
    **SMALL_NOT_IN_PAPER,
    "epochs": SMALL_NOT_IN_PAPER["epochs"] + "; then 1 of each loss, and 2 of NLL 2x",
    "lr": "3e-4, then 1e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16; batches of 32",
    "seeds": NOT_IN_PAPER["seeds"],
}


def countdown() -> list[Experiment]:
    """Every method from one NLL model, on Countdown, under the same decodings."""
    new = Source(path=f"{path_of('WIDEN_COUNTDOWN')}/new.jsonl")
    return every_method(nll_start(), experiment_of, epochs=1, lr=1e-4, others={"NLL on new answers": {"train": new}})


def countdown_small() -> list[Experiment]:
    """An NLL model on a smaller Countdown, for two CPU cores: what decodings bring over temperature alone."""
    score = partial(experiment_of, variable=SMALL_VARIABLE, not_in_paper=SMALL_NOT_IN_PAPER)
    return [score(name, small_start(), 0, decoding=specs) for name, specs in two_families().items()]


def countdown_small_losses() -> list[Experiment]:
    """Every loss from one NLL model, for one epoch more, on the smaller Countdown."""
    score = partial(experiment_of, variable=SMALL_VARIABLE, not_in_paper=SMALL_LOSSES)
    return every_method(small_start(), score, epochs=1, lr=1e-4)


def small_start() -> FineTune:
    """The NLL model on the smaller Countdown."""
    train, valid = (Source(path=f"{path_of(SMALL_VARIABLE)}/{name}.jsonl") for name in ("train", "valid"))
    model = path_of("WIDEN_SMOLLM2")
    return nll_model(model, train, valid, batch_size=32, max_length=64, lr=3e-4, epochs=3, patience=1)


def nll_start() -> FineTune:
    """The NLL model that every method goes on from, at its best epoch."""
    train, valid = (Source(path=f"{path_of('WIDEN_COUNTDOWN')}/{name}.jsonl") for name in ("train", "valid"))
    return nll_model(path_of("WIDEN_SMOLLM2"), train, valid, batch_size=256, max_length=64, lr=3e-4)


def experiment_of(
    name: str,
    model: FineTune | str,
    seed: int,
    *,
    variable: str = "WIDEN_COUNTDOWN",
    decoding: tuple[str, ...] | None = None,
    dtype: str = "float32",
    not_in_paper: dict[str, str] = NOT_IN_PAPER,
) -> Experiment:
    """The exact scores of one model on the test problems, under all decodings unless some are given."""
    return Experiment(
        name=name,
        model=model,
        prompts=Source(task="answers", path=f"{path_of(variable)}/test.jsonl"),
        decoding=decoding or decodings(),
        dtype=dtype,
        seed=seed,
        score=ExactScore(num_samples=100),
        not_in_paper=not_in_paper,
    )


def write_countdown(folder: str | Path, task: Countdown = DATA, *, num_valid: int = NUM_VALID) -> None:
    """The task as files: training rows of one answer each, as many new ones for the same problems, and test problems with all answers.

    ``problems`` lists the training problems with all their answers, ``all`` every one of these answers as a row, in random order. ``valid``
    has every answer of the validation problems as a row.
    """
    apart = replace(task, num_test=task.num_test + num_valid)  # its first num_test problems are those of `task`
    test, problems = task.test_records(), apart.train_problems()
    tested, every = {one["prompt"] for one in test}, _rows(problems)
    random.Random(task.seed).shuffle(every)  # so that its first rows are a sample of all
    files = {
        "train": apart.train_records(),
        "new": replace(apart, seed=task.seed + 1).train_records(),
        "valid": _rows(one for one in apart.test_records() if one["prompt"] not in tested),
        "test": test,
        "problems": problems,
        "all": every,
    }
    write_files(folder, files)


def _rows(problems: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """One row for every answer of every problem."""
    return [{"prompt": one["prompt"], "completion": answer} for one in problems for answer in one["answers"]]
