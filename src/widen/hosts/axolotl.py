"""A plug-in that trains with a loss of this package in axolotl. Add two entries to the YAML file:

    plugins: [widen.hosts.axolotl.WidenPlugin]
    widen_loss: cdiv:alpha=1.4

axolotl's own trainer gets the mixin of `weighted_loss.py`. So the fused head, exact gradient accumulation over ranks, packing and the
loss's state in the checkpoints work as there. The plug-in is for supervised fine-tuning only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel

from widen.data.rows import COLUMNS, needs_of
from widen.data.targets import IGNORE, LOSS_WEIGHTS
from widen.losses import parse

from .collate import WithColumns
from .weighted_loss import WeightedLoss

_OTHER_OBJECTIVES = ("rl", "reward_model", "process_reward_model", "orpo_alpha", "use_eaft")
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
                    f"axolotl cannot train with widen_loss: {cfg.widen_loss} and {name}: {cfg[name]}, because these are two objectives; "
                    f"legal: supervised fine-tuning without {name}"
                )
        for name in _SPLIT:
            if (cfg[name] or 1) > 1:
                raise ValueError(
                    f"axolotl cannot train with widen_loss: {cfg.widen_loss} and {name}: {cfg[name]}, because it splits a sequence or the "
                    f"head over ranks; legal: {name}: 1 with FSDP2 or DDP"
                )
        return trainer_with(cfg.widen_loss, weight_scale=cfg.widen_weight_scale or "raw")


def trainer_with(loss: str, *, weight_scale: str = "raw") -> type:
    """A subclass of axolotl's trainer for supervised fine-tuning that trains with ``loss``."""
    from axolotl.core.trainers.base import AxolotlTrainer

    columns = (LOSS_WEIGHTS, *needs_of(parse(loss)).difference(COLUMNS))

    class WidenTrainer(WeightedLoss, AxolotlTrainer):
        """axolotl's trainer with a loss of widen."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            for name in ("data_collator", "eval_data_collator"):
                if kwargs.get(name) is not None:
                    kwargs[name] = _adapted(kwargs[name], columns)
            super().__init__(*args, loss=loss, weight_scale=weight_scale, **kwargs)

    return WidenTrainer


def _adapted(collator: Callable[..., Any], columns: Sequence[str]) -> Callable[..., Any]:
    """Wrap a collator so that it keeps ``columns``, and the first token of a packed sequence is no target.

    Another sequence would predict that token.
    """
    keeping = WithColumns(collator, columns)

    def collate(features: Any, *args: Any, **kwargs: Any) -> Any:
        packed = isinstance(features[0], list)  # then axolotl concatenates every column itself
        batch = (collator if packed else keeping)(features, *args, **kwargs)
        position_ids, labels = batch.get("position_ids"), batch.get("labels")
        if position_ids is not None and labels is not None and position_ids.shape == labels.shape:
            batch["labels"] = labels.masked_fill(position_ids == 0, IGNORE)
        return batch

    return collate
