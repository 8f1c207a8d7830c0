"""axolotl with a loss of this package, as a plug-in. Two entries of the YAML file:

    plugins: [widen.hosts.axolotl.WidenPlugin]
    widen_loss: cdiv:alpha=1.4

axolotl's own trainer gets the mixin of `weighted_loss.py`: the fused head, exact accumulation and ranks, packing, state in the checkpoints.
Supervised fine-tuning only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel

from widen.data.targets import IGNORE
from widen.losses import parse

from .weighted_loss import WeightedLoss

_OTHER_OBJECTIVES = ("rl", "reward_model", "process_reward_model", "orpo_alpha")
_SPLIT = ("context_parallel_size", "sequence_parallel_degree", "tensor_parallel_size")


class WidenArgs(BaseModel):
    """What the plug-in adds to axolotl's configuration."""

    widen_loss: str | None = None
    """A spec string, such as ``cdiv:alpha=1.4``."""
    widen_weight_scale: str = "raw"
    """``raw`` or ``mean_one`` (`widen.train.objective.Objective`)."""


class WidenPlugin(BasePlugin):
    """Trains with ``widen_loss``; without that entry of the configuration axolotl stays as it is."""

    def get_input_args(self) -> str:
        """The model that axolotl merges into its configuration."""
        return "widen.hosts.axolotl.WidenArgs"

    def get_trainer_cls(self, cfg: Any) -> type | None:
        """axolotl's trainer with our loss."""
        if not cfg.widen_loss:
            return None
        parse(cfg.widen_loss)
        for name in _OTHER_OBJECTIVES:
            if cfg[name]:
                raise ValueError(
                    f"{name}: {cfg[name]} with widen_loss: supervised losses only. The losses here weigh the tokens of given answers; a "
                    "trainer on preferences or rewards computes another objective"
                )
        for name in _SPLIT:
            if (cfg[name] or 1) > 1:
                raise ValueError(
                    f"{name}: {cfg[name]} with widen_loss splits a sequence or the head over ranks; not supported. Use FSDP2 or DDP"
                )
        return trainer_with(cfg.widen_loss, weight_scale=cfg.widen_weight_scale or "raw")


def trainer_with(loss: str, *, weight_scale: str = "raw") -> type:
    """A subclass of axolotl's trainer for supervised fine-tuning that trains with ``loss``."""
    from axolotl.core.trainers.base import AxolotlTrainer

    class WidenTrainer(WeightedLoss, AxolotlTrainer):
        """axolotl's trainer with a loss of widen."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            for name in ("data_collator", "eval_data_collator"):
                if kwargs.get(name) is not None:
                    kwargs[name] = _without_first_targets(kwargs[name])
            super().__init__(*args, loss=loss, weight_scale=weight_scale, **kwargs)

    return WidenTrainer


def _without_first_targets(collator: Callable[..., Any]) -> Callable[..., Any]:
    """The collator; in packed rows the first token of each sequence is no target, since another sequence would predict it."""

    def collate(*args: Any, **kwargs: Any) -> Any:
        batch = collator(*args, **kwargs)
        position_ids, labels = batch.get("position_ids"), batch.get("labels")
        if position_ids is not None and labels is not None and position_ids.shape == labels.shape:
            batch["labels"] = labels.masked_fill(position_ids == 0, IGNORE)
        return batch

    return collate
