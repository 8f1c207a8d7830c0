"""Our Hugging Face trainer with the settings of a fine-tuning."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .config import FineTune
from .defaults import Chosen
from .prepare import Prepared, Process
from .token_data import packed, padded

__all__ = ["arguments", "is_spread", "loading_once", "trainer_of", "use"]


def is_spread(config: FineTune) -> bool:
    """Whether FSDP is on: by the settings, or by ``accelerate launch``, which sets an environment variable."""
    return config.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


@contextmanager
def loading_once(config: FineTune) -> Iterator[None]:
    """With `FineTune.fsdp`, load the weights in the first process only, as ``accelerate launch`` does: eight copies would fill a host.

    transformers reads the environment variable and loads zeros in the other processes; accelerate then sends them the weights.
    """
    name, before = "ACCELERATE_USE_FSDP", os.environ.get("ACCELERATE_USE_FSDP")
    if config.fsdp:
        os.environ[name] = "true"
    try:
        yield
    finally:
        if config.fsdp and before is None:
            os.environ.pop(name, None)  # the next run of this process may not use FSDP


def arguments(one: Prepared, process: Process, resume: Path) -> Any:
    """The settings as TrainingArguments, except learning rate and warm-up, which `use` sets once the model is loaded.

    Micro-batches shrink if all processes together would exceed the batch size.
    """
    from transformers import TrainingArguments

    config = one.config
    micro = min(config.micro_batch, config.batch_size // process.world)
    if config.batch_size % (micro * process.world):
        raise ValueError(
            f"batch_size={config.batch_size} is no multiple of micro_batch={micro} x {process.world} processes"
        )
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
        save_steps=config.save_steps,
        logging_steps=1,
        logging_nan_inf_filter=False,
        seed=config.seed,
        fsdp=True if config.fsdp else None,
        # One FSDP unit per layer; one process reads the weights and sends them to the others.
        fsdp_config={"version": 2, "cpu_ram_efficient_loading": True} if config.fsdp else None,
        use_cpu=process.device == "cpu",
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to="none",
    )
    if args.world_size != process.world:
        raise ValueError(
            f"{args.world_size} processes where WORLD_SIZE says {process.world}: start with torchrun or accelerate launch"
        )
    if args.n_gpu > 1:
        # Several GPUs in one process would mean DataParallel, with another batch size; use torchrun for several GPUs.
        args._n_gpu = 1
    return args


def use(args: Any, chosen: Chosen) -> None:
    """Set the learning rate and the warm-up."""
    args.learning_rate, args.warmup_steps = chosen.lr, chosen.warmup_steps


def trainer_of(one: Prepared, model: Any, args: Any, watch: Any) -> Any:
    """The trainer; it prints nothing, the watcher reports."""
    from transformers import PrinterCallback

    from widen.hosts.collate import WithColumns
    from widen.hosts.ema import EMA
    from widen.hosts.transformers import Trainer

    pad = one.tokenizer.pad_token_id
    with_padding = partial(padded, pad=one.tokenizer.eos_token_id if pad is None else pad)

    class OnRows(Trainer):
        """Evaluation always pads: with several processes the host drops surplus rows by counting rows, one per sequence."""

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            collator: Any = vars(self)["data_collator"]
            self.data_collator = with_padding
            try:
                return super().get_eval_dataloader(eval_dataset)
            finally:
                self.data_collator = collator

    trainer = OnRows(
        model=model,
        args=args,
        train_dataset=one.train,
        eval_dataset=one.evaluate,
        data_collator=WithColumns(packed if one.config.packing else with_padding, tuple(one.train.columns)),
        callbacks=[watch, *([EMA(one.config.ema)] if one.config.ema else [])],
        loss=one.config.loss,
        weight_scale=one.config.weight_scale,
    )
    trainer.remove_callback(PrinterCallback)
    if is_spread(one.config) and not trainer.is_fsdp_enabled:
        raise ValueError(
            f"FSDP was asked for, and accelerate would run {trainer.accelerator.distributed_type} instead: it shards a model on GPUs only. "
            "Take GPUs, or leave FSDP out (`accelerate launch --multi_gpu`, torchrun)"
        )
    return trainer
