"""One optimizer step: the page to read first. Everything else in this room is about doing this often, fast, or on many machines.

    log-probabilities -> weights -> loss -> backward -> optimizer -> observe

Shapes: B sequences, L positions, D hidden, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from widen.data.batch import Batch
from widen.head import linear_logprob
from widen.losses import State, Weight, WeightStats, stats, weighted_nll

from . import distributed

__all__ = ["LanguageModel", "StepFigures", "log_probabilities", "train_step"]


class LanguageModel(Protocol):
    """tokens -> hidden states, and the head that turns those into logits: `TinyLlama`, `Pretrained`, or your own module."""

    @property
    def head(self) -> Float[Tensor, "V D"]:
        """Weight of the output layer."""
        ...

    def __call__(self, tokens_BL: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Hidden states."""
        ...


class StepFigures(NamedTuple):
    """What one step reports, over all micro-batches and ranks."""

    loss: float
    nll: float  # per token, whatever the loss: what losses can be compared by
    grad_norm: float
    tokens: int
    weights: WeightStats | None  # of this rank; None where it had no batch


def log_probabilities(model: nn.Module, batch: Batch) -> Float[Tensor, "B l"]:
    """log Q of every target token of the batch; 0 elsewhere."""
    net = cast(LanguageModel, model)
    hidden_ND = net(batch.inputs).flatten(0, 1)
    target_N = batch.targets.masked_fill(~batch.target_mask, -100).flatten()
    bias, softcap = getattr(model, "head_bias", None), getattr(model, "softcap", None)
    return linear_logprob(hidden_ND, net.head, target_N, bias=bias, softcap=softcap).view(batch.targets.shape)


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    weight: Weight,
    state: State,
    *,
    max_grad_norm: float = math.inf,
) -> tuple[StepFigures, State]:
    """One step on the micro-batches of this rank; the same for one batch of n and for n batches of one, on any number of ranks.

    Args:
      model: a `LanguageModel`.
      optimizer: of the model's parameters, its gradients zero.
      batches: this rank's micro-batches; may be empty, as long as some rank has one.
      weight: the loss.
      state: what the loss remembers: `weight.init()`, or the last step's.
      max_grad_norm: longer gradients are shortened to this; inf for none.

    Returns:
      The figures of the step, and the state for the next.

    Raises:
      FloatingPointError: the gradient is not finite. The weights are as they were.
    """
    device = next(model.parameters()).device
    total = distributed.count(batches, device=device)
    sums, seen = torch.zeros(2, dtype=torch.float64, device=device), None
    for batch in batches:
        logq_BL = log_probabilities(model, batch)
        w_BL, _ = weight.apply(logq_BL.detach(), batch.target_mask, state)
        loss, state = weighted_nll(logq_BL, batch.target_mask, weight, state, num_tokens=total.tokens)
        loss.backward()
        sums += torch.stack([loss.detach().double(), -logq_BL.detach().double().sum() / max(total.tokens, 1)])
        here = stats(w_BL, batch.target_mask)
        seen = here if seen is None else seen + here
    distributed.sum_gradients(model.parameters())
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    if not math.isfinite(grad_norm):  # the same on every rank, so that all stop or none
        raise FloatingPointError(
            f"the gradient of {weight} has norm {float(grad_norm):g}: the step is not made, and the weights are those of the step before. "
            "Lower the learning rate, give the loss a cap, or start from more NLL steps ('nll:steps=N then ...')"
        )
    optimizer.step()
    optimizer.zero_grad()
    scores = weight.seen(state)
    if weight.score_columns:  # the same on every rank, so that all or none gather
        scores = distributed.gather_scores(scores, rows=total.rows)
    state = weight.observe(scores, state)
    loss_sum, nll_sum = distributed.sum_figures(sums).tolist()
    return StepFigures(loss_sum, nll_sum, float(grad_norm), total.tokens, seen), state
