"""One optimizer step: the page to read first.

    hidden states -> head -> log-probabilities -> weights -> loss -> backward -> finite? -> optimizer -> figures

`train_step` is the whole of it for a plain PyTorch model. The Hugging Face hosts and the stacked small models bring their own
forward and optimizer; everything in between is the same `Objective`.

Shapes: B sequences, L positions, D hidden, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from widen.data.batch import Batch
from widen.losses import Weight

from . import distributed
from .figures import Figures
from .guard import NonFiniteLossError
from .objective import Objective


class StepFigures(NamedTuple):
    """What one step reports, over all micro-batches and ranks."""

    loss: float
    grad_norm: float
    sums: Figures

    @classmethod
    def of(cls, sums: Figures, grad_norm: float, *, divisor: float = 1.0) -> StepFigures:
        """From the sums of the whole step; ``divisor`` is the scale of the weights."""
        return cls(-sums.weighted / max(sums.tokens, 1) / divisor, grad_norm, sums)

    @property
    def nll(self) -> float:
        """NLL per token, whatever the loss."""
        return self.sums.nll


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    step: int = 1,
    max_grad_norm: float = math.inf,
) -> StepFigures:
    """One step on this rank's micro-batches; the same for one batch of n and for n batches of one, on any number of ranks.

    Args:
      model: tokens [B, L] -> hidden states [B, L, D], with the weight of the output layer, [V, D], as ``head``: `TinyLlama`, or your own.
      optimizer: of the model's parameters, its gradients zero.
      batches: this rank's micro-batches; may be empty if another rank has one.
      objective: the loss and its state, which this step advances.
      step: number of this step, from 1, for error messages.

    Raises NonFiniteLossError if the loss or the gradient is not finite. The weights are then unchanged.
    """
    net: Any = model
    device = next(model.parameters()).device
    tokens = distributed.count_tokens(batches, device=device)
    for batch in batches:
        sequences = batch.sequences
        hidden_ND = net(batch.inputs).flatten(0, 1)
        out = objective.through_head(hidden_ND, net.head, sequences, num_tokens=tokens * objective.divisor)
        objective.add(out, sequences, batch.inputs, divided_by=tokens * objective.divisor)
        out.loss.backward()
    distributed.sum_gradients(model.parameters())
    divisor = objective.divisor
    sums = objective.finish(step=step)
    grad_norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm))
    figures = StepFigures.of(sums, grad_norm, divisor=divisor)
    refuse_figures(figures, objective.weight, step=step)
    optimizer.step()
    optimizer.zero_grad()
    return figures


def refuse_figures(figures: StepFigures, weight: Weight, *, step: int) -> None:
    """Stop a run whose loss or gradient is not finite, before it reaches the weights; the same on every rank."""
    if not (math.isfinite(figures.grad_norm) and math.isfinite(figures.loss) and not math.isnan(figures.nll)):
        raise NonFiniteLossError(
            f"step {step} is not made: {weight} has the loss {figures.loss:g} and a gradient of norm {figures.grad_norm:g}. "
            "The weights are those of the step before. Lower the learning rate, give the loss a cap, or start from more NLL steps "
            "('nll:steps=N then ...')"
        )
