"""The training stage: experiments side by side, each into its own run folder; what is trained already is not trained again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from widen.disk.lock import hold
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
    folders = [(folder_of(root, experiment), experiment) for experiment in experiments]
    waiting: dict[str, tuple[RunFolder, Experiment]] = {}
    with ExitStack() as held:
        for folder, experiment in folders:
            if not is_trained(folder):
                held.enter_context(hold(folder.path))
            folder.claim(to_json(experiment), environment(), decides=("model",))
            if not is_trained(folder):
                waiting.setdefault(experiment.key, (folder, experiment))
        _train(list(waiting.values()), root, device=device, progress=progress, save_every=save_every)
    return folders


def _train(
    waiting: Sequence[tuple[RunFolder, Experiment]],
    root: str | Path,
    *,
    device: str,
    progress: OnTraining | None,
    save_every: int,
) -> None:
    groups: dict[str, list[tuple[RunFolder, Experiment]]] = {}
    for folder, experiment in waiting:
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


def _together(experiment: Experiment) -> str:
    """What experiments must share to be trained side by side."""
    model = experiment.model
    return content_hash(model.train.steps, model.train.batch_size, model.data.length, model.model)
