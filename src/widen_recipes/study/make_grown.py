"""Make what the recipes of growth compare: train the NLL start, grow, average soups. `widen run` trains the other models.

Every stage leaves files and is skipped if they are there.

<folder>/growth/                    the growth, see `widen.run.grow`
<folder>/<kind>.jsonl               the rows to train on, with one kind of weights
<folder>/soup-<kind>-<share>-seed<n>/     the average of two models
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from widen.disk.atomic_folder import write_folder
from widen.disk.lock import hold
from widen.run import runner
from widen.run.finetune import FineTune, fine_tune
from widen.run.finetune.average import average_models
from widen.run.folder import folder_of
from widen.run.grow import grow, reweighed
from widen.run.grow.training_rows import write_lines
from widen.run.progress_lines import progress_lines

from .coverageqa import FOLDS
from .grow import countdown_growth, e2e_growth
from .grow_small import countdown_small_growth, coverageqa_small_growth
from .growth_study import BASE, EMA, KNOWN, GrowthStudy
from .mathqa import mathqa_growth, mathqa_small_growth
from .methods import path_of

STUDIES: dict[str, Callable[[], GrowthStudy]] = {
    "countdown": countdown_growth,
    "countdown_small": countdown_small_growth,
    "e2e": e2e_growth,
    "mathqa": mathqa_growth,
    "mathqa_small": mathqa_small_growth,
    **{f"coverageqa_small_{fold}": partial(coverageqa_small_growth, fold) for fold in FOLDS},
}

TRAINING = [
    "max_length",
    "batch_size",
    "micro_batch",
    "schedule",
    "warmup_steps",
    "max_steps",
    "lr",
    "precision",
    "save_dtype",
]
"""Settings that the trainings of the growth take from those of the study."""


def made_by(model: str, root: str | Path) -> str:
    """The command that makes a folder which recipes take as a model, by the place of the folder; "" for any other model."""
    place = Path(model).parent
    if place.name in STUDIES and place.parent == Path(path_of("WIDEN_GROWN")):
        return f"python -m widen_recipes.study grow {place.name} {shlex.quote(str(root))}"
    if place == Path(path_of("WIDEN_AVERAGES")):
        return f"python -m widen_recipes.study wise {shlex.quote(str(root))}"
    return ""


def grow_task(task: str, root: str, jobs: str = "") -> None:
    """Make the models of one of `STUDIES`, on a GPU if there is one. Paths come from the variables of the task's recipe."""
    if task not in STUDIES:
        raise ValueError(f"task={task!r}: must be one of {', '.join(STUDIES)}")
    on_gpu = torch.cuda.is_available()
    at_a_time = int(jobs or (len(os.sched_getaffinity(0)) // 2 if on_gpu else 1))
    rows = 4096 if on_gpu else None  # several tasks may share the GPU
    make_grown(STUDIES[task](), root, device="cuda" if on_gpu else "cpu", jobs=max(1, at_a_time), rows=rows)


def make_grown(
    study: GrowthStudy, root: str | Path, *, device: str = "cpu", jobs: int = 1, rows: int | None = None
) -> None:
    """Grow and average what is missing, and train what these need.

    Args:
      root: the run folders; `widen run --out` takes the same.
      jobs: models that are trained at a time.
      rows: samples drawn at a time; by default as many as fit into memory.
    """
    runner.check_variables(study.experiments())
    progress, folder = progress_lines(), Path(study.folder)
    with hold(root):
        start = fine_tune(study.start, root, device=device, progress=progress, say=print)
        training = {name: getattr(study.last, name) for name in TRAINING}
        # Every method trains its own model; one that growth trains is needed only if a later round samples it.
        growth = replace(study.growth, model=str(start.path), training=training, find_only=study.growth.rounds == 1)
        grow(growth, folder / "growth", device=device, rows=rows, progress=progress, say=print)
        for kind in study.kinds:
            if not (path := folder / f"{kind}.jsonl").exists():
                write_lines(path, reweighed(folder / "growth", kind))
        if KNOWN in study.others and not (path := folder / f"{KNOWN}.jsonl").exists():
            found = reweighed(folder / "growth", "plain")
            known = {row["prompt"] for row in found if row["origin"]["round"] == 0}
            write_lines(path, (row for row in found if row["prompt"] in known))
        averaged = {model.key for model in study.averaged()}
        experiments = [one for one in study.experiments() if isinstance(one.model, FineTune) and one.key in averaged]
        at = partial(runner.run, root=root, device=device, jobs=jobs, progress=progress, notice=print)
        if experiments:
            at("growth", experiments, stages=("train",))
        wanted = [(kind, share, seed) for seed in study.seeds for kind, share in study.soups]
        for done, (kind, share, seed) in enumerate(wanted, start=1):
            nll, grown = (folder_of(root, study.model(name, seed)).checkpoint for name in ("NLL", kind))
            folders = [nll, {BASE: Path(study.start.model), EMA: nll / "average"}.get(kind, grown)]
            path = Path(study.soup(kind, share, seed))
            if not (path / "config.json").exists():
                write_folder(path, partial(average_models, folders, [1 - share, share]))
            progress("average", done, len(wanted))
