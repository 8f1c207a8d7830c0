"""How a model is trained, as values: optimizer, schedule, number of steps; and one whole configuration of the integer task.

Frozen dataclasses: they print, compare, and go to JSON and back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import nn

from widen.data.batch import Batch
from widen.data.mulmod import MulMod
from widen.data.rows import COLUMNS, needs_of
from widen.data.targets import LOSS_WEIGHTS
from widen.losses import Weight, fitted, parse
from widen.models.tiny_llama import LlamaShape


def ema_decay(ema: float, step: int) -> float:
    """The share of itself that the running average keeps after step number ``step`` (from 0); less at the start."""
    return min(ema, (1 + step) / (10 + step))


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """AdamW with decoupled weight decay on every parameter, as `torch.optim.AdamW` does it.

    Args:
      lr: learning rate before the schedule; the paper's 1e-3 for the integer task.
      betas, eps: Adam's.
      weight_decay: decoupled. The paper's 1 does not learn the product; 0 and 0.1 do.
      max_grad_norm: gradients longer than this are shortened to it; inf leaves them alone.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))  # JSON gives a list
        if not self.lr >= 0:
            raise ValueError(f"lr={self.lr}: must not be negative")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas={self.betas}: two numbers, 0 <= beta < 1")
        if not self.eps > 0:
            raise ValueError(f"eps={self.eps}: must be above 0")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay={self.weight_decay}: must not be negative")
        if not self.max_grad_norm > 0:
            raise ValueError(f"max_grad_norm={self.max_grad_norm}: must be above 0; inf for none")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
        """The optimizer of one model."""
        return torch.optim.AdamW(
            parameters, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay, foreach=True
        )


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The factor on the learning rate at each step: a linear warm-up, then constant, or a decay to `final` at the last step.

    Examples:
      >>> [round(Schedule(decay="linear", warmup_steps=2).factor(step, 4), 2) for step in range(4)]
      [0.5, 1.0, 1.0, 0.5]
    """

    decay: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        if self.decay not in ("constant", "linear", "cosine"):
            raise ValueError(f"decay={self.decay!r}: constant, linear or cosine")
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps={self.warmup_steps}: must not be negative")
        if not 0 <= self.final <= 1:
            raise ValueError(f"final={self.final}: a share of the rate, between 0 and 1")

    def factor(self, step: int, steps: int) -> float:
        """The factor for step number `step` (from 0) of `steps`."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.decay == "constant":
            return 1.0
        done = (step - self.warmup_steps) / max(1, steps - self.warmup_steps)
        left = 1 - done if self.decay == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.final + (1 - self.final) * left


@dataclass(frozen=True, kw_only=True)
class Train:
    """One training run.

    Args:
      steps: optimizer steps. The paper's 500 epochs of 25,000 samples in batches of 512 are 24,414.
      batch_size: sequences an optimizer step.
      micro_batch: sequences at once; the gradient is the same for every value. None takes the whole batch at once.
      ema: decay of the running average of the weights; 0 keeps none. The average follows faster at the start:
        its decay at step t is min(ema, (1 + t) / (10 + t)).
    """

    steps: int = 24_414
    batch_size: int = 512
    micro_batch: int | None = None
    optimizer: AdamW = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Schedule)
    ema: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps={self.steps}: must not be negative")
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: must be at least 1")
        if self.micro_batch is not None and self.micro_batch < 1:
            raise ValueError(f"micro_batch={self.micro_batch}: must be at least 1, or None")
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema={self.ema}: need 0 <= ema < 1")

    def lr(self, step: int) -> float:
        """The learning rate of step number `step`, from 0."""
        return self.optimizer.lr * self.schedule.factor(step, self.steps)


@runtime_checkable
class TrainingData(Protocol):
    """What a small model trains on: a frozen dataclass such as `MulMod`, so that it goes to JSON."""

    @property
    def vocab(self) -> int:
        """Size of the vocabulary."""
        ...

    def train_batch(self) -> Batch:
        """All training sequences with their targets; a function of the fields alone."""
        ...


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One small model: what it is trained on, with which loss, how, and from which seed.

    `seed` sets the initial weights and the order of the data; the training sample has its own, `data.seed`.

    Examples:
      >>> Configuration(loss="cdiv:alpha=1.4", data=MulMod(under_representation=0.1)).weight
      CDiv(floor=0.0, cap=10.0, alpha=1.4)
    """

    data: Any = field(default_factory=MulMod)  # a `TrainingData`; Any, since a protocol is no dataclass to `replace`
    model: LlamaShape = field(default_factory=LlamaShape)
    loss: str | Weight = "nll"
    train: Train = field(default_factory=Train)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must not be negative")
        if not isinstance(self.data, TrainingData):
            raise ValueError(f"data={self.data!r}: must have vocab and train_batch(), as MulMod has")
        missing = needs_of(parse(self.loss)).difference(COLUMNS, {LOSS_WEIGHTS})  # a misspelt loss is refused here too
        if missing:
            raise ValueError(
                f"loss={self.loss!r} reads {', '.join(sorted(missing))}, which the data of a small model does not have; such a loss "
                "trains real models (widen train --model NAME --reference NAME)"
            )

    @property
    def weight(self) -> Weight:
        """The loss as an object, with a window that fits the run (`widen.losses.fitted`)."""
        return fitted(parse(self.loss), self.train.steps * self.train.batch_size)
