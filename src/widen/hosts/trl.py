"""TRL's ``SFTTrainer`` with a loss of this package.

    from widen.hosts.trl import SFTTrainer
    SFTTrainer(model=model, args=SFTConfig(...), train_dataset=data, loss="cdiv:alpha=1.4").train()

TRL sums the log-probabilities of a fused head and divides by the targets of the step. Here widen's head computes the loss, and TRL gets it
in that form; ranks, accumulation, the balancing loss of experts and TRL's own figures stay TRL's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from widen.needs import require

require("widen.hosts.trl")

import trl
from torch import Tensor

from widen.head import SUMS

from .collate import has_column
from .fused_head import Reply, Request
from .weighted_loss import WeightedLoss as _WeightedLoss

__all__ = ["SFTTrainer", "WeightedLoss"]


class WeightedLoss(_WeightedLoss):
    """The mixin for subclasses of ``trl.SFTTrainer``, to the left: ``class Mine(WeightedLoss, TheirSFTTrainer)``."""

    on_trl = True
    # As TRL has it for its own NLL, which is divided by the count of targets that it is given.
    loss_is_scaled_for_ga = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._given_data = kwargs.get("train_dataset", args[3] if len(args) > 3 else None)
        super().__init__(*args, **kwargs)
        del self._given_data

    def _keep_columns(self) -> None:
        for name in self._columns:
            if self.args.packing and has_column(self._given_data, name):
                raise ValueError(
                    f"packing=True: TRL packs input_ids and labels and drops the column {name!r}. Use padding_free=True, or pack the data "
                    f"yourself, {name} included"
                )
        super()._keep_columns()

    def _is_asked_for_loss(self, kwargs: dict[str, Any]) -> bool:
        return bool(kwargs.pop("fused_lm_head", False))

    def _outputs(self, reply: Reply, request: Request) -> Any:
        assert request.seen is not None
        found = dict(zip(SUMS, request.seen.sums, strict=True))
        total = -reply.loss * max(request.num_targets, 1)  # TRL changes the sign and divides again
        return _Outputs(total, found["entropy"], found["top1"], found["tokens"], reply.aux_loss)

    def _figures(self, figures: dict[str, float]) -> dict[str, float]:
        """TRL's own entropy and accuracy, means over micro-batches, are replaced by those over the window's tokens."""
        for theirs, ours in (("entropy", "entropy"), ("mean_token_accuracy", "token_accuracy")):
            if ours in figures:
                self._metrics["train"][theirs] = [figures[ours]]
        return figures


class SFTTrainer(WeightedLoss, trl.SFTTrainer):
    """``trl.SFTTrainer`` and two arguments, `loss` and `weight_scale` (`WeightedLoss`); everything else is the host's."""


class _Outputs(NamedTuple):
    """What TRL's loss reads of a model with a fused head: sums over the micro-batch, where TRL has one entry per token."""

    log_probs: Tensor
    entropy: Tensor
    is_top1: Tensor
    label_mask: Tensor
    aux_loss: Tensor | None
