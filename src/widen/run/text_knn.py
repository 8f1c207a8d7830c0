"""Texts as samples: k-NN precision and recall against the completions of the same examples, MAUVE beside them where asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from widen.metrics.text_scores import PAPER, Metric, TextScores, score_texts

from .folder import RunFolder
from .scores import Progress
from .text_experiment import KnnScore, TextExperiment
from .text_points import Measured, TextPoint, keep_point
from .text_prompts import Asked
from .text_sampling import texts_of


def score_knn(
    folder: RunFolder,
    experiment: TextExperiment,
    asked: Sequence[Asked],
    *,
    root: str | Path,
    device: str,
    progress: Progress | None = None,
) -> list[TextPoint]:
    """Scores at every decoding; a text is embedded once for all models, its features kept in ``root/features``."""
    score = experiment.score
    assert isinstance(score, KnnScore)
    reference = [one.example.completion for one in asked]
    if not all(text.strip() for text in reference):
        raise ValueError(f"{experiment.name}: an example of the prompts has no completion to compare with")
    metrics: tuple[Metric, ...] = ("knn", "mauve") if score.mauve else ("knn",)
    settings = replace(PAPER, metrics=metrics, model=score.embedder, samples=score.samples, k=score.k)
    points = []
    for number, setting in enumerate(experiment.settings):
        if progress is not None:
            progress(f"compare {experiment.name}, seed {experiment.seed}", number, len(experiment.settings))
        generated = [text for _, text in texts_of(folder, setting, experiment, asked)]
        found = score_texts(reference, generated, settings, cache=Path(root) / "features", device=device)
        point = TextPoint(decoding=setting.decoding.spec, values=values_of(found))
        keep_point(folder, experiment, setting, point, notes=list(found.notes))
        points.append(point)
    return points


def values_of(found: TextScores) -> dict[str, Measured]:
    """Every number that was asked for by name, with its interval over texts (k-NN) or over seeds (MAUVE, PRD)."""
    values = {}
    if found.knn is not None:
        for name in ("precision", "recall", "density", "coverage"):
            low, high = getattr(found.knn.intervals, name)
            values[name] = Measured(value=float(getattr(found.knn, name)), low=float(low), high=float(high))
    if found.mauve is not None:
        spread = found.mauve.spread
        values["mauve"] = Measured(value=found.mauve.value, low=spread.least, high=spread.most)
    if found.prd is not None:
        for shown, name in (("prd_f8", "f8"), ("prd_f_eighth", "f_eighth")):
            spread = getattr(found.prd.part, name)
            values[shown] = Measured(value=float(getattr(found.prd, name)), low=spread.least, high=spread.most)
    for name in ("distinct", "self_bleu", "vendi"):
        one = getattr(found.generated, name)
        if one is not None:
            values[name] = Measured(value=float(one.value))
    return values
