"""Refuse what cannot work together with ``loss`` when the trainer is made. Each of these would silently train on something else."""

from __future__ import annotations

from typing import Any

from torch import nn

from widen.data.rows import COLUMNS, COUNTED, needs_of
from widen.losses import Weight
from widen.models.checkpoint import state_tensors

from .fused_head import causal_lm

_SUPERVISED = ("SFTTrainer", "BaseTrainer", "_BaseTrainer")
"""TRL's trainer for supervised fine-tuning and what it is built on."""

_ONE_TOKEN = "cdiv, gold, dft, tailr, focal"
"""Losses that every host can train with."""

_PARALLELISM = {
    "sp_enabled": (
        "sequence parallelism (Ulysses): the trainer takes the model's own loss there and never calls compute_loss's, and a sequence's "
        "tokens lie on several ranks; `loss` would be ignored. Use FSDP2 or DDP with packing or gradient checkpointing"
    ),
    "cp_enabled": (
        "context parallelism splits a sequence over ranks, so that its position, length and score are known to none of them; not "
        "supported with `loss`. Use FSDP2 or DDP with gradient checkpointing"
    ),
    "tp_enabled": (
        "tensor parallelism gives the same batch to several ranks and splits lm_head; the loss's window would count every sequence "
        "several times. Not supported with `loss`: use FSDP2 or DDP"
    ),
}


def refuse_host(trainer: type, *, on_trl: bool) -> None:
    """A trainer of preferences or rewards has no use for these losses; TRL's SFTTrainer needs the mixin that answers in TRL's form."""
    other = [one.__name__ for one in trainer.__mro__ if one.__module__.startswith("trl.")]
    if any(name.endswith("Trainer") and name not in _SUPERVISED for name in other):
        raise ValueError(_supervised_only(trainer))
    theirs = [one for one in trainer.__mro__ if one.__module__.startswith("trl.") and one.__name__ == "SFTTrainer"]
    if theirs and not on_trl:
        raise ValueError(
            f"{trainer.__name__} is a subclass of TRL's SFTTrainer, which has a head of its own: take the mixin from there (from "
            f"widen.hosts.trl import WeightedLoss; class {trainer.__name__}(WeightedLoss, ...))"
        )


def refuse_unsupervised(trainer: type, *, supervised: str) -> None:
    """A trainer that is not the host's class for supervised fine-tuning."""
    if all(one.__name__ != supervised for one in trainer.__mro__):
        raise ValueError(_supervised_only(trainer))


def _supervised_only(trainer: type) -> str:
    return (
        f"{trainer.__name__}: supervised losses only. The losses here weigh the tokens of given answers; DPO, KTO, GRPO and other trainers "
        "on preferences or rewards compute another objective. Use the trainer for supervised fine-tuning"
    )


def refuse_loss(weight: Weight, *, host: str, state: bool = True, positions: bool = True) -> None:
    """Refuse a loss that needs more than a host offers: columns of the data, or ``state`` or ``positions`` where these are False."""
    needs = needs_of(weight)
    if not state and state_tensors(weight.init()):
        raise ValueError(
            f"{host} cannot train with loss={str(weight)!r}: it keeps a state between optimizer steps (a window of scores, or a count of "
            f"warm-up steps), which {host} neither shares between ranks nor saves; legal: losses without state, such as {_ONE_TOKEN}. "
            "For a warm-up, train with nll first and start from its checkpoint"
        )
    if columns := needs.difference(COLUMNS):
        raise ValueError(
            f"{host} cannot train with loss={str(weight)!r}: it reads the column {', '.join(sorted(columns))} of the data, which {host} "
            f"does not pass to a loss; legal: losses that read no column, such as {_ONE_TOKEN}. For this loss, use the trainer of "
            "widen.hosts.transformers or widen.hosts.trl"
        )
    if not positions and (not weight.token_local or needs & COUNTED):
        raise ValueError(
            f"{host} cannot train with loss={str(weight)!r}: it counts positions or looks at whole sequences, and {host} does not tell a "
            f"loss where the sequences of a packed row begin; legal: losses that look at one token, such as {_ONE_TOKEN}"
        )


