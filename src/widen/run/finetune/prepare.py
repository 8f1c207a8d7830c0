"""What a fine-tuning needs before weights are loaded: its process, its folder, and its data, checked and tokenised."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..folder import RunFolder, folder_of
from .config import FineTune, Source
from .model_files import first_token, load_tokenizer, settings_of
from .token_data import TokenData, read_all, tokenise

__all__ = ["Prepared", "Process", "chain", "prepare", "process_of"]


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


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """One training, ready to start except for the weights."""

    config: FineTune
    folder: RunFolder
    start: str
    tokenizer: Any
    train: TokenData
    evaluate: TokenData | None
    about: Mapping[str, Any]


def chain(config: FineTune) -> list[FineTune]:
    """The trainings of a config in order: what it starts from first."""
    return [*(chain(config.after) if config.after else []), config]


def process_of(device: str | None, config: FineTune) -> Process:
    """Check that this machine can do what is asked, before anything is read."""
    import torch

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen not in ("cuda", "cpu"):
        raise ValueError(f"device={device!r}: must be cuda or cpu (CUDA_VISIBLE_DEVICES chooses among several GPUs)")
    if chosen == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda': torch finds no GPU here")
    process = Process(device=chosen, rank=int(os.environ.get("RANK", 0)), world=int(os.environ.get("WORLD_SIZE", 1)))
    for one in chain(config):
        if chosen == "cpu" and one.precision == "fp16":
            raise ValueError("precision='fp16' needs a GPU; on a CPU take fp32 or bf16")
        if one.fsdp:
            _can_spread(chosen)
        if one.batch_size % process.world:
            raise ValueError(
                f"batch_size={one.batch_size} cannot be shared equally by {process.world} processes: take a multiple of {process.world}"
            )
    return process


def _can_spread(device: str) -> None:
    if device == "cpu" or "WORLD_SIZE" not in os.environ:
        raise ValueError(
            "fsdp=True (--fsdp) spreads a model over the GPUs of processes that torchrun starts: "
            "torchrun --nproc-per-node GPUS -m widen.cli train ... --fsdp"
        )


def prepare(
    config: FineTune, root: str | Path, *, skip_bad: bool, cache: dict[Any, Any], about: Mapping[str, Any]
) -> Prepared:
    """The tokenised data of one training; data that several trainings share is read once."""

    def once(key: Any, make: Callable[[], Any]) -> Any:
        if key not in cache:
            cache[key] = make()
        return cache[key]

    def tokens(source: Source) -> TokenData:
        examples, left_out = once(source, partial(read_all, source, skip_bad=skip_bad))
        length = config.max_length
        make = partial(tokenise, examples, tokenizer, max_length=length, first_token=first, left_out=left_out)
        made: TokenData = once((source, config.model, length), make)
        return made

    for source in filter(None, (config.train, config.evaluate)):
        once(source, partial(read_all, source, skip_bad=skip_bad))
    tokenizer = once(("tokenizer", config.model), partial(load_tokenizer, config.model))
    settings = once(("settings", config.model), partial(settings_of, config.model))
    first = first_token(settings)
    made = Prepared(
        config=config,
        folder=folder_of(root, config),
        start=str(folder_of(root, config.after).checkpoint) if config.after else config.model,
        tokenizer=tokenizer,
        train=tokens(config.train),
        evaluate=tokens(config.evaluate) if config.evaluate else None,
        about=about,
    )
    for data in filter(None, (made.train, made.evaluate)):
        _fits(config, settings.get_text_config(), tokenizer, data)
    return made


def _fits(config: FineTune, settings: Any, tokenizer: Any, data: TokenData) -> None:
    """Refuse data that is too long for the model's positions or has tokens without an embedding."""
    positions = getattr(settings, "max_position_embeddings", None)
    if isinstance(positions, int) and 0 < positions < data.facts.longest:
        raise ValueError(
            f"max_length={config.max_length}: the longest example has {data.facts.longest} tokens, and {config.model} has "
            f"{positions} positions; take --max-length {positions}, which cuts what is longer"
        )
    size, largest = getattr(settings, "vocab_size", None), max(data.largest, tokenizer.pad_token_id or 0)
    if isinstance(size, int) and largest >= size:
        token = tokenizer.convert_ids_to_tokens(largest)
        raise ValueError(
            f"the tokenizer of {config.model} has the token {token!r} with number {largest}, and the model an embedding of {size}: "
            "take the tokenizer that the model was made with, or resize its embedding (resize_token_embeddings) and save it"
        )
