"""Scores of texts about a meaning (task ``e2e``): right by their slots, different from each other, and like human texts.

    precision        share of samples that are right: they ended, and mention all slots of their meaning without contradiction
    slot_accuracy    share of slots that are mentioned without contradiction
    distinct_right   number of different right texts of a meaning, over its number of samples
    recall           share of human texts in reach of the samples, by k-NN over all meanings
    knn_precision, knn_density, knn_coverage      the other k-NN scores
    self_bleu, vendi                              among the samples of one meaning

Every score is a mean over meanings; its values per meaning are kept (``by_problem``) for paired comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean

import torch
from torch import Tensor

from widen.data.tasks.e2e import slots_of, words, wrong_slots
from widen.metrics.embed import Embedder
from widen.metrics.interval import mean_interval
from widen.metrics.knn_search import membership, squared_radii
from widen.metrics.ngrams import self_bleu, tokenise
from widen.metrics.vendi import vendi_score
from widen.sample import Sample
from widen.sample.decoding import Settings

from ..questions import Question
from ..record import Record
from ..score_settings import SlotScore
from .job import ScoreJob
from .score_files import Detail, Measured, Values, score_samples


def score_slots(job: ScoreJob) -> list[Record]:
    """Records at every decoding of one experiment."""
    score, num, device = job.experiment.score, job.experiment.num_samples, job.tools.device
    assert isinstance(score, SlotScore)
    human = [list(one.example.facts["references"][: score.references]) for one in job.questions]
    embed = _embedder(score.embedder, device) if score.embedder else None
    reference = _rows(embed, [text for own in human for text in own], device) if embed else None

    def measure(_: Settings, drawn: list[Sample]) -> tuple[Values, Detail]:
        of_meaning = [drawn[i : i + num] for i in range(0, len(drawn), num)]
        found = {**_checked(job.questions, of_meaning), "self_bleu": _self_bleu(of_meaning)}
        if embed is not None and reference is not None:
            features = _rows(embed, [one.text for one in drawn], device)
            found |= _neighbours(reference, features, [len(own) for own in human], num, score.k)
            found["vendi"] = [vendi_score(own).value for own in torch.split(features.cpu(), num)]
        values = {name: _measured(by_problem) for name, by_problem in found.items() if by_problem}
        return values, {name: {"by_problem": [round(x, 6) for x in each]} for name, each in found.items()}

    return score_samples(job, measure)


@lru_cache(maxsize=1)
def _embedder(model: str, device: str) -> Embedder:
    return Embedder(model, normalise=True, device=device, batch_tokens=65_536 if device.startswith("cuda") else 4096)


def _rows(embed: Embedder, texts: list[str], device: str) -> Tensor:
    return torch.from_numpy(embed(texts).features).to(device)


def _measured(by_problem: Sequence[float]) -> Measured:
    interval = mean_interval(by_problem)
    return Measured(fmean(by_problem), interval.low, interval.high, len(by_problem))


def _checked(questions: Sequence[Question], of_meaning: Sequence[Sequence[Sample]]) -> dict[str, list[float]]:
    """Per meaning: the share of right samples, the share of right slots, and the share of samples that are right and new."""
    found: dict[str, list[float]] = {"precision": [], "slot_accuracy": [], "distinct_right": []}
    for question, samples in zip(questions, of_meaning, strict=True):
        meaning = question.example.facts["meaning"]
        wrong = [len(wrong_slots(meaning, one.text)) for one in samples]
        right = [one for one, number in zip(samples, wrong, strict=True) if not number and one.finish != "length"]
        found["precision"].append(len(right) / len(samples))
        found["slot_accuracy"].append(1 - fmean(wrong) / len(slots_of(meaning)))
        found["distinct_right"].append(len({words({}, one.text) for one in right}) / len(samples))
    return found


def _neighbours(
    reference: Tensor, generated: Tensor, references: Sequence[int], num_samples: int, k: int
) -> dict[str, list[float]]:
    """The four k-NN scores per meaning: means over its samples, or over its human texts."""
    radii = [squared_radii(rows, (k,)) for rows in (reference, generated)]
    found = membership(reference, generated, *radii, boundary="closed")
    hits = torch.split(found.hits[0].double(), num_samples)
    covered, recalled = (torch.split(one[0].double(), list(references)) for one in (found.covered, found.recalled))
    return {
        "knn_precision": [float((own > 0).double().mean()) for own in hits],
        "recall": [float(own.mean()) for own in recalled],
        "knn_density": [float(own.mean()) / k for own in hits],
        "knn_coverage": [float(own.mean()) for own in covered],
    }


def _self_bleu(of_meaning: Sequence[Sequence[Sample]]) -> list[float]:
    """Among the samples of each meaning; meanings with fewer than two texts that hold a word are left out."""
    spoken = [[one.text for one in own if tokenise([one.text], "words")[0]] for own in of_meaning]
    return [self_bleu(texts).value for texts in spoken if len(texts) > 1]
