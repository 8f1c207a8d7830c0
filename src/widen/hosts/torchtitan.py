"""torchtitan with a loss of this package, as a loss component. In the function that returns the ``Trainer.Config``:

    from widen.hosts.torchtitan import WeightedLoss
    config.loss = ChunkedLossWrapper.Config(loss_fn=WeightedLoss.Config(loss="cdiv:alpha=1.4"))     # or WeightedLoss.Config(...) alone

torchtitan hands a loss logits, labels that are shifted already, and the targets of the whole step. It does not say where the sequences of a
packed row begin, and a chunk holds a part of each: the losses that look at one token work, the others are refused.

Shapes: B rows, C columns, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import spmd_types as spmd
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torchtitan.components.loss import BaseLoss
from torchtitan.distributed.spmd_types import spmd_mesh_size

from widen.data.targets import Sequences
from widen.losses import NLL, parse
from widen.train.objective import Objective

from .refuse import refuse_loss


class WeightedLoss(BaseLoss):
    """The weighted loss of the targets; NLL in validation, where no gradient is taken."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseLoss.Config):
        """The loss as a value of the configuration."""

        loss: str = "nll"
        """A spec string, such as ``cdiv:alpha=1.4``."""

    def __init__(self, config: Config, *, compile_config: Any = None) -> None:
        """``compile_config`` is not used: the loss runs as PyTorch operations."""
        weight = parse(config.loss)
        refuse_loss(weight, host="torchtitan", state=False, positions=False)
        self.training, self.validation = Objective(weight), Objective(NLL())

    def __call__(
        self, pred: Tensor, labels: Tensor, global_valid_tokens: Tensor | None = None, **loss_inputs: Any
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Sum over the targets of this (part of a) micro-batch, divided by ``global_valid_tokens``."""
        if isinstance(pred, DTensor) or spmd_mesh_size("tp") > 1:
            raise ValueError(
                "the logits are sharded (tensor parallelism, or spmd_backend='full_dtensor'): not supported with a loss of widen; use "
                "FSDP, and context parallelism if you need it"
            )
        if global_valid_tokens is None and torch.is_grad_enabled():
            raise ValueError(
                "global_valid_tokens is None: micro-batches would weigh by their own number of targets; torchtitan's trainer passes it"
            )
        objective = self.training if torch.is_grad_enabled() else self.validation
        checked = spmd.is_type_checking()
        with spmd.no_typecheck():
            out = objective.through_logits(pred.flatten(0, 1), Sequences(labels.long()), num_tokens=1.0)
            loss = out.loss if global_valid_tokens is None else out.loss / global_valid_tokens
            if checked:
                spmd.assert_type(loss, {"dp": spmd.P, "cp": spmd.P, "tp": spmd.I})
        return loss, {}
