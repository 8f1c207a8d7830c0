"""Train one model: steps, schedule, running average, log, and a resume that ends with the same bits as an uninterrupted run.

The batches of a step are a function of the step alone. Everything that changes from step to step (weights, average, optimizer, loss
state) is in the checkpoint, so `kill -9` at any moment costs the steps since the last checkpoint and nothing else.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from widen.data.batch import Batch
from widen.losses import Weight
from widen.models import checkpoint
from widen.models.checkpoint import Checkpoint

from . import distributed
from .log import Log
from .objective import Objective
from .settings import Train, ema_decay
from .step import StepFigures, train_step

_log = logging.getLogger("widen.train")


class Progress(NamedTuple):
    """The state of a run after `step` of `steps` steps."""

    step: int
    steps: int
    loss: float
    nll: float
    seconds_left: float


OnProgress = Callable[[Progress], None]
"""What is called with it."""


class Timer:
    """Estimates the time left from the steps of this process; those before a resume say nothing about its speed."""

    def __init__(self, step: int, steps: int) -> None:
        self.first, self.steps, self.start = step, steps, time.monotonic()

    def at(self, step: int, loss: float, nll: float) -> Progress:
        """The progress after `step` steps in all."""
        done = step - self.first
        left = (time.monotonic() - self.start) / done * (self.steps - step) if done else float("inf")
        return Progress(step, self.steps, loss, nll, left)


class Loop:
    """One model in training.

    Args:
      model: as `train_step` takes it; trained in place.
      batches: the micro-batches of a step on this rank; a function of the step alone.
      weight: the loss.
      train: steps, optimizer, schedule, average.
      folder: where ``log.jsonl`` and ``resume/`` go; None keeps everything in memory. A folder with a checkpoint is resumed.
      save_every, log_every: steps between checkpoints, and between lines of the log.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Callable[[int], Sequence[Batch]],
        weight: Weight,
        train: Train,
        *,
        folder: str | Path | None = None,
        save_every: int = 500,
        log_every: int = 1,
    ) -> None:
        if save_every < 1 or log_every < 1:
            raise ValueError(f"save_every={save_every}, log_every={log_every}: both must be at least 1")
        self.model, self.batches, self.weight, self.train = model, batches, weight, train
        self.folder = Path(folder) if folder is not None else None
        self.save_every, self.log_every = save_every, log_every
        self.optimizer = train.optimizer.build(model.parameters())
        self.objective = Objective(weight)
        self.average = {name: p.detach().clone() for name, p in model.named_parameters()} if train.ema else None
        self.step = 0
        found = checkpoint.latest(self.folder / "resume") if self.folder else None
        if found:
            self.restore(checkpoint.load(found))

    def run(self, *, progress: OnProgress | None = None) -> nn.Module:
        """Train to the end and return the model."""
        main = self.folder is not None and distributed.rank() == 0
        log = Log(self.folder / "log.jsonl", step=self.step) if main and self.folder else None
        timer = Timer(self.step, self.train.steps)
        try:
            while self.step < self.train.steps:
                figures = self.advance()
                if log and (self.step % self.log_every == 0 or self.step in (1, self.train.steps)):
                    log.write(self.record(figures, step=self.step - 1))
                if progress:
                    progress(timer.at(self.step, figures.loss, figures.nll))
                if log and self.folder and (self.step % self.save_every == 0 or self.step == self.train.steps):
                    log.sync()
                    checkpoint.save(self.folder / "resume", self.checkpoint())
        finally:
            if log:
                log.close()
        return self.model

    def advance(self) -> StepFigures:
        """One step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.train.lr(self.step)
        figures = train_step(
            self.model,
            self.optimizer,
            self.batches(self.step),
            self.objective,
            step=self.step + 1,
            max_grad_norm=self.train.optimizer.max_grad_norm,
        )
        if self.average is not None:
            follow = 1 - ema_decay(self.train.ema, self.step)
            for name, parameter in self.model.named_parameters():
                self.average[name].lerp_(parameter.detach(), follow)
        self.step += 1
        return figures

    def record(self, figures: StepFigures, *, step: int) -> dict[str, float]:
        """The line of the log for one step, counted from 0; also warns, once, on the logger ``widen.train``."""
        if (text := self.objective.warning(figures.sums)) is not None:
            _log.warning("step %d: %s", step, text)
        line = {"step": step, "loss": figures.loss, "grad_norm": figures.grad_norm, "lr": self.train.lr(step)}
        return line | self.objective.logged(figures.sums)

    def checkpoint(self) -> Checkpoint:
        """Everything that the next step depends on."""
        groups = {
            "weights": dict(self.model.state_dict()),
            "optimizer": _optimizer_tensors(self.optimizer, self.model),
            "loss": checkpoint.state_tensors(self.objective.state),
            "random": checkpoint.random_state(),
        }
        if self.average is not None:
            groups["average"] = self.average
        return Checkpoint(self.step, groups, {"loss": str(self.weight), "train": repr(self.train)})

    def restore(self, saved: Checkpoint) -> None:
        """Continue from a checkpoint of the same loss and settings; refuse any other."""
        for name, mine in (("loss", str(self.weight)), ("train", repr(self.train))):
            if saved.numbers[name] != mine:
                raise ValueError(
                    f"the checkpoint's {name} is {saved.numbers[name]}, this run's is {mine}: not the same run"
                )
        self.model.load_state_dict(dict(saved.groups["weights"]))
        _load_optimizer(self.optimizer, self.model, dict(saved.groups["optimizer"]))
        self.objective.state = checkpoint.state_from(self.objective.state, saved.groups["loss"])
        checkpoint.restore_random_state(saved.groups["random"])
        if self.average is not None:
            for name, tensor in saved.groups["average"].items():
                self.average[name].copy_(tensor)
        self.step = saved.step

    def forget(self) -> None:
        """Delete the checkpoint of a finished run."""
        if self.folder:
            shutil.rmtree(self.folder / "resume", ignore_errors=True)


def _optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state by parameter name."""
    return {
        f"{key}.{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        found = {key.removesuffix(f".{name}"): value for key, value in tensors.items() if key.partition(".")[2] == name}
        if found:
            optimizer.state[parameter] = {
                key: value if key == "step" else value.to(parameter.device) for key, value in found.items()
            }
