"""The train stage of small models. Each model has its run folder; finished models are not trained again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from widen.disk.lock import hold
from widen.losses import parse, refuse_late_start
from widen.models.convert import load_pretrained
from widen.train.settings import Configuration
from widen.train.small_models import train_models

from .environment import environment
from .experiment import Experiment
from .folder import StageProgress, folder_of, silent
from .value import to_json


def train_small(
    experiments: Sequence[Experiment],
    root: str | Path,
    *,
    device: str = "cpu",
    progress: StageProgress = silent,
    save_every: int = 1000,
) -> None:
    """Train the models that are not finished; a killed run continues from its checkpoint."""
    for experiment in experiments:
        _refuse_endless_warmup(experiment)
    waiting: dict[str, Experiment] = {}
    with ExitStack() as held:
        for experiment in experiments:
            folder = folder_of(root, experiment)
            if not folder.is_trained:
                held.enter_context(hold(folder.path))
            folder.claim(to_json(experiment), environment())
            if not folder.is_trained:
                waiting.setdefault(experiment.key, experiment)
        mine = list(waiting.values())
        if not mine:
            return
        what = f"train {len(mine)} model{'' if len(mine) == 1 else 's'}"
        train_models(
            [one.model for one in mine if isinstance(one.model, Configuration)],
            [folder_of(root, one).path for one in mine],
            starts=[load_pretrained(one.start) if one.start else None for one in mine],
            device=device,
            save_every=save_every,
            progress=lambda now: progress(what, now.step, now.steps),
        )


def _refuse_endless_warmup(experiment: Experiment) -> None:
    """Refuse a warm-up of loss or learning rate that does not end inside the run."""
    assert isinstance(experiment.model, Configuration)
    train = experiment.model.train
    refuse_late_start(parse(experiment.loss), steps=train.steps)
    if 0 < train.steps < train.schedule.warmup_steps:
        raise ValueError(
            f"schedule.warmup_steps={train.schedule.warmup_steps}: the run has {train.steps} steps, so that the learning rate would never "
            "be reached. Take fewer steps of warm-up, or train longer"
        )
