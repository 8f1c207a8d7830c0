"""The processes of a fine-tuning, and our Hugging Face trainer with its settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .config import FineTune
from .defaults import Chosen, device_for
from .token_data import TokenData, packed, padded


@dataclass(frozen=True, kw_only=True)
class Process:
    """This process: its device and its rank among the processes that train together."""

    device: str
    rank: int
    world: int

    @property
    def main(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0


def process_of(device: str | None, config: FineTune) -> Process:
    """This process. Refuses what this machine cannot do, before any data is read."""
    chosen = device_for(device)
    process = Process(device=chosen, rank=int(os.environ.get("RANK", 0)), world=int(os.environ.get("WORLD_SIZE", 1)))
    for one in config.chain:
        if chosen == "cpu" and one.precision == "fp16":
            raise ValueError("precision='fp16' needs a GPU; on a CPU take fp32 or bf16")
        if one.fsdp:
            _check_fsdp(chosen)
        if one.batch_size % process.world:
            raise ValueError(
                f"batch_size={one.batch_size} cannot be shared equally by {process.world} processes: take a multiple of {process.world}"
            )
    return process


def _check_fsdp(device: str) -> None:
    if device == "cpu" or "WORLD_SIZE" not in os.environ:
        raise ValueError(
            "fsdp=True (--fsdp) spreads a model over the GPUs of processes that torchrun starts: "
            "torchrun --nproc-per-node GPUS -m widen.cli train ... --fsdp"
        )


def is_spread(config: FineTune) -> bool:
    """Whether FSDP is on, by the config or by ``accelerate launch``, which sets an environment variable."""
    return config.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


@contextmanager
def loading_once(config: FineTune) -> Iterator[None]:
    """With `FineTune.fsdp`, load the weights in the first process only, as ``accelerate launch`` does.

    transformers reads the environment variable and loads zeros in the other processes; accelerate then sends them the weights.
    """
    name, before = "ACCELERATE_USE_FSDP", os.environ.get("ACCELERATE_USE_FSDP")
    if config.fsdp:
        os.environ[name] = "true"
    try:
        yield
    finally:
        if config.fsdp and before is None:
            os.environ.pop(name, None)


def training_arguments(config: FineTune, process: Process, resume: Path, *, eval_steps: int) -> Any:
    """The settings as TrainingArguments, without learning rate and warm-up, which depend on the loaded model.

    Micro-batches shrink if all processes together would exceed the batch size.
    """
    from transformers import TrainingArguments

    micro = min(config.micro_batch, config.batch_size // process.world)
    if config.batch_size % (micro * process.world):
        raise ValueError(
            f"batch_size={config.batch_size}: must be a multiple of micro_batch={micro} x {process.world} processes"
        )
    if config.report_to == "tensorboard":  # the default is inside ``resume``, which is removed at the end
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(resume.with_name("tensorboard")))
    best: dict[str, Any] = {}
    if config.patience is not None:  # the host keeps the best of its checkpoints, so each evaluation has one
        best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": False}
        best |= {"eval_strategy": "steps", "eval_steps": eval_steps, "restore_callback_states_from_checkpoint": True}
    args = TrainingArguments(
        output_dir=str(resume),
        per_device_train_batch_size=micro,
        per_device_eval_batch_size=micro,
        gradient_accumulation_steps=config.batch_size // (micro * process.world),
        num_train_epochs=config.epochs,
        max_steps=config.max_steps,
        lr_scheduler_type=config.schedule,
        lr_scheduler_kwargs={"min_lr_rate": 0.1} if config.schedule == "cosine_with_min_lr" else None,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        optim="adamw_torch_fused" if process.device == "cuda" else "adamw_torch",
        bf16=config.precision == "bf16",
        fp16=config.precision == "fp16",
        gradient_checkpointing=config.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if config.gradient_checkpointing else None,
        train_sampling_strategy="group_by_length" if config.group_by_length else "random",
        prediction_loss_only=True,
        save_strategy="steps",
        save_steps=config.save_steps if config.patience is None else eval_steps,
        logging_steps=1,
        logging_nan_inf_filter=False,
        seed=config.seed,
        fsdp=True if config.fsdp else None,
        # One FSDP unit per layer; one process reads the weights and sends them to the others.
        fsdp_config={"version": 2, "cpu_ram_efficient_loading": True} if config.fsdp else None,
        use_cpu=process.device == "cpu",
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to=config.report_to,
        run_name=resume.parent.name,
        **best,
    )
    if args.world_size != process.world:
        raise ValueError(
            f"{args.world_size} processes where WORLD_SIZE says {process.world}: start with torchrun or accelerate launch"
        )
    if args.n_gpu > 1:
        args._n_gpu = 1  # several GPUs in one process would mean DataParallel, with another batch size
    return args


def trainer_of(
    config: FineTune, model: Any, tokenizer: Any, data: dict[str, TokenData], args: Any, chosen: Chosen, watch: Any
) -> Any:
    """The trainer. It prints nothing; the callback ``watch`` reports."""
    from transformers import EarlyStoppingCallback, PrinterCallback

    from widen.hosts.collate import WithColumns
    from widen.hosts.ema import EMA
    from widen.hosts.transformers import Trainer

    args.learning_rate, args.warmup_steps = chosen.lr, chosen.warmup_steps
    pad = tokenizer.pad_token_id
    with_padding = partial(padded, pad=tokenizer.eos_token_id if pad is None else pad)

    class OnRows(Trainer):
        """The trainer with two changes: how it evaluates, and no false warning about tied weights."""

        def _issue_warnings_after_load(self, load_result: Any) -> None:
            # A checkpoint holds tied weights once. The host warns that the second name is missing, though both share one tensor.
            tied = getattr(self.model, "all_tied_weights_keys", {})
            missing = [name for name in load_result.missing_keys if name not in tied]
            super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            # Evaluation always pads: with several processes the host drops surplus sequences by counting rows.
            collator: Any = vars(self)["data_collator"]
            self.data_collator = with_padding
            try:
                return super().get_eval_dataloader(eval_dataset)
            finally:
                self.data_collator = collator

    trainer = OnRows(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data.get("evaluate"),
        data_collator=WithColumns(packed if config.packing else with_padding, tuple(data["train"].columns)),
        callbacks=[
            watch,
            *([EarlyStoppingCallback(config.patience)] if config.patience else []),
            *([EMA(config.ema)] if config.ema else []),
        ],
        loss=config.loss,
        weight_scale=config.weight_scale,
    )
    trainer.remove_callback(PrinterCallback)
    if is_spread(config) and not trainer.is_fsdp_enabled:
        raise ValueError(
            f"FSDP was asked for, and accelerate would run {trainer.accelerator.distributed_type} instead: it shards a model on GPUs only. "
            "Use GPUs, or leave FSDP out (`accelerate launch --multi_gpu`, torchrun)"
        )
    return trainer
