"""Growth on Countdown: training on the answers that a model found and a checker verified.

Growth needs data that a model has found before it can be compared (`make_grown`, minutes on a GPU):

    export WIDEN_GROWN=runs/grown
    python -m widen_recipes.study data/countdown runs             trains the NLL start, grows with three kinds of weights, averages soups
    widen run study:grow --device cuda --jobs 4 --out runs
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from widen.disk.atomic_folder import write_folder
from widen.models.average import average_folders
from widen.run.experiment import Experiment
from widen.run.finetune import Source, fine_tune
from widen.run.grow import WEIGHTS, Growth
from widen.run.grow import grow as grow_data
from widen.run.grow.rounds import last_model

from .countdown import experiment_of, nll_start
from .methods import SEEDS, path_of

GROW_STEPS, GROW_ROUNDS, GROW_PROBLEMS = 600, 2, 6000
"""Of growth: steps of every training after the start, rounds, and training problems that are sampled."""


def grow() -> list[Experiment]:
    """Training on verified answers, weighted in three ways, against NLL for as many steps, soups, and NLL on all right answers."""
    data, grown, start = path_of("WIDEN_COUNTDOWN"), path_of("WIDEN_GROWN"), nll_start()
    last = replace(start, after=start, max_steps=GROW_STEPS, lr=1e-4)
    models = {"NLL": last, "NLL on all answers": replace(last, train=Source(path=f"{data}/all.jsonl"))}
    for kind in WEIGHTS:
        models[f"grown, {kind}"] = replace(last, train=Source(path=f"{grown}/{kind}/round-{GROW_ROUNDS}/train.jsonl"))
    found = [experiment_of(name, replace(one, seed=seed), seed) for seed in SEEDS for name, one in models.items()]
    return [*found, *(experiment_of(f"soup of NLL and {kind}", f"{grown}/soup-{kind}", 0) for kind in WEIGHTS)]


def make_grown(data: str, grown: str, root: str, *, device: str = "cuda") -> None:
    """Train the NLL start and its control, grow from the start with each kind of weights, and average each result with the control."""
    start = replace(nll_start(), train=Source(path=f"{data}/train.jsonl"))
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
