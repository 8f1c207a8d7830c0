"""What a reference model says about the training data: computed once, kept in the run folder, read again when the run is resumed.

reference/KEY/part-00000.safetensors ...    ref_logq of 1,024 examples each; KEY: digest of reference, data and precision
"""

from __future__ import annotations

import gc
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save

from widen.disk.atomic import write_bytes
from widen.disk.digest import source_digest
from widen.losses import REF_LOGQ

from ..value import content_hash
from .model_files import load_model, resolved

if TYPE_CHECKING:
    from .config import FineTune
    from .host_trainer import Process
    from .token_data import TokenData

PART = 1024
"""Examples of one file."""


def reference_key(config: FineTune, data: TokenData) -> str | None:
    """Sixteen hex digits of what decides the column; None without a reference."""
    if config.reference is None:
        return None
    model = source_digest(resolved(config.reference)) or config.reference
    return content_hash({"model": model, "data": data.facts.digest, "precision": config.precision})


def with_reference(
    config: FineTune, data: TokenData, folder: Path, *, process: Process, device: Any, spread: bool
) -> TokenData:
    """The training data with its column ``ref_logq``. Each process computes its share of the missing parts.

    With FSDP the first process computes them all, since only it has the weights.
    """
    from accelerate import PartialState

    place = folder / "reference" / str(reference_key(config, data))
    parts = range(-(-len(data) // PART))
    mine = (parts if process.main else range(0)) if spread else parts[process.rank :: process.world]
    missing = [part for part in mine if not _file(place, part).is_file()]
    if missing:
        _compute(config, data, place, missing, device)
    PartialState().wait_for_everyone()
    flat = np.concatenate([load_file(_file(place, part))[REF_LOGQ] for part in parts])
    ends = np.cumsum([len(ids) for ids in data.ids])
    if len(flat) != ends[-1]:
        raise ValueError(f"{place} has {len(flat)} numbers for {ends[-1]} tokens: it is damaged; remove it")
    return data.with_column(REF_LOGQ, np.split(flat, ends[:-1]))


def _file(place: Path, part: int) -> Path:
    return place / f"part-{part:05d}.safetensors"


def _compute(config: FineTune, data: TokenData, place: Path, parts: list[int], device: Any) -> None:
    import torch

    from widen.hosts.reference import reference_logq

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(config.precision)
    model = load_model(str(config.reference), precision=config.precision).to(device)
    with torch.autocast(torch.device(device).type, half) if half else nullcontext():
        for part in parts:
            rows = [data[i] for i in range(part * PART, min((part + 1) * PART, len(data)))]
            found = np.concatenate(list(reference_logq(model, rows, batch_size=config.micro_batch)))
            write_bytes(_file(place, part), save({REF_LOGQ: found}))
    del model
    gc.collect()
