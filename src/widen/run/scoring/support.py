"""Support sizes: how many tokens hold a share of the model's next-token distribution, along the examples' completions.

The sample stage runs the model and stores the size at every position; scoring needs no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widen.data.tasks import IGNORED, encode
from widen.metrics.support_size import sparsity_of_model, summarise

from ..experiment import Experiment
from ..folder import RunFolder, StageProgress, silent
from ..questions import Question, prompts_for, prompts_path
from ..record import Record, write_records
from ..sampling import Models
from ..score_settings import SupportScore
from ..value import content_hash
from .job import ScoreJob
from .score_files import Measured, records_for, score_name


def sizes_path(folder: RunFolder, experiment: Experiment) -> Path:
    """The file of the sizes."""
    assert isinstance(experiment.score, SupportScore)
    prompts = prompts_path(experiment, "").stem
    key = content_hash(experiment.score.masses, experiment.score.max_length, prompts)
    return folder.path / "samples" / f"support-{key}.json"


def measure_support(
    models: Models,
    folder: RunFolder,
    experiment: Experiment,
    questions: Sequence[Question],
    *,
    progress: StageProgress = silent,
) -> None:
    """Measure the sizes at all positions of every example and write them to disk."""
    score, path = experiment.score, sizes_path(folder, experiment)
    assert isinstance(score, SupportScore)
    if models.servers:
        raise ValueError(
            f"{experiment.name}: support sizes need the whole next-token distribution, which servers do not give; run it without --server"
        )
    engine = models.local(experiment, folder)
    answered = [one for one in questions if one.example.completion.strip()]
    if not answered:
        raise ValueError(f"{experiment.name}: no example has a completion to measure along")
    prompts = prompts_for(answered, engine.tokenizer if experiment.chat else None)
    encoded = [
        encode(
            one.example._replace(prompt=prompt.text),
            engine.tokenizer,
            max_length=score.max_length,
            prompt_ids=prompt.ids,
        )
        for one, prompt in zip(answered, prompts, strict=True)
    ]
    starts = [next(i for i, label in enumerate(e.labels) if label != IGNORED) for e in encoded]
    found = sparsity_of_model(
        engine.model,
        [e.input_ids for e in encoded],
        prompt_lengths=starts,
        masses=score.masses,
        progress=lambda _, done, total: progress(f"support of {experiment.name}", done, total),
    )
    sizes = [of_sample.tolist() for of_sample in found.sizes]
    left_out = len(questions) - len(answered)
    folder.write(path, {"vocabulary": found.vocabulary, "masses": score.masses, "left_out": left_out, "sizes": sizes})


def score_support(job: ScoreJob) -> list[Record]:
    """Share of the vocabulary for each mass: the maximum over positions, the geometric mean over examples."""
    folder, experiment = job.folder, job.experiment
    content = folder.read(sizes_path(folder, experiment))
    sizes = [np.asarray(of_sample, np.int64) for of_sample in content["sizes"]]
    found = summarise(sizes, tuple(content["masses"]), int(content["vocabulary"]), level=0.95, seed=0)
    values = {
        f"sparsity@{mass:g}": Measured(share, interval.low, interval.high, found.samples)
        for mass, share, interval in zip(found.masses, found.sparsity, found.intervals, strict=True)
    }
    records = records_for(experiment, None, values, {name: {"vocabulary": found.vocabulary} for name in values})
    write_records(folder, score_name(experiment), records)
    return records


def size_quantiles(folder: RunFolder, experiment: Experiment) -> list[dict[str, Any]]:
    """Mass, quantile and tokens over all positions of all examples: the lines of figure ``histo``."""
    score = experiment.score
    assert isinstance(score, SupportScore)
    content = folder.read(sizes_path(folder, experiment))
    together: NDArray[np.int64] = np.concatenate([np.asarray(s, np.int64) for s in content["sizes"]], axis=1)
    return [
        {"mass": mass, "quantile": quantile, "tokens": float(np.quantile(together[row], quantile))}
        for row, mass in enumerate(content["masses"])
        for quantile in score.quantiles
    ]
