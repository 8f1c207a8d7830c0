"""The training stage: experiments side by side, each into its own run folder; what is trained already is not trained again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from widen.losses import parse, refuse_late_start
from widen.models.convert import load_pretrained
from widen.train.engine import Engine
from widen.train.many import train_many
from widen.train.progress import Progress

from .environment import environment
from .experiment import Experiment
from .folder import RunFolder
from .value import content_hash, to_json

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
    """Train what is not trained yet; experiments with one shape, batch size and number of steps go side by side.

    A run that was killed goes on from its last common checkpoint: the group is named by its content, so the same call finds it.
    """
    for experiment in experiments:
        _refuse_endless_warmup(experiment)
    folders = [(folder_of(root, experiment), experiment) for experiment in experiments]
    waiting: dict[str, tuple[RunFolder, Experiment]] = {}
    for folder, experiment in folders:
        folder.claim(to_json(experiment), environment(), decides=("model",))
        if not is_trained(folder):
            waiting.setdefault(experiment.key, (folder, experiment))
    groups: dict[str, list[tuple[RunFolder, Experiment]]] = {}
    for folder, experiment in waiting.values():
        groups.setdefault(_together(experiment), []).append((folder, experiment))
    for number, group in enumerate(groups.values()):
        models = [experiment.model for _, experiment in group]
        starts = [load_pretrained(experiment.start) if experiment.start else None for _, experiment in group]
        what = f"training {len(group)} models side by side" + (
            f", group {number + 1} of {len(groups)}" if len(groups) > 1 else ""
        )
        train_many(
            models,
            [folder.path for folder, _ in group],
            starts=starts,
            resume=Path(root) / f"resume-{content_hash(*(experiment.key for _, experiment in group))}",
            engine=Engine.fast(device),
            save_every=save_every,
            progress=None if progress is None else lambda now, what=what: progress(what, now),  # type: ignore[misc]
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


def _together(experiment: Experiment) -> str:
    """What experiments must share to be trained side by side."""
    model = experiment.model
    return content_hash(model.train.steps, model.train.batch_size, model.data.length, model.model)
