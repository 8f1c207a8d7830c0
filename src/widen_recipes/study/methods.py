"""What the tasks of the study share: methods, seeds, decodings, trainings, paths, files, and the small form."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.grow.training_rows import write_lines
from widen.sample.decoding import Decoding
from widen.sample.grid import decoding_grid

from ..tiny_texts import shrink

SEEDS = range(3)
METHODS = {
    "NLL": "nll",
    "c-Div 1.4": "cdiv:alpha=1.4",
    "TruncR 0.1": "truncr:drop=0.1,score=sum",
    "GEM 0.7": "gem:beta=0.7",
    "TOFU 1": "tofu:gamma=1,beta=0.8",
    "DCO 16": "dco:n=16",
    "focal 1": "focal:gamma=1",
    "EAFT": "eaft",
    "smooth 0.05": "smooth:eps=0.05",
    "entropy 0.01": "entropy:bonus=0.01",
}
"""One setting of every loss: each is tuned by its decoding alone, over the same grid."""
LOSSES = {name: loss for name, loss in METHODS.items() if name != "NLL"}


def nll_model(model: str, train: Source, valid: Source, *, batch_size: int, **more: Any) -> FineTune:
    """NLL until the held-out NLL has not fallen for two epochs; its best epoch. The rate falls to a tenth along a cosine."""
    steps = {"batch_size": batch_size, "micro_batch": batch_size, "schedule": "cosine_with_min_lr"}
    held_out = {"evaluate": valid, "patience": 2}
    return FineTune(
        model=model, train=train, loss="nll", **{"warmup_steps": 10, "epochs": 8, **steps, **held_out, **more}
    )


def every_method(
    start: FineTune,
    experiment: Callable[[str, FineTune, int], Experiment],
    *,
    others: Mapping[str, Mapping[str, Any]] | None = None,
    **last: Any,
) -> list[Experiment]:
    """Every method goes on from ``start``, three seeds each; NLL 2x goes on for twice as long.

    Args:
      experiment: scores a model, given a name and a seed.
      others: further models by name, each with its changes of the last training.
      last: changes of the last training against the start.
    """
    base = replace(start, after=start, evaluate=None, patience=None, save_dtype="bfloat16", **last)
    twice = {"max_steps": 2 * base.max_steps} if base.max_steps > 0 else {"epochs": 2 * base.epochs}
    changes: dict[str, Mapping[str, Any]] = {name: {"loss": loss} for name, loss in METHODS.items()} | {"NLL 2x": twice}
    models = {name: replace(base, **changed) for name, changed in {**changes, **(others or {})}.items()}
    return [experiment(name, replace(one, seed=seed), seed) for seed in SEEDS for name, one in models.items()]


def decodings() -> tuple[str, ...]:
    """The same for every method: temperature alone, min-p before and after the heat, top-p before it."""
    grid = decoding_grid(
        temperatures=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0),
        min_p=(0.01, 0.02, 0.05, 0.1, 0.2),
        heats=(1.0, 1.25, 1.5, 2.0, 3.0),
        min_p_after=(0.05, 0.1, 0.2),
        heats_before=(1.5, 2.0),
        top_p=(0.9, 0.95),
        top_p_heats=(1.0, 1.5, 2.0),
    )
    return tuple(one.spec for one in grid)


def few_decodings() -> tuple[str, ...]:
    """Half as many of each kind, for exact scores of many models on a CPU. No low temperature is missing: where precision must be high, a
    coarse grid decides which method wins."""
    grid = decoding_grid(
        temperatures=(0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35),
        min_p=(0.02, 0.05, 0.1),
        heats=(1.25, 1.5, 2.0),
        min_p_after=(0.2,),
        heats_before=(2.0,),
        top_p=(0.9, 0.95),
        top_p_heats=(1.5,),
    )
    return tuple(one.spec for one in grid)


def matched_decodings() -> tuple[str, ...]:
    """`few_decodings`, and others that reach further: lower cut-offs, more heat, a lower and a higher temperature alone.

    At min-p m, then heat t, GEM 0.7 should give what NLL gives at min-p m^1.4, then heat 1.4 t. So NLL must be tried there too. And a model
    that is less precise may need a lower temperature than NLL.
    """
    cut_offs, heats = (0.002, 0.004, 0.01, 0.02, 0.05), (1.5, 2.0, 2.8, 4.0)
    more = [Decoding(temperature=t) for t in (0.1, 1.6)]
    more += [Decoding.truncate_then_heat(min_p=m, temperature=t) for m in cut_offs for t in heats]
    return tuple(dict.fromkeys((*few_decodings(), *(one.spec for one in more))))


def two_families() -> dict[str, tuple[str, ...]]:
    """What shows the gain of decodings on one model: temperatures alone, and all decodings."""
    return {"temperature alone": tuple(one for one in decodings() if "," not in one), "all decodings": decodings()}


def sampled_decodings() -> tuple[str, ...]:
    """Fewer of each kind, for tasks whose answers must be drawn."""
    grid = decoding_grid(
        temperatures=(0.5, 0.7, 0.85, 1.0, 1.2, 1.5),
        min_p=(0.1,),
        heats=(1.0, 1.5, 2.5),
        min_p_after=(0.1,),
        heats_before=(1.5,),
        top_p=(0.9,),
        top_p_heats=(1.0, 1.5),
    )
    return tuple(one.spec for one in grid)


def path_of(variable: str) -> str:
    """The path in an environment variable, or its name with a dollar sign, which `widen run` refuses."""
    return os.environ.get(variable, f"${variable}").rstrip("/")


def write_files(folder: str | Path, files: Mapping[str, Iterable[dict[str, Any]]]) -> None:
    """Write the records of each name as ``<folder>/<name>.jsonl``."""
    for name, records in files.items():
        write_lines(Path(folder) / f"{name}.jsonl", records)


def tiny(recipe: list[Experiment]) -> list[Experiment]:
    """The same shape in seconds on a CPU: a random model, a handful of problems, one seed, up to three methods."""
    kept = ["NLL", "TruncR 0.1", "TOFU 1", "grown, uniform", "soup of NLL and 0.5 plain"]
    kept += ["HumanEval, temperature", "MBPP, top-p, then heat"]
    first = {one.name: one for one in reversed(recipe) if one.seed == 0 and one.name in kept}
    return [shrink(first[name]) for name in kept if name in first]
