"""Exact scores: the probability of every right answer of every problem, by teacher forcing. Nothing is sampled.

Precision is the mass on right answers, recall the expected share of them in n samples. Both, the PR curve and its area are averaged over
problems. The model runs once per problem; every decoding re-normalises the same logits.

One record has no decoding: ``separation``, the probability that a right next token has a larger ratio q / max q than a wrong one. Its
detail holds

    threshold           the min-p value that best separates right mass from wrong tokens
    valid_below_noise   share of right mass on tokens less probable than the most probable wrong token of the context
    histogram           ``edges`` of the ratio, and the shares of ``valid`` and ``invalid`` tokens between them

Shapes: T decodings, S answers of a problem, L target positions, N prefixes of its answers, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from widen.data.listed import Problem
from widen.metrics import separation
from widen.metrics.exact import VERSION, ExactPoint, exact_points
from widen.models.convert import load_pretrained
from widen.models.likelihood import log_likelihood_from_logits, next_logits
from widen.sample.decoding import Decoding
from widen.theory import valid_continuations
from widen.train.settings import Configuration

from ..experiment import Experiment
from ..folder import RunFolder
from ..record import Record
from ..score_settings import ExactScore
from ..value import content_hash
from .score_files import Measured, records_for


def score_name(experiment: Experiment) -> str:
    """The name of the score file, with a hash of everything that defines its numbers."""
    return f"exact-{content_hash(experiment.score, experiment.decoding, VERSION, separation.VERSION)}"


def score_exactly(folder: RunFolder, experiment: Experiment, *, device: str) -> list[Record]:
    """Records at every decoding, and one of the separation."""
    if not folder.is_trained:
        raise FileNotFoundError(f"{folder.path} has no trained model yet: run `widen train` or `widen run` first")
    assert isinstance(experiment.score, ExactScore)
    assert isinstance(experiment.model, Configuration)
    problems = experiment.model.data.problems()
    model = load_pretrained(folder.checkpoint).to(device)
    decodings = [setting.decoding for setting in experiment.settings]
    points, contexts = [], []
    for problem in problems:
        logits_SLV = next_logits(model, problem.answers.tokens_BL.numpy())
        points.append(_points(logits_SLV, problem, decodings, experiment.score))
        contexts.append(_contexts(logits_SLV, problem))
    records = []
    for decoding, of_problems in zip(decodings, zip(*points, strict=True), strict=True):
        records += _records(experiment, decoding, _mean(of_problems), len(problems))
    return [*records, *_separation(experiment, contexts)]


def _points(logits_SLV: Tensor, problem: Problem, decodings: Sequence[Decoding], score: ExactScore) -> list[ExactPoint]:
    answers, steps = problem.answers, [decoding.exact_steps for decoding in decodings]
    log_q_TS = log_likelihood_from_logits(
        logits_SLV, answers.tokens_BL.numpy(), steps, mask=answers.target_mask.numpy()
    )
    return exact_points(
        np.full(log_q_TS.shape[1], -np.log(log_q_TS.shape[1])),
        log_q_TS,
        temperatures=[decoding.temperature for decoding in decodings],
        lams=score.lams,
        num_samples=score.num_samples,
    )


def _contexts(logits_SLV: Tensor, problem: Problem) -> tuple[NDArray[np.float64], ...]:
    """Every prefix of the right answers: P(next token) [N, V], the model's logits [N, V], the probability of the prefix [N]."""
    mask_SL = problem.answers.target_mask.numpy()
    first = int(mask_SL.any(axis=0).argmax())  # all answers follow the same prompt
    x_SL = np.where(mask_SL, problem.answers.tokens_BL.numpy()[:, 1:], -1)[:, first:]
    found = valid_continuations(x_SL)
    logits_NV = logits_SLV.cpu().numpy()[found.sequence, found.position + first]
    return found.dense(logits_NV.shape[1]), logits_NV, found.mass


def _separation(experiment: Experiment, contexts: Sequence[tuple[NDArray[np.float64], ...]]) -> list[Record]:
    """The record of the separation, over the contexts of all problems."""
    reference, logits, weights = (np.concatenate(parts) for parts in zip(*contexts, strict=True))
    found = separation.separation_scores(reference, logits, weights=weights)
    bins = separation.ratio_histogram(reference, logits, weights=weights)
    detail = {
        "threshold": found.threshold,
        "valid_below_noise": found.below_noise,
        "histogram": {"edges": list(bins.edges), "valid": list(bins.right), "invalid": list(bins.wrong)},
    }
    values = {"separation": Measured(found.auc, n=found.contexts)}
    return records_for(experiment, None, values, detail={"separation": detail})


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


def _records(experiment: Experiment, decoding: Decoding, point: ExactPoint, problems: int) -> list[Record]:
    values = {
        "precision": Measured(point.precision, n=problems),
        "recall": Measured(point.recall, n=point.num_samples),
        "auc": Measured(point.auc, n=problems),
        **{f"recall@lam={lam:g}": Measured(r, n=problems) for lam, r in zip(point.lams, point.recall_at, strict=True)},
    }
    curve = {"curve_precision": list(point.curve_precision), "curve_recall": list(point.curve_recall)}
    detail: dict[str, dict[str, Any]] = {"recall": {"ceiling": point.recall_ceiling}, "auc": curve}
    return records_for(experiment, decoding, values, detail=detail)
