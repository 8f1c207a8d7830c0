"""Real models on tasks with many right answers: every method on one joint frontier of loss and decoding. Not in the paper.

    python -m widen_recipes.study data/countdown                  writes train, new and test .jsonl, the same on every machine
    export WIDEN_COUNTDOWN=data/countdown
    export WIDEN_SMOLLM2=models/smollm2-135m                      a folder that transformers opens, or HuggingFaceTB/SmolLM2-135M-Instruct
    widen run study:countdown --device cuda --jobs 4 --out runs

Countdown: combine four numbers into a target; five or more right answers per problem, all of them listed, so that precision and coverage
are exact under every decoding. No test problem has the numbers of a training problem. From one NLL model, each method goes on for one
epoch over the same data, three seeds each. The decoding of a method is chosen on the first half of the test problems and reported on the
second half.

Growth needs data that a model has found before it can be compared (`make_grown`, minutes on a GPU):

    export WIDEN_GROWN=runs/grown
    python -m widen_recipes.study data/countdown runs             trains the NLL start, grows with three kinds of weights, averages soups
    widen run study:grow --device cuda --jobs 4 --out runs
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from widen.data.countdown import Countdown
from widen.disk.atomic import write_text
from widen.disk.atomic_folder import write_folder
from widen.models.average import average_folders
from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source, fine_tune
from widen.run.grow import WEIGHTS, Growth
from widen.run.grow import grow as grow_data
from widen.run.grow.rounds import last_model
from widen.run.score_settings import ExactScore
from widen.sample.grid import decoding_grid

from .tiny_texts import shrink

SEEDS = range(3)
GROW_STEPS, GROW_ROUNDS, GROW_PROBLEMS = 600, 2, 6000
"""Of growth: steps of every training after the start, rounds, and training problems that are sampled."""
DATA = Countdown(numbers=4, high=13, max_target=60, fewest=5, num_test=400, num_samples=48_000)
METHODS = {
    "NLL": "nll",
    "c-Div 1.2": "cdiv:alpha=1.2",
    "c-Div 1.4": "cdiv:alpha=1.4",
    "TruncR 0.1": "truncr:drop=0.1,window=4096,score=sum",
    "TruncR 0.3": "truncr:drop=0.3,window=4096,score=sum",
    "GEM 0.7": "gem:beta=0.7",
    "GEM 0.85": "gem:beta=0.85",
    "TOFU 1": "tofu:gamma=1,beta=0.8",
    "TOFU 3": "tofu:gamma=3,beta=0.8",
    "DCO 16": "dco:n=16",
    "DCO 64": "dco:n=64",
    "focal 1": "focal:gamma=1",
    "focal 2": "focal:gamma=2",
}
"""Two settings of every family; the second of NLL is twice as long."""
NOT_IN_PAPER = {
    "task": "Countdown with four numbers from 1 to 13 and a target up to 60; five answers or more per problem",
    "num_samples": "n = 100 samples per problem for the coverage",
    "epochs": "3 of NLL, then 1 of each loss; NLL 2x goes on for 2, and NLL on new answers for 1 over as many answers that were not seen",
    "lr": "3e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16",
    "seeds": "three; they change the order of the last phase; the NLL start is one for all",
}


def countdown() -> list[Experiment]:
    """Every method from one NLL model, on Countdown, under the same decodings."""
    data, start = _path("WIDEN_COUNTDOWN"), _start()
    last = replace(start, after=start, epochs=1, lr=1e-4)
    models = {name: replace(last, loss=loss) for name, loss in METHODS.items()}
    models["NLL 2x"] = replace(last, epochs=2)
    models["NLL on new answers"] = replace(last, train=Source(path=f"{data}/new.jsonl"))
    return [_experiment(name, replace(one, seed=seed), seed) for seed in SEEDS for name, one in models.items()]


def grow() -> list[Experiment]:
    """Training on verified answers, weighted in three ways, against NLL for as many steps, soups, and NLL on all right answers."""
    data, grown, start = _path("WIDEN_COUNTDOWN"), _path("WIDEN_GROWN"), _start()
    last = replace(start, after=start, max_steps=GROW_STEPS, lr=1e-4)
    models = {"NLL": last, "NLL on all answers": replace(last, train=Source(path=f"{data}/all.jsonl"))}
    for kind in WEIGHTS:
        models[f"grown, {kind}"] = replace(last, train=Source(path=f"{grown}/{kind}/round-{GROW_ROUNDS}/train.jsonl"))
    found = [_experiment(name, replace(one, seed=seed), seed) for seed in SEEDS for name, one in models.items()]
    return [*found, *(_experiment(f"soup of NLL and {kind}", f"{grown}/soup-{kind}", 0) for kind in WEIGHTS)]


def make_grown(data: str, grown: str, root: str, *, device: str = "cuda") -> None:
    """Train the NLL start and its control, grow from the start with each kind of weights, and average each result with the control."""
    start = replace(_start(), train=Source(path=f"{data}/train.jsonl"))
    last = replace(start, after=start, max_steps=GROW_STEPS, lr=1e-4)
    control = fine_tune(last, root, device=device).checkpoint
    names = ("max_length", "batch_size", "micro_batch", "schedule", "warmup_steps", "max_steps", "lr")
    for kind in WEIGHTS:
        growth = Growth(
            model=str(fine_tune(start, root, device=device).path),
            prompts=Source(task="answers", path=f"{data}/problems.jsonl", limit=GROW_PROBLEMS),
            data=Source(path=f"{data}/train.jsonl"),
            held_out=Source(task="answers", path=f"{data}/test.jsonl"),
            rounds=GROW_ROUNDS,
            max_tokens=48,
            weights=kind,
            training={name: getattr(last, name) for name in names},
        )
        rounds = grow_data(growth, Path(grown) / kind, device=device, say=print)
        folders = [control, Path(last_model(growth, Path(grown) / kind, rounds)) / "checkpoint"]
        write_folder(Path(grown) / f"soup-{kind}", partial(average_folders, folders, [0.5, 0.5]))


def _start() -> FineTune:
    """The NLL model that every method goes on from."""
    return FineTune(
        model=_path("WIDEN_SMOLLM2"),
        train=Source(path=f"{_path('WIDEN_COUNTDOWN')}/train.jsonl"),
        loss="nll",
        max_length=64,
        epochs=3,
        batch_size=256,
        micro_batch=256,
        lr=3e-4,
        schedule="cosine_with_min_lr",
        warmup_steps=10,
    )


def _experiment(name: str, model: FineTune | str, seed: int) -> Experiment:
    return Experiment(
        name=name,
        model=model,
        prompts=Source(task="answers", path=f"{_path('WIDEN_COUNTDOWN')}/test.jsonl"),
        decoding=decodings(),
        dtype="float32",
        seed=seed,
        score=ExactScore(num_samples=100),
        not_in_paper=NOT_IN_PAPER,
    )


def decodings() -> tuple[str, ...]:
    """The same for every method: temperature alone, min-p before and after the heat, top-p before it."""
    grid = decoding_grid(
        temperatures=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0),
        min_p=(0.01, 0.02, 0.05, 0.1, 0.2),
        heats=(1.0, 1.25, 1.5, 2.0, 3.0),
        min_p_after=(0.05, 0.1, 0.2),
        heats_before=(1.5, 2.0),
        top_p=(0.9, 0.95),
        top_p_heats=(1.0, 1.5, 2.0),
    )
    return tuple(one.spec for one in grid)


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


def _path(variable: str) -> str:
    return os.environ.get(variable, f"${variable}").rstrip("/")


def tiny(recipe: list[Experiment]) -> list[Experiment]:
    """The same shape in seconds on a CPU: a random model, a handful of problems, one seed, three methods."""
    return [shrink(one) for one in recipe if one.seed == 0 and one.name in ("NLL", "TruncR 0.1", "TOFU 1")]


if __name__ == "__main__":
    write_countdown(sys.argv[1])
    if len(sys.argv) > 2:
        make_grown(sys.argv[1], _path("WIDEN_GROWN"), sys.argv[2])
