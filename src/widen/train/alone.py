"""One configuration of the integer task, trained by itself: data, model and loop put together.

Many of them at once: :mod:`widen.train.side_by_side`, with the same result for each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from widen.data.batch import Batch
from widen.models.convert import save_pretrained
from widen.models.tiny_llama import TinyLlama

from . import distributed
from .loop import Loop
from .order import Order
from .progress import OnProgress
from .settings import Configuration

__all__ = ["batches_of", "save_finished", "train_alone"]


def train_alone(
    configuration: Configuration,
    *,
    folder: str | Path | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    save_every: int = 500,
    log_every: int = 1,
    progress: OnProgress | None = None,
) -> Loop:
    """Train one configuration to its end; resumes what a killed run left in `folder`.

    With a folder, the finished model is in ``folder/checkpoint``, its average in ``folder/checkpoint/average``, as transformers reads them.

    Examples:
      >>> from widen.data.mulmod import MulMod
      >>> from widen.train.settings import Train
      >>> data = MulMod(modulus=7, high=9, under_representation=None, num_samples=64)
      >>> train_alone(Configuration(data=data, train=Train(steps=2, batch_size=8))).step
      2
    """
    model = TinyLlama(configuration.model, seed=configuration.seed).to(device, dtype)
    loop = Loop(
        model,
        batches_of(configuration, device=device),
        configuration.weight,
        configuration.train,
        folder=folder,
        save_every=save_every,
        log_every=log_every,
    )
    loop.run(progress=progress)
    if folder is not None and distributed.rank() == 0:
        average = None
        if loop.average is not None:
            average = TinyLlama(configuration.model).to(device, dtype)
            average.load_state_dict(loop.average)
        save_finished(Path(folder), model, average)
        loop.forget()
    return loop


def batches_of(configuration: Configuration, *, device: str = "cpu") -> Callable[[int], list[Batch]]:
    """The micro-batches of each step on this rank."""
    tokens = torch.from_numpy(configuration.data.train_tokens()).to(device)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[:, 0] = False  # BOS
    train = configuration.train
    order = Order(num_samples=len(tokens), batch_size=train.batch_size, seed=configuration.seed)

    def batches(step: int) -> list[Batch]:
        mine = torch.from_numpy(order.indices(step)[distributed.share(train.batch_size)]).to(device)
        return [
            Batch(tokens[part], mask[part]) for part in mine.split(train.micro_batch or train.batch_size) if len(part)
        ]

    return batches


def save_finished(folder: Path, model: TinyLlama, average: TinyLlama | None) -> None:
    """The finished model of a run folder: average first, so that ``checkpoint/config.json`` marks the whole as there."""
    if average is not None:
        save_pretrained(average, folder / "checkpoint" / "average")
    save_pretrained(model, folder / "checkpoint")
