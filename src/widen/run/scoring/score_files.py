"""Score files of experiments: how records are made, named, written and found again.

A score of samples has one file per decoding, so that a stopped run repeats nothing. Exact and support scores have one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from widen.metrics import exact_points, separation, text_scores
from widen.sample import Sample
from widen.sample.decoding import Decoding, Settings

from ..experiment import Experiment
from ..folder import RunFolder
from ..questions import prompts_path
from ..record import Record, read_records, write_records
from ..sampling import samples_of
from ..score_settings import ExactScore, KnnScore, SupportScore
from ..value import content_hash, to_json
from .job import ScoreJob

VERSION = 4
"""Version of the measurements; raising it measures everything again."""


class Measured(NamedTuple):
    """A number, its interval over problems or texts, and how many of these there are."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


Values = Mapping[str, Measured]
Detail = Mapping[str, Mapping[str, Any]]
"""More about some metrics, for `Record.detail`."""


def records_of(values: Values, *, score: Mapping[str, Any], detail: Detail | None = None, **about: Any) -> list[Record]:
    """Records of numbers that were measured together; ``about`` holds task, model, loss, decoding and seed."""
    more = detail or {}
    return [
        Record(**about, metric=metric, **one._asdict(), detail={"score": dict(score), **more.get(metric, {})})
        for metric, one in values.items()
    ]


def records_for(experiment: Experiment, decoding: Decoding | None, values: Values, detail: Detail) -> list[Record]:
    """Records of an experiment's model at one decoding."""
    one, score = experiment, to_json(experiment.score)
    if one.prompts is not None:
        score["prompts"] = prompts_path(one, "").stem
    if not isinstance(one.score, ExactScore):
        score |= {"num_samples": one.num_samples, "max_tokens": one.max_tokens}
    about = {"task": one.task, "model": one.base, "loss": one.loss, "seed": one.model_seed}
    return records_of(values, score=score, detail=detail, decoding=decoding, **about)


def score_name(experiment: Experiment, setting: Settings | None = None) -> str:
    """The name of a score file, with a hash of everything that defines its numbers. ``setting`` is that of the samples, if any."""
    one = experiment
    asked = () if one.prompts is None else (prompts_path(one, "").stem,)
    if isinstance(one.score, ExactScore):
        exact, dtype = (exact_points.VERSION, separation.VERSION), (one.dtype,) if asked else ()
        return f"exact-{content_hash(one.score, one.decoding, *exact, *asked, *dtype)}"
    versions = (VERSION, text_scores.VERSION) if isinstance(one.score, KnnScore) else (VERSION,)
    key = content_hash(one.score, *asked, one.num_samples, *versions)
    return f"{one.task}-{one.score.kind}-{setting.name if setting else 'completions'}-{key}"


def found_records(folder: RunFolder, experiment: Experiment) -> list[Record] | None:
    """The records of an experiment on disk, or None if some are missing."""
    alone = isinstance(experiment.score, (ExactScore, SupportScore))
    found = [read_records(folder, score_name(experiment, one)) for one in ((None,) if alone else experiment.settings)]
    return None if None in found else [record for records in found for record in records or ()]


def score_samples(
    job: ScoreJob, measure: Callable[[Settings, list[Sample]], tuple[Values, Detail]], *, quiet: bool = False
) -> list[Record]:
    """Measure the samples of every decoding, and write the records of each as soon as they are known.

    Args:
      quiet: ``measure`` reports its own progress.
    """
    folder, experiment, questions, tools = job
    records, settings = list[Record](), experiment.settings
    for done, setting in enumerate(settings, start=1):
        values, detail = measure(setting, samples_of(folder, setting, experiment, questions))
        made = records_for(experiment, setting.decoding, values, detail)
        write_records(folder, score_name(experiment, setting), made)
        records += made
        if not quiet:
            tools.progress(f"score {experiment.name}, seed {experiment.seed}", done, len(settings))
    return records
