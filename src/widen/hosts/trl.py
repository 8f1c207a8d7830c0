"""TRL's ``SFTTrainer`` with a loss of this package.

    from widen.hosts.trl import SFTTrainer
    SFTTrainer(model=model, args=SFTConfig(...), train_dataset=data, loss="cdiv:alpha=1.4").train()

TRL already computes log-probabilities token by token without the logits (``fused_lm_head=True``), and its loss is their sum. So the
model's answer is given back to TRL's own ``compute_loss`` with each log-probability multiplied by its weight: the division by the
targets of the step, the ranks, a balancing loss of experts and TRL's figures stay TRL's.

Shapes: B rows, C columns, N = B C places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import trl
from torch import Tensor

from widen.data.targets import read_sequences, shifted_targets
from widen.head import HeadLoss, target_sums

from .refuse import refuse_model, refuse_sharded_head
from .weighted_loss import WeightedLoss as _WeightedLoss

__all__ = ["SFTTrainer", "WeightedLoss"]


class WeightedLoss(_WeightedLoss):
    """The mixin for subclasses of ``trl.SFTTrainer``, to the left: ``class Mine(WeightedLoss, TheirSFTTrainer)``."""

    on_trl = True

    # What TRL says of its own NLL: scaled by the count of targets that it is given. (Before transformers 5.19 TRL puts another
    # meaning on True.)
    loss_is_scaled_for_ga = None

    def _adopt(self, model: Any) -> None:
        refuse_model(model)  # the head is TRL's

    def _through_head(self, model: Any, tokens_1C: Tensor) -> Tensor:
        log_probs: Tensor = model(input_ids=tokens_1C, labels=tokens_1C, fused_lm_head=True, use_cache=False)[
            "log_probs"
        ]
        return log_probs[0]

    def _weighted(self, model: Any, inputs: dict[str, Any], num_items: Tensor | int) -> Callable[..., Any]:
        """A stand-in for the model whose log-probabilities carry their weights."""

        def answer(**kwargs: Any) -> Any:
            with refuse_sharded_head(self.accelerator.unwrap_model(self.model)):
                outputs = model(**kwargs)
            if not kwargs.get("fused_lm_head"):
                return outputs
            objective, sequences = self.objective, read_sequences(inputs)
            logq_N, entropy_N, top1_N = (
                _by_place(outputs[k], sequences.mask_N) for k in ("log_probs", "entropy", "is_top1")
            )
            w_N = objective.weigh(logq_N, sequences)
            w_BC = w_N.view(len(outputs["log_probs"]), -1)[:, :-1]
            # A token of weight 0 may have probability 0: its share is 0, not 0 * -inf.
            weighted = (
                torch.where(w_BC == 0, 0.0, w_BC * torch.where(w_BC == 0, 0.0, outputs["log_probs"]))
                / objective.divisor
            )
            loss = -weighted.detach().sum() / torch.as_tensor(num_items).clamp(min=1)
            tokens = sequences.mask_N.count_nonzero()
            sums = target_sums(logq_N, w_N, entropy_N, top1_N, tokens=tokens)
            out = HeadLoss(loss, logq_N, w_N, entropy_N, top1_N.bool(), len(w_N), sums)
            objective.add(
                out, sequences, inputs["input_ids"], divided_by=torch.as_tensor(num_items * objective.divisor)
            )
            outputs["log_probs"] = weighted
            return outputs

        return answer

    def _watched(self, model: Any, inputs: dict[str, Any]) -> Callable[..., Any]:
        def answer(**kwargs: Any) -> Any:
            outputs = model(**kwargs)
            if kwargs.get("fused_lm_head"):
                target_BC = shifted_targets(inputs)
                self._evaluation.note(
                    _by_place(outputs["log_probs"], target_BC.flatten() != -100).view_as(target_BC), target_BC
                )
            return outputs

        return answer

    def _figures(self, figures: dict[str, float]) -> dict[str, float]:
        """TRL's own entropy and accuracy, means over micro-batches, are replaced by those over the window's tokens."""
        for theirs, ours in (("entropy", "entropy"), ("mean_token_accuracy", "token_accuracy")):
            if ours in figures:
                self._metrics["train"][theirs] = [figures[ours]]
        return figures


class SFTTrainer(WeightedLoss, trl.SFTTrainer):
    """``trl.SFTTrainer`` and two arguments, `loss` and `weight_scale` (`WeightedLoss`); everything else is the host's."""


def _by_place(x_Bc: Tensor, mask_N: Tensor) -> Tensor:
    """One entry a place, from TRL's one fewer a row: nothing follows the last token. 0 where no target follows."""
    x_BC = torch.nn.functional.pad(x_Bc.detach().float(), (0, 1))
    if x_BC.numel() != len(mask_N):
        raise ValueError(
            f"the model returned {x_Bc.numel()} log-probabilities for {len(mask_N)} tokens; adapters that add virtual tokens (prompt and "
            "prefix tuning) are not supported with `loss`"
        )
    return torch.where(mask_N, x_BC.flatten(), 0.0)
