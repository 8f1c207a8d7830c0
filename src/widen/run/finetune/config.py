"""Fine-tuning a real model, as a value: model, data, loss and settings.

Learning rate and warm-up default to None: `defaults.py` chooses them from the size of the model and the number of steps.
`FineTune.after` is the paper's "checkpoint obtained after one epoch of NLL training": trained once, shared by every run that names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from widen.data.rows import needs_of
from widen.losses import REF_LOGQ, Weight, parse, spec

from ..value import NEWER, content_hash, file_name, from_json, read_config, to_json

PRECISIONS = {
    "bf16": "bfloat16 autocast, float32 weights and optimizer",
    "fp16": "float16 autocast with a loss scale, float32 weights and optimizer",
    "fp32": "float32 throughout",
    "pure_bf16": "bfloat16 weights and optimizer: half the memory; steps smaller than 1/256 of a weight are lost",
}
SCHEDULES = ("constant_with_warmup", "constant", "linear", "cosine", "cosine_with_min_lr")
"""Learning-rate schedules. ``cosine_with_min_lr`` falls to a tenth; all but ``constant`` start with a linear warm-up."""
LEGAL: dict[str, Iterable[str]] = {
    "precision": PRECISIONS,
    "schedule": SCHEDULES,
    "weight_scale": ("raw", "mean_one"),
    "save_dtype": ("trained", "auto", "bfloat16", "float16", "float32"),
    "report_to": ("none", "wandb", "trackio", "tensorboard"),
}
LEAST = {"max_length": 2, "batch_size": 1, "micro_batch": 1, "save_steps": 1, "eval_steps": 1, "patience": 1}
LEAST |= {"warmup_steps": 0, "weight_decay": 0, "max_grad_norm": 0}


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where examples come from.

    Args:
      task: the format of a record, a name of `widen.data.tasks.TASKS`.
      path: a file (.jsonl, .json, .csv, .tsv, .txt, .parquet) or a data set of the hub; "" is the task's own data set.
      split: of a data set of the hub; a file has none.
      limit: use the first N records; None uses all.
      prompt_field, completion_field: names of these fields, for the task ``jsonl``; None takes ``prompt`` and ``completion``.
      distinct: learn each distinct example once; its repeats are left out.
    """

    task: str = "jsonl"
    path: str = ""
    split: str = "train"
    limit: int | None = None
    prompt_field: str | None = field(default=None, metadata=NEWER)
    completion_field: str | None = field(default=None, metadata=NEWER)
    distinct: bool = field(default=False, metadata=NEWER)

    def __post_init__(self) -> None:
        from widen.data.tasks import task

        known = task(self.task)
        if not self.path and known.hub is None:
            raise ValueError(
                f"path is empty, and the task {self.task!r} has no data set of its own: give a file (--data)"
            )
        for name in ("prompt_field", "completion_field"):
            if getattr(self, name) is not None and self.task != "jsonl":
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(
                    f"{name}={getattr(self, name)!r} ({flag}): the task {self.task!r} has its own fields; only jsonl takes other names"
                )
        _at_least("limit", self.limit, 1)