def refuse_arguments(trainer: Any) -> None:
    """Two losses at once, and ways of running that go past the loss."""
    args, shown = trainer.args, str(trainer.objective.weight)
    if trainer.compute_loss_func is not None:
        raise ValueError(f"compute_loss_func and loss={shown!r} are two losses; give one of them")
    if args.label_smoothing_factor != 0:
        raise ValueError(
            f"label_smoothing_factor={args.label_smoothing_factor} and loss={shown!r} are two losses. Leave it at 0. "
            "loss='smooth:eps=...' is label smoothing. It multiplies with losses that only weigh tokens"
        )
    kind = getattr(args, "loss_type", "nll")
    if kind not in ("nll", "chunked_nll"):
        raise ValueError(
            f"loss_type={kind!r} and loss={shown!r} are two losses; leave loss_type at 'nll' ('dft' here is loss='dft')"
        )
    refuse_liger(args)
    if args.n_gpu > 1:
        raise ValueError(
            f"n_gpu={args.n_gpu}: several GPUs in one process mean nn.DataParallel, whose replicas cannot share a loss's state. Launch one "
            "process per GPU (torchrun or accelerate launch), or show one GPU with CUDA_VISIBLE_DEVICES"
        )
    plan = getattr(trainer.accelerator, "parallelism_config", None)
    for name, sentence in _PARALLELISM.items():
        if getattr(plan, name, False):
            raise ValueError(sentence)
    if trainer.accelerator.num_processes > 1 and not args.average_tokens_across_devices:
        raise ValueError(
            "average_tokens_across_devices=False divides each rank's loss by its own count of targets, so that a token's weight depends on "
            "the rank it fell to; leave it at True"
        )


def refuse_liger(args: Any) -> None:
    """Liger's fused cross entropy. Checked before the host is made too, because TRL asks for the package first."""
    if args.use_liger_kernel and (args.liger_kernel_config or {}).get("fused_linear_cross_entropy", True):
        raise ValueError(
            "use_liger_kernel=True replaces the model's forward by Liger's fused cross entropy, which knows no weights: `loss` would be "
            "ignored. Leave it out (the head is fused here anyway), or pass liger_kernel_config={'fused_linear_cross_entropy': False, "
            "'cross_entropy': False} to keep Liger's layers"
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
    if hasattr(head, "base_layer"):  # PEFT's adapters
        raise ValueError(
            "an adapter on lm_head: the log-probabilities are computed from lm_head.weight, so the adapter would never be trained. Remove "
            "'lm_head' from target_modules, or train the whole head with modules_to_save=['lm_head']"
        )
    if hasattr(head, "token_adapter"):
        raise ValueError(
            "trainable_token_indices on an embedding that lm_head shares: the log-probabilities are computed from lm_head.weight, without "
            "the trained tokens. Leave it out, or train both whole with modules_to_save=['embed_tokens', 'lm_head']"
        )
    copies = getattr(head, "modules_to_save", None)
    inner = next(iter(copies.values())) if isinstance(copies, nn.ModuleDict) and len(copies) else head
    weight = getattr(head, "weight", None)
    if weight is None or not weight.is_floating_point() or weight.dim() != 2 or not isinstance(inner, nn.Linear):
        raise ValueError(
            f"model: its output layer is {type(head).__name__}; `loss` needs a torch.nn.Linear that is not quantised"
        )


def refuse_auxiliary_loss(model: Any) -> None:
    """A mixture of experts whose balancing loss the Transformers trainer would leave out."""
    text = causal_lm(model).config.get_text_config()
    if getattr(text, "output_router_logits", False) and getattr(text, "router_aux_loss_coef", 0.0):
        raise ValueError(
            "model.config.output_router_logits=True adds a load-balancing loss inside the model's forward, which `loss` replaces; set it "
            "to False, or use widen.hosts.trl.SFTTrainer, which adds it"
        )
