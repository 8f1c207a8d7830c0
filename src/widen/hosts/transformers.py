"""Transformers' ``Trainer`` with a loss of this package; transformers 4.57 and later.

from widen.hosts.transformers import Trainer
Trainer(model=model, args=args, train_dataset=data, loss="cdiv:alpha=1.4").train()
"""

from __future__ import annotations

from widen.needs import require

require("widen.hosts.transformers")

import transformers

from .weighted_loss import WeightedLoss

__all__ = ["Trainer", "WeightedLoss"]


class Trainer(WeightedLoss, transformers.Trainer):
    """``transformers.Trainer`` and two arguments, `loss` and `weight_scale` (`WeightedLoss`); everything else is the host's.

    Through the fused head: the logits of the batch are never held, in training and in evaluation without metrics.
    """
