"""How a model is trained, as values: optimizer, schedule, number of steps; and one whole configuration of the integer task.

Frozen dataclasses: they print, compare, and go to JSON and back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from widen.data.mulmod import MulMod
from widen.data.rows import COLUMNS, needs_of
from widen.data.targets import LOSS_WEIGHTS
from widen.losses import Weight, fitted, parse
from widen.losses.fields import check
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
        check(self, "0 <= lr <= inf", "0 < eps <= inf", "0 <= weight_decay <= inf", "0 < max_grad_norm <= inf")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"AdamW: betas={self.betas}; legal: two numbers, 0 <= beta < 1")

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
            raise ValueError(f"Schedule: decay={self.decay!r}; legal: 'constant', 'linear' or 'cosine'")
        check(self, "0 <= warmup_steps < inf", "0 <= final <= 1 (a share of the learning rate)")

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
        check(self, "0 <= steps < inf", "1 <= batch_size < inf", "0 <= ema < 1")
        if self.micro_batch is not None:
            check(self, "1 <= micro_batch < inf (or None)")

    def lr(self, step: int) -> float:
        """The learning rate of step number `step`, from 0."""
        return self.optimizer.lr * self.schedule.factor(step, self.steps)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One small model: what it is trained on, with which loss, how, and from which seed.

    `seed` sets the initial weights and the order of the data; the training sample has its own, `data.seed`. `data` is a frozen dataclass
    with the size of the vocabulary, `vocab`, and `train_batch()`, all training sequences with their targets as a `Batch`.

    Examples:
      >>> Configuration(loss="cdiv:alpha=1.4", data=MulMod(under_representation=0.1)).weight
      CDiv(floor=0.0, cap=10.0, alpha=1.4)
    """

    data: Any = field(default_factory=MulMod)
    model: LlamaShape = field(default_factory=LlamaShape)
    loss: str | Weight = "nll"
    train: Train = field(default_factory=Train)
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, "0 <= seed < inf")
        if not (hasattr(self.data, "vocab") and hasattr(self.data, "train_batch")):
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