@dataclass(frozen=True, kw_only=True)
class Lora:
    """A low-rank adapter, trained instead of all weights.

    Args:
      alpha: the adapter's output is scaled by alpha / rank.
      dropout: on the adapter's input.
      targets: "all-linear" (every linear layer but the head), or names of layers as a list or with commas: "q_proj,v_proj".
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: str | tuple[str, ...] = "all-linear"

    def __post_init__(self) -> None:
        _as_floats(self, "alpha", "dropout")
        if not isinstance(self.targets, str):
            object.__setattr__(self, "targets", ",".join(self.targets))
        _at_least("rank", self.rank, 1)
        if not self.alpha > 0:
            raise ValueError(f"alpha={self.alpha}: must be above 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}: must be at least 0 and below 1")
        if not all(name.strip() for name in str(self.targets).split(",")):
            raise ValueError(f"targets={self.targets!r}: write all-linear, or names with commas as in q_proj,v_proj")


@dataclass(frozen=True, kw_only=True)
class FineTune:
    """One fine-tuned model.

    Args:
      model: a folder or a name on the hub; the folder of another run stands for its checkpoint.
      evaluate: held-out examples; their NLL is logged every ``eval_steps`` steps (default: after every epoch).
      patience: stop after this many evaluations without a lower NLL, and keep the best model.
      save_dtype: of the finished weights: "trained" (as `precision` says), "auto" (as the model had at the start), or a dtype.
      report_to: see `LEGAL`. Not part of `key`.
      loss: a spec or a loss object, stored as its spec.
      after: trained first; this run starts from its model.
      lora: train an adapter; None trains all weights.
      load_in_4bit: hold the frozen weights under an adapter in 4 bits (QLoRA: NF4, double quantisation) by bitsandbytes.
      precision: see `PRECISIONS`.
      max_length: most tokens of an example; `widen.data.tasks.encode` cuts longer ones.
      packing: join the sequences of a micro-batch without padding; each attends to itself only.
      group_by_length: batch examples of similar length: less padding, another order.
      gradient_checkpointing: recompute activations in the backward pass to save memory.
      epochs, max_steps: length of the run; max_steps overrides epochs unless it is -1.
      batch_size: sequences per optimizer step, over all devices and micro-batches.
      micro_batch: sequences per device at once.
      lr: None chooses it by the number of parameters (`defaults.learning_rate`).
      schedule: see `SCHEDULES`.
      warmup_steps: steps of linear warm-up; None takes 3 % of the steps.
      max_grad_norm: clip gradients to this norm; 0 turns clipping off. Keep 1 for c-Div above alpha = 1.
      reference: folder or hub name of a reference model, for a loss that compares with one (`asft`, `anchor`).
      ema: decay of a running average of the weights, which goes to ``checkpoint/average``; 0 keeps none.
      weight_scale: "raw", or "mean_one" to divide the weights by their mean.
      seed: of the order of the data, of dropout and of the adapter's first values.
      save_steps: steps between checkpoints to resume from. Not part of `key`.
      fsdp: shard weights, gradients and optimizer over the GPUs of all processes (FSDP2). Not part of `key`.

    Examples:
      >>> config = FineTune(model="allenai/OLMo-1B-hf", train=Source(task="mathqa_python", path="train.jsonl"), loss="gold")
      >>> config.loss == FineTune(model="allenai/OLMo-1B-hf", train=config.train, loss="cdiv:alpha=0.5").loss
      True
      >>> from_json(FineTune, to_json(config)) == config
      True
    """

    model: str
    train: Source
    evaluate: Source | None = None
    loss: str | Weight = "nll"
    after: FineTune | None = None
    lora: Lora | None = None
    precision: str = "bf16"
    max_length: int = 1024
    packing: bool = False
    group_by_length: bool = False
    gradient_checkpointing: bool = False
    epochs: float = 1.0
    max_steps: int = -1
    batch_size: int = 8
    micro_batch: int = 8
    lr: float | None = None
    schedule: str = "constant_with_warmup"
    warmup_steps: int | None = None
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    weight_scale: str = "raw"
    seed: int = 0
    save_steps: int = 500
    fsdp: bool = False
    reference: str | None = None
    ema: float = 0.0
    eval_steps: int | None = None
    patience: int | None = None
    save_dtype: str = "trained"
    report_to: str = "none"
    load_in_4bit: bool = False

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model is empty: give a folder, or a name on the hub")
        # One spelling per value, so that equal settings have one key: "gold" becomes c-Div, 3 epochs become 3.0.
        object.__setattr__(self, "loss", spec(self.loss))
        _as_floats(self, "epochs", "weight_decay", "max_grad_norm", "ema", *(["lr"] if self.lr is not None else []))
        for name, known in LEGAL.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be one of {', '.join(known)}")
        for name, least in LEAST.items():
            _at_least(name, getattr(self, name), least)
        for name in ("eval_steps", "patience"):
            if getattr(self, name) is not None and self.evaluate is None:
                raise ValueError(f"{name}={getattr(self, name)} needs held-out data (evaluate, --eval)")
        if self.batch_size % self.micro_batch:
            raise ValueError(f"batch_size={self.batch_size}: must be a multiple of micro_batch={self.micro_batch}")
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"lr={self.lr}: must be above 0")
        if self.max_steps < 1 and self.max_steps != -1:
            raise ValueError(f"max_steps={self.max_steps} (--steps): must be at least 1, or -1 to go by epochs")
        if self.max_steps == -1 and not self.epochs > 0:
            raise ValueError(f"epochs={self.epochs}, max_steps={self.max_steps}: one of them must be above 0")
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema={self.ema} (--ema): must be at least 0 and below 1")
        if self.ema and self.fsdp:
            raise ValueError("ema and fsdp: widen cannot average weights that are sharded over GPUs; take one of them")
        asks = REF_LOGQ in needs_of(parse(self.loss))
        if asks and not self.reference:
            raise ValueError(
                f"loss={self.loss!r} compares with a reference model, and none is named: give it (--reference)"
            )
        if self.reference and not asks:
            raise ValueError(
                f"reference={self.reference!r} (--reference): loss={self.loss!r} does not read it; leave it out"
            )
        if self.load_in_4bit and (self.lora is None or self.fsdp):
            why = "weights of 4 bits cannot be trained, give --lora R" if self.lora is None else "leave --fsdp out"
            raise ValueError(f"load_in_4bit (--load-in-4bit): {why}")
        if self.packing and self.group_by_length:
            raise ValueError("packing and group_by_length: packed sequences have no padding to save, take one of them")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed}: must be at least 0 and below 2**32")

    @property
    def key(self) -> str:
        """Hash of what determines the trained model. Data and weights count by name; `fine_tune` checks their content.

        >>> from dataclasses import replace
        >>> config = FineTune(model="m", train=Source(path="train.jsonl"))
        >>> [config.key == replace(config, **one).key for one in ({"save_steps": 7}, {"epochs": 1}, {"seed": 1})]
        [True, True, False]
        """
        return content_hash(decisive(to_json(self)))

    @property
    def folder_name(self) -> str:
        """Readable and unique: model, loss, seed and key."""
        model = file_name(Path(self.model).name)[-40:].strip("_.-") or "model"
        return f"{model}-{file_name(str(self.loss))[:60]}-seed{self.seed}-{self.key}"

    @property
    def chain(self) -> list[FineTune]:
        """The trainings in order: first the one that this one starts from."""
        return [*(self.after.chain if self.after else []), self]

    @property
    def sources(self) -> dict[str, Source]:
        """The data, by the name of its field."""
        return {"train": self.train} | ({"evaluate": self.evaluate} if self.evaluate else {})


def decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config's JSON without settings that change no number, and without newer settings at their defaults, to keep old keys."""
    newer = {"eval_steps": None, "patience": None, "save_dtype": "trained", "reference": None, "ema": 0.0}
    newer["load_in_4bit"] = False
    aside = {"save_steps", "fsdp", "report_to", *(key for key, value in newer.items() if config.get(key) == value)}
    kept = {key: value for key, value in config.items() if key not in aside}
    return {**kept, "after": decisive(kept["after"])} if kept.get("after") else kept


