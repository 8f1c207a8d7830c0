"""What cannot work together with ``loss``, said when the trainer is made: each would train on something else without a word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from .fused_head import causal_lm

__all__ = [
    "refuse_arguments",
    "refuse_auxiliary_loss",
    "refuse_host",
    "refuse_liger",
    "refuse_model",
    "refuse_sharded_head",
]


def refuse_host(trainer: type, *, on_trl: bool) -> None:
    """A trainer that takes its log-probabilities from a head of its own needs the mixin that reads those."""
    theirs = [one for one in trainer.__mro__ if one.__module__.startswith("trl.") and one.__name__ == "SFTTrainer"]
    if theirs and not on_trl:
        raise ValueError(
            f"{trainer.__name__} is a subclass of TRL's SFTTrainer, which has a head of its own: take the mixin from there (from "
            f"widen.hosts.trl import WeightedLoss; class {trainer.__name__}(WeightedLoss, ...))"
        )


def refuse_arguments(trainer: Any) -> None:
    """Two losses at once, and ways of running that go past the loss."""
    _refuse_second_loss(trainer)
    args = trainer.args
    refuse_liger(args)
    if args.n_gpu > 1:
        raise ValueError(
            f"n_gpu={args.n_gpu}: several GPUs in one process mean nn.DataParallel, whose replicas cannot share a loss's state. Launch one "
            "process a GPU (torchrun or accelerate launch), or show one GPU with CUDA_VISIBLE_DEVICES"
        )
    _refuse_parallelism(trainer)
    if trainer.accelerator.num_processes > 1 and not args.average_tokens_across_devices:
        raise ValueError(
            "average_tokens_across_devices=False divides each rank's loss by its own count of targets, so that a token's weight depends on "
            "the rank it fell to; leave it at True"
        )


def refuse_liger(args: Any) -> None:
    """Before the host is made too: TRL's asks for the package first, which would be installed to no avail."""
    if args.use_liger_kernel and (args.liger_kernel_config or {}).get("fused_linear_cross_entropy", True):
        raise ValueError(
            "use_liger_kernel=True replaces the model's forward by Liger's fused cross entropy, which knows no weights: `loss` would be "
            "ignored. Leave it out (the head is fused here anyway), or pass liger_kernel_config={'fused_linear_cross_entropy': False, "
            "'cross_entropy': False} to keep Liger's layers"
        )


def _refuse_second_loss(trainer: Any) -> None:
    args, shown = trainer.args, trainer.objective.weight
    if trainer.compute_loss_func is not None:
        raise ValueError(f"compute_loss_func and loss={str(shown)!r} are two losses; give one of them")
    if args.label_smoothing_factor != 0:
        raise ValueError(
            f"label_smoothing_factor={args.label_smoothing_factor} and loss={str(shown)!r} are two losses: Leave it at 0. "
            "Label smoothing alone is loss='smooth:eps=...', and it multiplies with losses that only weigh tokens"
        )
    kind = getattr(args, "loss_type", "nll")
    if kind not in ("nll", "chunked_nll"):
        raise ValueError(
            f"loss_type={kind!r} and loss={str(shown)!r} are two losses; leave loss_type at 'nll' ('dft' here is loss='dft')"
        )


def _refuse_parallelism(trainer: Any) -> None:
    plan = getattr(trainer.accelerator, "parallelism_config", None)
    if plan is None:
        return
    if getattr(plan, "sp_enabled", False):
        raise ValueError(
            "sequence parallelism (Ulysses): the trainer takes the model's own loss there and never calls compute_loss's, and a sequence's "
            "tokens lie on several ranks; `loss` would be ignored. Use FSDP2 or DDP with packing or gradient checkpointing"
        )
    if getattr(plan, "cp_enabled", False):
        raise ValueError(
            "context parallelism splits a sequence over ranks, so that its position, length and score are known to none of them; not "
            "supported with `loss`. Use FSDP2 or DDP with gradient checkpointing"
        )
    if getattr(plan, "tp_enabled", False):
        raise ValueError(
            "tensor parallelism gives the same batch to several ranks and splits lm_head; the loss's window would count every sequence "
            "several times. Not supported with `loss`: use FSDP2 or DDP"
        )


def refuse_model(model: Any) -> None:
    """A head that is not the linear layer it seems to be."""
    net = causal_lm(model)
    head = net.get_output_embeddings() if hasattr(net, "get_output_embeddings") else None
    if head is None or getattr(net.config, "is_encoder_decoder", False):
        raise ValueError(f"model: {type(net).__name__} is no causal language model with an lm_head; `loss` needs one")
    if net.base_model is net:
        raise ValueError(
            f"model: {type(net).__name__} does not say which of its parts gives the hidden states (base_model_prefix); `loss` needs them"
        )
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise ValueError(
            "prompt and prefix tuning put virtual tokens before each row, which have no label; `loss` supports LoRA and its relatives"
        )
    if _is_adapter(head):
        raise ValueError(
            "an adapter on lm_head: the log-probabilities are computed from lm_head.weight, so the adapter would never be trained. Remove "
            "'lm_head' from target_modules, or train the whole head with modules_to_save=['lm_head']"
        )
    weight = getattr(head, "weight", None)
    if weight is None or not weight.is_floating_point() or weight.dim() != 2 or not _is_linear(head):
        raise ValueError(
            f"model: its output layer is {type(head).__name__}; `loss` needs a torch.nn.Linear that is not quantised"
        )


def refuse_auxiliary_loss(model: Any) -> None:
    """A mixture of experts that adds a balancing loss in its own forward, which is not run here."""
    text = causal_lm(model).config.get_text_config()
    if getattr(text, "output_router_logits", False) and getattr(text, "router_aux_loss_coef", 0.0):
        raise ValueError(
            "model.config.output_router_logits=True adds a load-balancing loss inside the model's forward, which `loss` replaces; set it "
            "to False, or use widen.hosts.trl.SFTTrainer, which adds it"
        )


@contextmanager
def refuse_sharded_head(model: Any) -> Iterator[None]:
    """Around a forward of TRL's fused head, which reads ``lm_head.weight`` without calling ``lm_head``.

    Where FSDP2 holds lm_head as a unit of its own the weight is then still a shard; TRL gathers it by ``full_tensor()``, whose backward
    takes the ranks' different gradients for copies of one and sums none of them. Measured: a third of the gradient's norm is wrong, TRL's
    own NLL included. As accelerate lays it out, with the last norm in the same unit, the weight is whole and the gradient right.
    """
    net = causal_lm(model)
    found = net.get_output_embeddings

    def checked() -> Any:
        head = found()
        if hasattr(head.weight, "placements"):
            raise ValueError(
                "lm_head is an FSDP2 unit of its own, and TRL's fused head does not gather such a one: the gradient of lm_head would "
                "be that of one rank. Shard it together with the last norm (fully_shard([model.model.norm, model.lm_head]), as accelerate "
                "does), or use widen.hosts.transformers.Trainer"
            )
        return head

    net.get_output_embeddings = checked
    try:
        yield
    finally:
        del net.get_output_embeddings


def _is_adapter(head: nn.Module) -> bool:
    try:
        from peft.tuners.tuners_utils import BaseTunerLayer
    except ImportError:
        return False
    return isinstance(head, BaseTunerLayer)


def _is_linear(head: nn.Module) -> bool:
    copies = getattr(head, "modules_to_save", None)
    inner = next(iter(copies.values())) if isinstance(copies, nn.ModuleDict) and len(copies) else head
    return isinstance(inner, nn.Linear)
