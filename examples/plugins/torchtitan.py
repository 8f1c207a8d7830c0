"""A recipe for torchtitan: one of its own configurations with a loss of widen."""

from torchtitan.components.loss import ChunkedLossWrapper
from torchtitan.trainer import Trainer

from widen.hosts.torchtitan import WeightedLoss


def with_widen(config: Trainer.Config, loss: str = "cdiv:alpha=1.4") -> Trainer.Config:
    """Any configuration of torchtitan, trained with ``loss``; the logits are computed in chunks."""
    config.loss = ChunkedLossWrapper.Config(loss_fn=WeightedLoss.Config(loss=loss))
    return config
