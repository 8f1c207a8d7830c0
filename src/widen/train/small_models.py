"""Train many small models, each into its own run folder: on a CPU in one thread per model, on a GPU stacked (`stacked.py`).

Either way every model goes through `train/step.py` or its stacked form, with its own loss object, data, seed and schedule, and
leaves the same files. A killed run continues from the checkpoint in each folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

import torch

from widen.data.batch import Batch
from widen.models.convert import save_pretrained
from widen.models.tiny_llama import TinyLlama

from . import distributed
from .loop import Loop, OnProgress, Progress, Timer
from .order import Order
from .settings import Configuration


def train_models(
    configurations: Sequence[Configuration],
    folders: Sequence[str | Path],
    *,
    starts: Sequence[TinyLlama | None] | None = None,
    device: str = "cpu",
    save_every: int = 1000,
    log_every: int = 50,
    progress: OnProgress | None = None,
) -> list[Loop]:
    """Train any mix of tasks, sizes, losses and seeds; each configuration leaves ``log.jsonl`` and ``checkpoint/`` in its folder.

    Args:
      folders: one per configuration. A folder with a checkpoint of a killed run is continued.
      starts: the model that each configuration fine-tunes; None starts from its seed.
      progress: called with the steps of all models together.
    """
    starts = [None] * len(configurations) if starts is None else starts
    if not len(configurations) == len(folders) == len(starts):
        raise ValueError(
            f"{len(configurations)} configurations, {len(folders)} folders and {len(starts)} starts: give one of each per model"
        )
    loops = [
        loop_of(c, start=start, folder=folder, device=device, save_every=save_every, log_every=log_every)
        for c, folder, start in zip(configurations, folders, starts, strict=True)
    ]
    tell = _Together(loops, progress)
    if torch.device(device).type == "cuda":
        from .stacked import run_stacked

        run_stacked(loops, configurations, progress=lambda steps, made: tell(steps, made.loss, made.nll))
    else:
        _run_in_threads(loops, tell)
    for loop in loops:
        save_finished(loop)
    return loops


def train_one(
    configuration: Configuration,
    *,
    folder: str | Path | None = None,
    start: TinyLlama | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    save_every: int = 500,
    log_every: int = 1,
    progress: OnProgress | None = None,
) -> Loop:
    """Train one configuration to its end in this thread; continue what a killed run left in `folder`.

    With a folder, the finished model is in ``folder/checkpoint`` and its average in ``folder/checkpoint/average``; transformers
    opens both.

    Examples:
      >>> from widen.data.mulmod import MulMod
      >>> from widen.train.settings import Train
      >>> data = MulMod(modulus=7, high=9, under_representation=None, num_samples=64)
      >>> train_one(Configuration(data=data, train=Train(steps=2, batch_size=8))).step
      2
    """
    loop = loop_of(
        configuration, start=start, folder=folder, device=device, dtype=dtype, save_every=save_every, log_every=log_every
    )  # fmt: skip
    loop.run(progress=progress)
    if distributed.rank() == 0:
        save_finished(loop)
    return loop


def loop_of(
    configuration: Configuration,
    *,
    start: TinyLlama | None = None,
    folder: str | Path | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    save_every: int = 500,
    log_every: int = 1,
) -> Loop:
    """The loop that trains one configuration, from `start` or from its seed."""
    model = TinyLlama(configuration.model, seed=configuration.seed)
    if start is not None:
        if start.shape.parameter_shapes() != configuration.model.parameter_shapes():
            raise ValueError(
                f"start has the shape {start.shape}, its configuration {configuration.model}: they must agree"
            )
        model.load_flat(start.flat())
    return Loop(
        model.to(device, dtype),
        batches_of(configuration, device=device),
        configuration.weight,
        configuration.train,
        folder=folder,
        save_every=save_every,
        log_every=log_every,
    )


def batches_of(configuration: Configuration, *, device: str = "cpu") -> Callable[[int], list[Batch]]:
    """The micro-batches of each step on this rank."""
    data, train = configuration.data.train_batch().to(device), configuration.train
    order = Order(num_samples=len(data.tokens_BL), batch_size=train.batch_size, seed=configuration.seed)

    def batches(step: int) -> list[Batch]:
        mine = torch.from_numpy(order.indices(step)[distributed.share(train.batch_size)]).to(device)
        return [data.rows(part) for part in mine.split(train.micro_batch or train.batch_size) if len(part)]

    return batches


def save_finished(loop: Loop) -> None:
    """Write the finished model and delete the checkpoint. ``checkpoint/config.json`` comes last and marks the folder complete."""
    if loop.folder is None:
        return
    assert isinstance(loop.model, TinyLlama)
    if loop.average is not None:
        average = TinyLlama(loop.model.shape).to(loop.model.head.dtype)
        average.load_state_dict({name: tensor.cpu() for name, tensor in loop.average.items()})
        save_pretrained(average, loop.folder / "checkpoint" / "average")
    save_pretrained(loop.model, loop.folder / "checkpoint")
    loop.forget()


class _Together:
    """Adds up the progress of several loops and passes it on; raises in every thread once one has failed."""

    def __init__(self, loops: Sequence[Loop], progress: OnProgress | None) -> None:
        self.progress, self.lock, self.stop = progress, threading.Lock(), threading.Event()
        self.done = sum(loop.step for loop in loops)
        self.timer = Timer(self.done, sum(loop.train.steps for loop in loops))

    def __call__(self, steps: int, loss: float, nll: float) -> None:
        """Count some steps."""
        if self.stop.is_set():
            raise RuntimeError("stopped, because another model could not go on")
        with self.lock:
            self.done += steps
            if self.progress is not None:
                self.progress(self.timer.at(self.done, loss, nll))


def _run_in_threads(loops: Sequence[Loop], tell: _Together) -> None:
    """One thread per core, each with one torch thread: for models this small, splitting every operation costs more than it gains."""

    def one(now: Progress) -> None:
        tell(1, now.loss, now.nll)

    threads = torch.get_num_threads()
    count = min(threads, len(loops))
    if count <= 1:
        for loop in loops:
            loop.run(progress=one)
        return
    # set_num_threads acts on the calling thread, and on threads started later: the last line restores that.
    ready = threading.Barrier(count)
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(lambda _: ready.wait(), range(count)))
        torch.set_num_threads(threads)
        running = [pool.submit(loop.run, progress=one) for loop in loops]
        try:
            for future in wait(running, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            tell.stop.set()
            for future in running:
                future.cancel()
            raise
