"""TRL's ``SFTTrainer`` with a loss of this package.

    from widen.hosts.trl import SFTTrainer
    SFTTrainer(model=model, args=SFTConfig(...), train_dataset=data, loss="cdiv:alpha=1.4").train()

TRL already computes log-probabilities token by token without the logits (``fused_lm_head=True``), and its loss is their sum. So the
model's answer is given back to TRL's own ``compute_loss`` with each log-probability multiplied by its weight: the division by the
targets of the step, the ranks, a balancing loss of experts and TRL's figures stay TRL's. A loss with another residual than softmax - onehot
(GEM, TOFU, label smoothing, an entropy bonus) goes through widen's own head instead.

Shapes: B rows, C columns, N = B C places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import trl
from torch import Tensor

from widen.data.rows import Rows
from widen.data.targets import LOSS_WEIGHTS, read_sequences, shifted_targets
from widen.head import SUMS, HeadLoss, target_sums
from widen.losses.residual import only_weighs

from .collate import has_column
from .fused_head import add_fused_head
from .head_check import through_our_head
from .refuse import refuse_model, refuse_sharded_head
from .weighted_loss import WeightedLoss as _WeightedLoss

__all__ = ["SFTTrainer", "WeightedLoss"]


class WeightedLoss(_WeightedLoss):
    """The mixin for subclasses of ``trl.SFTTrainer``, to the left: ``class Mine(WeightedLoss, TheirSFTTrainer)``."""

    on_trl = True

    # What TRL says of its own NLL: scaled by the count of targets that it is given. (Before transformers 5.19 TRL puts another
    # meaning on True.)
    loss_is_scaled_for_ga = None

    @property
    def _own_head(self) -> bool:
        """Whether the loss needs more than TRL's log-probabilities: another residual than softmax - onehot."""
        return not only_weighs(self.objective.asked)

    def _adopt(self, model: Any) -> None:
        refuse_model(model)
        if self._own_head:  # else the head is TRL's
            if getattr(self, "aux_loss_enabled", False):
                raise ValueError(
                    f"loss={str(self.objective.asked)!r} goes through widen's own head, which does not add the load-balancing loss of a "
                    "mixture of experts; set model.config.output_router_logits=False, or use a loss that only weighs tokens"
                )
            add_fused_head(model)

    def _keep_columns(self) -> None:
        if self.args.packing and has_column(self._given_data, LOSS_WEIGHTS):
            raise ValueError(
                f"packing=True: TRL packs input_ids and labels and drops the column {LOSS_WEIGHTS!r}. Use padding_free=True, or pack the "
                f"data yourself, {LOSS_WEIGHTS} included"
            )
        super()._keep_columns()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._given_data = kwargs.get("train_dataset", args[3] if len(args) > 3 else None)
        super().__init__(*args, **kwargs)
        del self._given_data

    def _through_head(self, model: Any, tokens_1C: Tensor) -> Tensor:
        if self._own_head:
            return through_our_head(model, tokens_1C)
        log_probs: Tensor = model(input_ids=tokens_1C, labels=tokens_1C, fused_lm_head=True, use_cache=False)[
            "log_probs"
        ]
        return log_probs[0]

    def _weighted(self, model: Any, inputs: dict[str, Any], num_items: Tensor | int) -> Callable[..., Any]:
        """A stand-in for the model whose log-probabilities carry their weights."""
        if self._own_head:
            return self._through_ours(super()._weighted(model, inputs, num_items), model, num_items)

        def answer(**kwargs: Any) -> Any:
            with refuse_sharded_head(self.accelerator.unwrap_model(self.model)):
                outputs = model(**kwargs)
            if not kwargs.get("fused_lm_head"):
                return outputs
            objective, sequences = self.objective, read_sequences(inputs, columns=self._columns[1:])
            logq_N, entropy_N, top1_N = (
                _by_place(outputs[k], sequences.mask_N) for k in ("log_probs", "entropy", "is_top1")
            )
            w_N = objective.weigh(Rows(logq_N, entropy=entropy_N, top1=top1_N), sequences)
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

    def _through_ours(self, ask: Callable[..., Any], model: Any, num_items: Tensor | int) -> Callable[..., Any]:
        """A stand-in for the model that gives the loss of our own head in the form in which TRL reads its own."""

        def answer(**kwargs: Any) -> Any:
            if not kwargs.pop("fused_lm_head", False):
                return model(**kwargs)
            loss = ask(**kwargs).loss
            found = dict(zip(SUMS, self.objective.pending[-1].sums.read(), strict=True))
            total = -loss * torch.as_tensor(num_items).clamp(min=1)  # TRL changes the sign and divides again
            entropy, top1, tokens = (loss.new_tensor(found[name]).detach() for name in ("entropy", "top1", "tokens"))
            return _Outputs(total, entropy, top1, tokens)

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


class _Outputs(NamedTuple):
    """What TRL's loss reads of a model with a fused head: sums over the micro-batch, where TRL has one entry per token."""

    log_probs: Tensor
    entropy: Tensor
    is_top1: Tensor
    label_mask: Tensor


def _by_place(x_Bc: Tensor, mask_N: Tensor) -> Tensor:
    """One entry a place, from TRL's one fewer a row: nothing follows the last token. 0 where no target follows."""
    x_BC = torch.nn.functional.pad(x_Bc.detach().float(), (0, 1))
    if x_BC.numel() != len(mask_N):
        raise ValueError(
            f"the model returned {x_Bc.numel()} log-probabilities for {len(mask_N)} tokens; adapters that add virtual tokens (prompt and "
            "prefix tuning) are not supported with `loss`"
        )
    return torch.where(mask_N, x_BC.flatten(), 0.0)
