"""TRL's ``SFTTrainer`` with a loss of this package.

    from widen.hosts.trl import SFTTrainer
    SFTTrainer(model=model, args=SFTConfig(...), train_dataset=data, loss="cdiv:alpha=1.4").train()

TRL sums the log-probabilities of a fused head and divides by the targets of the step. Here widen's head computes the loss, and TRL gets it
in that form; ranks, accumulation, the balancing loss of experts and TRL's own figures stay TRL's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
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

    def _prepare_dataset(
        self, dataset: Any, processing_class: Any, args: Any, packing: bool, formatting_func: Any, dataset_name: str
    ) -> Any:
        """Pack the columns that the loss reads together with the tokens; TRL would drop them."""
        names = (
            [name for name in self._columns if has_column(dataset, name)] if packing and dataset_name == "train" else []
        )
        prepare = super()._prepare_dataset
        if not names:
            return prepare(dataset, processing_class, args, packing, formatting_func, dataset_name)
        if args.packing_strategy != "bfd" or args.max_length is None or args.truncation_mode != "keep_start":
            raise ValueError(
                f"packing_strategy={args.packing_strategy!r}, max_length={args.max_length}, truncation_mode={args.truncation_mode!r}: the "
                f"column {', '.join(names)} is packed only with 'bfd', a max_length and 'keep_start'. Use these, or padding_free=True "
                "with max_length=None"
            )
        made = prepare(dataset, processing_class, args, False, formatting_func, dataset_name)  # cut at max_length
        made = made.select_columns(["input_ids", "labels", *names]).map(
            partial(_spread, names=names, max_length=args.max_length)
        )
        return trl.pack_dataset(made, args.max_length, args.packing_strategy)

    def _sequences_per_row(self) -> float:
        """Read TRL's column of lengths, in up to a thousand packed rows."""
        data = self.train_dataset
        if not has_column(data, "seq_lengths") or not hasattr(data, "__len__") or not len(data):
            return 1.0
        packs = data[:1000]["seq_lengths"]
        return sum(map(len, packs)) / len(packs)

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


def _spread(row: Mapping[str, Any], *, names: list[str], max_length: int) -> dict[str, Any]:
    """One number per token of a row; a row of ``max_length`` tokens may have been cut at the end."""
    tokens, given = len(row["input_ids"]), {name: row[name] for name in names}
    for name, value in given.items():
        if isinstance(value, list) and (len(value) < tokens or len(value) > tokens < max_length):
            raise ValueError(
                f"{name} of a row has {len(value)} entries for {tokens} tokens; legal: one number, or one per token of input_ids"
            )
    return {
        name: value[:tokens] if isinstance(value, list) else [float(value)] * tokens for name, value in given.items()
    }


class _Outputs(NamedTuple):
    """What TRL's loss reads of a model with a fused head: sums over the micro-batch, where TRL has one entry per token."""

    log_probs: Tensor
    entropy: Tensor
    is_top1: Tensor
    label_mask: Tensor
    aux_loss: Tensor | None
