"""What the tasks of the study share: the methods, the seeds, the decodings, paths from environment variables, and the small form."""

from __future__ import annotations

import os

from widen.run.experiment import Experiment
from widen.sample.grid import decoding_grid

from ..tiny_texts import shrink

SEEDS = range(3)
METHODS = {
    "NLL": "nll",
    "c-Div 1.2": "cdiv:alpha=1.2",
    "c-Div 1.4": "cdiv:alpha=1.4",
    "TruncR 0.1": "truncr:drop=0.1,window=4096,score=sum",
    "TruncR 0.3": "truncr:drop=0.3,window=4096,score=sum",
    "GEM 0.7": "gem:beta=0.7",
    "GEM 0.85": "gem:beta=0.85",
    "TOFU 1": "tofu:gamma=1,beta=0.8",
    "TOFU 3": "tofu:gamma=3,beta=0.8",
    "DCO 16": "dco:n=16",
    "DCO 64": "dco:n=64",
    "focal 1": "focal:gamma=1",
    "focal 2": "focal:gamma=2",
}
"""Two settings of every family; the second of NLL is twice as long."""


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


def tiny(recipe: list[Experiment]) -> list[Experiment]:
    """The same shape in seconds on a CPU: a random model, a handful of problems, one seed, up to three methods."""
    kept = ["NLL", "TruncR 0.1", "TOFU 1", "grown, uniform", "soup of NLL and 0.5 plain"]
    kept += ["HumanEval, temperature", "MBPP, top-p, then heat"]
    first = {one.name: one for one in reversed(recipe) if one.seed == 0 and one.name in kept}
    return [shrink(first[name]) for name in kept if name in first]
