"""The running average of the weights during training, for any ``transformers.Trainer``, ours and TRL's included.

from widen.hosts.ema import EMA
Trainer(..., callbacks=[EMA(0.999)])
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor
from transformers import TrainerCallback

from widen.disk.atomic import write_bytes
from widen.models.checkpoint import load_tensors
from widen.train.settings import ema_decay

_FILE = "widen_ema.safetensors"


class EMA(TrainerCallback):
    """Averages the trained parameters in float32: after step t (from 0) the average keeps min(decay, (1 + t)/(10 + t)) of itself.

    The average lies in the first process, goes into every checkpoint as ``widen_ema.safetensors``, and a resumed run continues it.

    Args:
      decay: share of the average that a step keeps, in (0, 1).
    """

    def __init__(self, decay: float) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay={decay}: must be above 0 and below 1")
        self.decay = decay
        self.average: dict[str, Tensor] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Start from the weights, or from the checkpoint that the run continues."""
        if any(hasattr(p, "placements") for p in model.parameters()):
            raise ValueError(
                "EMA: the parameters are sharded (FSDP2), and an average of shards is not supported; train with DDP"
            )
        if not state.is_world_process_zero:
            return
        self.average = {name: p.detach().float().clone() for name, p in _trained(model)}
        if state.global_step:
            file = _folder(args, state) / _FILE
            if not file.is_file():
                raise ValueError(
                    f"{file.parent} has no {_FILE}: it was written without EMA, whose average cannot be continued"
                )
            for name, tensor in load_tensors(file).items():
                self.average[name].copy_(tensor)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Follow the weights."""
        follow = 1 - ema_decay(self.decay, state.global_step - 1)
        for name, parameter in _trained(model) if self.average else ():
            self.average[name].lerp_(parameter.detach().float(), follow)
        if control.should_save:
            self._save(
                args, state
            )  # before the host's own files: a checkpoint that is whole for the host is whole for us

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save beside the host's files, unless `on_step_end` has."""
        if not (_folder(args, state) / _FILE).is_file():
            self._save(args, state)

    def _save(self, args: Any, state: Any) -> None:
        if self.average:
            write_bytes(_folder(args, state) / _FILE, save({name: x.cpu() for name, x in self.average.items()}))

    def copy_to(self, model: Any) -> None:
        """Put the average into a model in place of its trained parameters."""
        with torch.no_grad():
            for name, parameter in _trained(model):
                parameter.copy_(self.average[name])


def _trained(model: Any) -> list[tuple[str, Tensor]]:
    return [(name.removeprefix("module."), p) for name, p in model.named_parameters() if p.requires_grad]


def _folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
