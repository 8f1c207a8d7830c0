"""Scores of texts: k-NN precision and recall against the completions of the same examples, and MAUVE if asked for."""

from __future__ import annotations

from dataclasses import replace

from widen.metrics.text_scores import PAPER, Metric, TextScores, score_texts
from widen.sample import Sample
from widen.sample.decoding import Settings

from ..record import Record
from ..score_settings import KnnScore
from .job import ScoreJob
from .score_files import Detail, Measured, Values, score_samples


def score_neighbours(job: ScoreJob) -> list[Record]:
    """Records for every decoding. Features are cached in ``root/features``, so a text is embedded once for all models."""
    score, tools = job.experiment.score, job.tools
    assert isinstance(score, KnnScore)
    reference = [one.example.completion for one in job.questions]
    if not all(text.strip() for text in reference):
        raise ValueError(f"{job.experiment.name}: every example of the prompts needs a completion to compare with")
    metrics: tuple[Metric, ...] = ("knn", "mauve") if score.mauve else ("knn",)
    settings = replace(PAPER, metrics=metrics, model=score.embedder, samples=score.samples, k=score.k)

    def measure(_: Settings, drawn: list[Sample]) -> tuple[Values, Detail]:
        texts = [one.text for one in drawn]
        found = score_texts(reference, texts, settings, cache=tools.root / "features", device=tools.device)
        cut = sum(one.finish == "length" for one in drawn)
        return measured(found), {"precision": {"notes": list(found.notes), "cut": cut}}

    return score_samples(job, measure)


def measured(found: TextScores) -> dict[str, Measured]:
    """Every number by name, with its interval over texts (k-NN) or over random seeds (MAUVE, PRD)."""
    values = {}
    if found.knn is not None:
        for name in ("precision", "recall", "density", "coverage"):
            low, high = getattr(found.knn.intervals, name)
            values[name] = Measured(float(getattr(found.knn, name)), float(low), float(high), found.n_generated)
    if found.mauve is not None:
        spread = found.mauve.spread
        values["mauve"] = Measured(found.mauve.value, spread.least, spread.most, found.n_generated)
    if found.prd is not None:
        for shown, name in (("prd_f8", "f8"), ("prd_f_eighth", "f_eighth")):
            spread = getattr(found.prd.part, name)
            values[shown] = Measured(float(getattr(found.prd, name)), spread.least, spread.most, found.n_generated)
    for name in ("distinct", "self_bleu", "vendi"):
        one = getattr(found.generated, name)
        if one is not None:
            values[name] = Measured(float(one.value), n=found.n_generated)
    return values