def micro_batch_for(batch_size: int, *, most: int = 8) -> int:
    """The largest micro-batch up to ``most`` that divides the batch.

    >>> micro_batch_for(20), micro_batch_for(3)
    (5, 3)
    """
    return next(micro for micro in range(min(most, batch_size), 0, -1) if batch_size % micro == 0)


def load_finetune(path: str | Path) -> FineTune:
    """The fine-tuning of a config file, or of the config.json of its run folder."""
    data = read_config(path)
    try:
        return from_json(FineTune, unwrapped(data))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def unwrapped(data: Any) -> Any:
    """The model of a run folder's config.json; other data unchanged."""
    if isinstance(data, dict) and isinstance(data.get("experiment"), dict):
        return data["experiment"].get("model")
    return data


def is_finetune(data: Any) -> bool:
    """Whether a config's JSON is a fine-tuning: its model is a name, while a small model's is an object.

    >>> is_finetune({"model": "gpt2"}), is_finetune({"model": {"seed": 1}}), is_finetune({"experiment": {"model": {"model": "gpt2"}}})
    (True, False, True)
    """
    inner = unwrapped(data)
    return isinstance(inner, dict) and isinstance(inner.get("model"), str)


def _as_floats(value: Any, *names: str) -> None:
    for name in names:
        number = float(getattr(value, name))
        if math.isinf(number) and name != "max_grad_norm":  # an infinite norm clips nothing
            raise ValueError(f"{name}={number}: must be finite")
        object.__setattr__(value, name, number)


def _at_least(name: str, value: float | None, least: int) -> None:
    if value is not None and not value >= least:
        raise ValueError(f"{name}={value}: must be at least {least}")
