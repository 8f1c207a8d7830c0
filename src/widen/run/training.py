"""The training stage: every experiment into its own run folder. Finished models are not trained again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from widen.disk.lock import hold
from widen.losses import parse, refuse_late_start
from widen.models.convert import load_pretrained
from widen.train.progress import Progress
from widen.train.small import train_models

from .environment import environment
from .experiment import Experiment
from .folder import RunFolder
from .value import to_json

OnTraining = Callable[[str, Progress], None]
"""Called with what is being trained and how far it is."""


def folder_of(root: str | Path, experiment: Experiment) -> RunFolder:
    """Where an experiment's run lives: one folder a trained model, whichever recipe asks for it."""
    return RunFolder(Path(root) / experiment.folder_name)


def is_trained(folder: RunFolder) -> bool:
    """Whether the finished model is there; it is written last, in one move."""
    return (folder.checkpoint / "config.json").exists()


def train_all(
    experiments: Sequence[Experiment],
    root: str | Path,
    *,
    device: str = "cpu",
    progress: OnTraining | None = None,
    save_every: int = 1000,
) -> list[tuple[RunFolder, Experiment]]:
    """Train what is not trained yet; a killed run continues from the checkpoint in each folder."""
    for experiment in experiments:
        _refuse_endless_warmup(experiment)
    folders = [(folder_of(root, experiment), experiment) for experiment in experiments]
    waiting: dict[str, tuple[RunFolder, Experiment]] = {}
    with ExitStack() as held:
        for folder, experiment in folders:
            if not is_trained(folder):
                held.enter_context(hold(folder.path))
            folder.claim(to_json(experiment), environment(), decides=("model",))
            if not is_trained(folder):
                waiting.setdefault(experiment.key, (folder, experiment))
        if waiting:
            mine = list(waiting.values())
            what = f"training {len(mine)} model{'' if len(mine) == 1 else 's'}"
            train_models(
                [experiment.model for _, experiment in mine],
                [folder.path for folder, _ in mine],
                starts=[load_pretrained(experiment.start) if experiment.start else None for _, experiment in mine],
                device=device,
                save_every=save_every,
                progress=None if progress is None else lambda now: progress(what, now),
            )
    return folders


def _refuse_endless_warmup(experiment: Experiment) -> None:
    """Refuse a warm-up, of the loss or of the learning rate, that does not end inside the run."""
    train = experiment.model.train
    refuse_late_start(parse(experiment.model.loss), steps=train.steps)
    if 0 < train.steps < train.schedule.warmup_steps:
        raise ValueError(
            f"schedule.warmup_steps={train.schedule.warmup_steps}: the run has {train.steps} steps, so that the learning rate would never "
            "be reached. Take fewer steps of warm-up, or train longer"
        )
