"""The train stage of small models: side by side, each into its own run folder; finished models are not trained again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from widen.data.batch import Batch
from widen.data.mulmod import MulMod
from widen.models.convert import load_pretrained
from widen.models.tiny_llama import TinyLlama
from widen.train.alone import save_finished
from widen.train.engine import Engine
from widen.train.loop import Loop
from widen.train.many import train_many
from widen.train.order import Order
from widen.train.progress import OnProgress
from widen.train.settings import Configuration

from .environment import environment
from .experiment import Experiment
from .folder import RunFolder, StageProgress, folder_of
from .value import content_hash, to_json


def train_small(
    experiments: Sequence[Experiment],
    root: str | Path,
    *,
    device: str = "cpu",
    progress: StageProgress | None = None,
    save_every: int = 1000,
) -> None:
    """Train the models that are not trained yet. Models of one task, shape, batch size and number of steps go side by side.

    A run that was killed continues from its last common checkpoint: the group is named by its content, so the same call finds it.
    """
    groups: dict[str, dict[str, Experiment]] = {}
    for experiment in experiments:
        model, folder = experiment.model, folder_of(root, experiment)
        assert isinstance(model, Configuration)
        folder.claim(to_json(experiment), environment(), decides=("model",))
        if not folder.is_trained:
            together = content_hash(model.train.steps, model.train.batch_size, model.data.task, model.model)
            groups.setdefault(together, {}).setdefault(experiment.key, experiment)
    for number, group in enumerate(groups.values()):
        which = f", group {number + 1} of {len(groups)}" if len(groups) > 1 else ""
        _train(
            list(group.values()), root, device, f"train {len(group)} models side by side{which}", progress, save_every
        )


def _train(
    experiments: Sequence[Experiment],
    root: str | Path,
    device: str,
    what: str,
    progress: StageProgress | None,
    save_every: int,
) -> None:
    models = [one.model for one in experiments if isinstance(one.model, Configuration)]
    folders = [folder_of(root, one) for one in experiments]
    starts = [load_pretrained(one.start) if one.start else None for one in experiments]
    tell: OnProgress | None = None if progress is None else lambda now: progress(what, now.step, now.steps)
    if all(isinstance(model.data, MulMod) for model in models):
        train_many(
            models,
            [folder.path for folder in folders],
            starts=starts,
            resume=Path(root) / f"resume-{content_hash(*(one.key for one in experiments))}",
            engine=Engine.fast(device),
            save_every=save_every,
            progress=tell,
        )
        return
    for model, folder, start in zip(models, folders, starts, strict=True):
        _train_one(model, folder, start, device, tell, save_every)


def _train_one(
    configuration: Configuration,
    folder: RunFolder,
    start: TinyLlama | None,
    device: str,
    progress: OnProgress | None,
    save_every: int,
) -> None:
    """One model of any task with listed answers, by the plain loop."""
    model = (start or TinyLlama(configuration.model, seed=configuration.seed)).to(device)
    batch, train = configuration.data.train_batch().to(device), configuration.train
    order = Order(num_samples=len(batch.tokens_BL), batch_size=train.batch_size, seed=configuration.seed)

    def batches(step: int) -> list[Batch]:
        rows = torch.from_numpy(order.indices(step)).to(device)
        return [batch.rows(part) for part in torch.split(rows, train.micro_batch or train.batch_size)]

    loop = Loop(model, batches, configuration.weight, train, folder=folder.path, save_every=save_every, log_every=50)
    loop.run(progress=progress)
    save_finished(folder.path, model, None)
    loop.forget()
