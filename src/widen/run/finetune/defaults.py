"""Defaults that depend on the model, the device and the length of the run: learning rate, precision and warm-up.

The paper's settings (`PAPER`) suit runs of tens of thousands of steps; in a short run their warm-up of 1,000 steps never ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from widen.losses import parse, refuse_late_start

from .config import FineTune

PAPER = {"lr": 1e-6, "schedule": "constant_with_warmup", "warmup_steps": 1000, "batch_size": 8, "epochs": 3.0}
"""The paper's training (appendix, "Models and training details"), set by ``widen train --paper``."""

REFERENCE = (135e6, 1e-4)
"""Parameters and learning rate of a run that worked (SmolLM2-135M on MathQA-Python, docs/log.md)."""
LARGEST = 1e-3
"""The largest learning rate for any model."""
LORA = 10.0
"""Learning rate of an adapter relative to full fine-tuning."""
WARMUP_SHARE = 0.03
"""Share of the steps that warm up by default."""


def learning_rate(parameters: int, *, lora: bool = False) -> float:
    """Learning rate for a model of this size: 1e-4 at 135 million parameters, falling with the square root of the size.

    A rule of thumb, rounded to two digits. It agrees with common rates: about 1e-5 for 8B models, 5e-6 for 70B, ten times as much for
    adapters.

    >>> [learning_rate(n) for n in (260_000, 135_000_000, 1_200_000_000, 8_000_000_000, 70_000_000_000)]
    [0.001, 0.0001, 3.4e-05, 1.3e-05, 4.4e-06]
    >>> learning_rate(8_000_000_000, lora=True)
    0.00013
    """
    size, rate = REFERENCE
    full = min(LARGEST, rate * math.sqrt(size / max(parameters, 1)))
    return float(f"{full * (LORA if lora else 1.0):.1e}")


def device_for(device: str | None) -> str:
    """The device that is named, or else a GPU if there is one. Refuses what this machine does not have."""
    import torch

    if device not in (None, "cuda", "cpu"):
        raise ValueError(f"device={device!r}: must be cuda or cpu (CUDA_VISIBLE_DEVICES chooses among several GPUs)")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda': torch finds no GPU here")
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def precision_for(device: str | None) -> str:
    """``bf16``, but ``fp32`` on a CPU: most CPUs multiply bfloat16 several times slower.

    >>> precision_for("cpu"), precision_for("cuda")
    ('fp32', 'bf16')
    """
    return "fp32" if (device or device_for(None)) == "cpu" else "bf16"


def steps_of(config: FineTune, *, examples: int, processes: int = 1) -> int:
    """Optimizer steps of a run, counted as transformers counts them.

    >>> from widen.run.finetune import Source
    >>> steps_of(FineTune(model="m", train=Source(path="a.jsonl"), epochs=3), examples=60)
    24
    """
    if config.max_steps != -1:
        return config.max_steps
    micro = min(config.micro_batch, config.batch_size // processes)
    batches = math.ceil(math.ceil(examples / micro) / processes)
    each = max(1, math.ceil(batches / (config.batch_size // (micro * processes))))
    return math.ceil(config.epochs * each)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The settings of a run after the defaults are filled in."""

    parameters: int
    steps: int
    lr: float
    warmup_steps: int

    def __str__(self) -> str:
        """One sentence.

        >>> print(Chosen(parameters=134_515_008, steps=8, lr=1e-4, warmup_steps=0))
        135M parameters, 8 steps, learning rate 0.0001, no warm-up
        """
        size = f"{self.parameters / 1e9:.1f}B" if self.parameters >= 1e9 else f"{self.parameters / 1e6:.3g}M"
        warmup = f"warm-up of {self.warmup_steps:,} steps" if self.warmup_steps else "no warm-up"
        return f"{size} parameters, {self.steps:,} steps, learning rate {self.lr:g}, {warmup}"


def choose(config: FineTune, *, parameters: int, steps: int) -> Chosen:
    """Learning rate and warm-up of a run: those of the config, or the defaults.

    >>> from widen.run.finetune import Source
    >>> choose(FineTune(model="m", train=Source(path="a.jsonl")), parameters=135_000_000, steps=1000)
    Chosen(parameters=135000000, steps=1000, lr=0.0001, warmup_steps=30)
    """
    lr = learning_rate(parameters, lora=config.lora is not None) if config.lr is None else config.lr
    warmup = math.floor(WARMUP_SHARE * steps) if config.warmup_steps is None else config.warmup_steps
    return Chosen(
        parameters=parameters, steps=steps, lr=lr, warmup_steps=0 if config.schedule == "constant" else warmup
    )


def refuse_warmups(config: FineTune, *, steps: int) -> None:
    """Refuse a warm-up of the learning rate or of the loss that does not end inside the run."""
    refuse_late_start(parse(config.loss), steps=steps)
    warmup = config.warmup_steps or 0
    if config.schedule != "constant" and warmup and warmup >= steps:
        highest = f"{(steps - 1) / warmup:.2g}"
        raise ValueError(
            f"warmup_steps={warmup} (--warmup-steps): the run has {steps:,} steps, so that the learning rate would only reach {highest} of "
            f"its value. Leave it out for {WARMUP_SHARE:.0%} of the steps, take fewer than {steps:,}, or train longer (--epochs)"
        )
