"""Exact scores: the probability of every right answer of every problem, by teacher forcing. Nothing is drawn.

Precision is the mass on right answers, recall the expected share of them seen in n samples; both are averaged over problems, and so are
the area under the PR curve and the curve itself.

Shapes: T decodings, S answers of a problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from widen.data.listed import Problem
from widen.metrics.exact import VERSION, ExactPoint, exact_points
from widen.models.convert import load_pretrained
from widen.models.likelihood import log_likelihood
from widen.models.tiny_llama import TinyLlama
from widen.sample.decoding import Decoding
from widen.train.settings import Configuration

from ..experiment import Experiment
from ..folder import RunFolder
from ..record import Record
from ..score_settings import ExactScore
from ..value import content_hash, to_json


def score_name(experiment: Experiment) -> str:
    """The name of the score file: a hash of everything that defines its numbers."""
    return f"exact-{content_hash(experiment.score, experiment.decoding, VERSION)}"


def score_exactly(folder: RunFolder, experiment: Experiment, *, device: str) -> list[Record]:
    """Records at every decoding."""
    if not folder.is_trained:
        raise FileNotFoundError(f"{folder.path} has no trained model yet: run `widen train` or `widen run` first")
    assert isinstance(experiment.score, ExactScore)
    assert isinstance(experiment.model, Configuration)
    problems = experiment.model.data.problems()
    model = load_pretrained(folder.checkpoint).to(device)
    points = _points(model, problems, [setting.decoding for setting in experiment.settings], experiment.score)
    return [
        record for number, point in enumerate(points) for record in _records(experiment, number, point, len(problems))
    ]


def _points(
    model: TinyLlama, problems: Sequence[Problem], decodings: Sequence[Decoding], score: ExactScore
) -> list[ExactPoint]:
    """One point per decoding, each number the mean over problems."""
    temperatures = [decoding.temperature for decoding in decodings]
    each = []
    for problem in problems:
        batch = problem.answers
        steps = [decoding.exact_steps for decoding in decodings]
        log_q_TS = log_likelihood(model, batch.tokens_BL.numpy(), steps, mask=batch.target_mask.numpy())
        log_p_S = np.full(log_q_TS.shape[1], -np.log(log_q_TS.shape[1]))
        each.append(
            exact_points(log_p_S, log_q_TS, temperatures=temperatures, lams=score.lams, num_samples=score.num_samples)
        )
    return [_mean([points[number] for points in each]) for number in range(len(decodings))]


def _mean(points: Sequence[ExactPoint]) -> ExactPoint:
    if len(points) == 1:
        return points[0]
    rows = [asdict(point) for point in points]
    means: dict[str, Any] = {
        name: tuple(np.mean([row[name] for row in rows], axis=0).tolist())
        if isinstance(value, tuple)
        else float(np.mean([row[name] for row in rows]))
        for name, value in rows[0].items()
        if name not in ("temperature", "lams", "num_samples")
    }
    return ExactPoint(**{**rows[0], **means})


def _records(experiment: Experiment, number: int, point: ExactPoint, problems: int) -> list[Record]:
    about: dict[str, Any] = {
        "task": experiment.task,
        "model": experiment.base,
        "loss": experiment.loss,
        "decoding": experiment.settings[number].decoding,
        "seed": experiment.model_seed,
    }
    score = {"score": to_json(experiment.score)}
    curve = {"curve_precision": list(point.curve_precision), "curve_recall": list(point.curve_recall)}
    named: dict[str, tuple[float, int, dict[str, Any]]] = {
        "precision": (point.precision, problems, {}),
        "recall": (point.recall, point.num_samples, {"ceiling": point.recall_ceiling}),
        "auc": (point.auc, problems, curve),
        **{
            f"recall@lam={lam:g}": (value, problems, {}) for lam, value in zip(point.lams, point.recall_at, strict=True)
        },
    }
    return [
        Record(**about, metric=metric, value=value, n=n, detail={**score, **more})
        for metric, (value, n, more) in named.items()
    ]
