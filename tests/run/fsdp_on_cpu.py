"""`widen train` with accelerate made to shard on a CPU, which it refuses to though torch can: for tests of what surrounds the sharding.

``torchrun --nproc-per-node 2 fsdp_on_cpu.py train config.json ...``
"""

import os
import sys
from pathlib import Path

from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

from widen.cli.__main__ import main
from widen.run.finetune import host_trainer
from widen.run.finetune import stage as finetuning

plain, plain_state = AcceleratorState.__init__, Accelerator.get_state_dict


def sharding(self, *args, fsdp_plugin=None, **kwargs):
    """What accelerate does where there are GPUs."""
    plain(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
    if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        if self._mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(self._mixed_precision)


def gathered(self, *args, **kwargs):
    """On a CPU torch leaves tensors that are still under way; on their way from a GPU they are waited for."""
    state = plain_state(self, *args, **kwargs)
    return {name: tensor.wait() if hasattr(tensor, "wait") else tensor for name, tensor in state.items()}


def noted(*args, **kwargs):
    """Leaves behind how large the weights are that this process has read."""
    model = plain_load(*args, **kwargs)
    if (folder := os.environ.get("NOTE_WEIGHTS")) is not None:
        size = sum(float(parameter.detach().abs().sum()) for parameter in model.parameters())
        Path(folder, f"read_by_{os.environ['RANK']}").write_text(str(size))
    return model


finetuning.load_model, plain_load = noted, finetuning.load_model
AcceleratorState.__init__ = sharding
Accelerator.get_state_dict = gathered
host_trainer._check_fsdp = lambda device: None
sys.exit(main())
