"""Small forms of the text recipes: they run a recipe from end to end in seconds on a CPU. Their numbers mean nothing.

The folder ``tiny`` holds a handful of records per task, and a random Llama of one layer over bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import KnnScore, ProgramScore, SlotScore, SupportScore


def folder() -> Path:
    """The folder with the model and one file per task."""
    return Path(str(files("widen_recipes") / "tiny"))


def first_seeds(recipe: Iterable[Experiment], names: Collection[str] = ()) -> list[Experiment]:
    """The small form of a recipe: its experiments of seed 0, or those among them with one of these names."""
    return [shrink(one) for one in recipe if one.seed == 0 and (not names or one.name in names)]


def shrink(experiment: Experiment) -> Experiment:
    """The same experiment on the tiny model and data: two training steps, two prompts (six for k-NN), eight tokens."""
    score, number, samples = experiment.score, 2, 2
    if isinstance(score, KnnScore):
        score, number, samples = replace(score, embedder=str(folder() / "model"), samples=None), 6, 1
    elif isinstance(score, SlotScore):
        score, number = replace(score, embedder=str(folder() / "model"), k=1), 4
    elif isinstance(score, ProgramScore):
        score = replace(score, ks=(1, 2))
    elif isinstance(score, SupportScore):
        score = replace(score, max_length=256)
    model = experiment.model
    return replace(
        experiment,
        model=_small(model) if isinstance(model, FineTune) else str(folder() / "model"),
        prompts=_source(experiment.prompts) if experiment.prompts else None,
        num_prompts=number,
        num_samples=samples,
        decoding=experiment.decoding[:2],
        max_tokens=8,
        dtype="float32",
        score=score,
    )


def _small(model: FineTune) -> FineTune:
    return replace(
        model,
        model=str(folder() / "model"),
        train=_source(model.train),
        evaluate=_source(model.evaluate) if model.evaluate is not None else None,
        after=_small(model.after) if model.after is not None else None,
        precision="fp32",
        max_length=128,
        gradient_checkpointing=False,
        max_steps=2,
        batch_size=4,
        micro_batch=4,
        warmup_steps=0,
    )


def _source(source: Source) -> Source:
    return Source(task=source.task, path=str(folder() / f"{source.task}.jsonl"))
