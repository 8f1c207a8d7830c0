"""Texts in, every number out: how good and how varied a generator is, with error bars, ceilings and plain notes on what to distrust.

`ScoreSettings` says what to compute and how; `PAPER` is the paper's own way (App., "Precision and Recall for the WritingPrompts Task").

Shapes: N reference texts, M generated texts, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from .bleu import SelfBleu, self_bleu
from .distinct import Distinct, distinct_n
from .embed import Embedder, EmbedSettings, check_texts
from .embed_folder import Pooling
from .features import fit_pca, unit_rows
from .knn import knn_scores
from .knn_result import KnnScores
from .knn_search import Boundary
from .mauve import Mauve, mauve_score
from .notes import notes_on
from .plain import plain
from .prd import Prd, prd_scores
from .vendi import Vendi, vendi_score
from .words import Tokenisation, tokenise

VERSION = 1
Metric = Literal["knn", "mauve", "prd", "distinct", "self_bleu", "vendi"]
ALL: tuple[Metric, ...] = get_args(Metric)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """What to compute, in which space.

    Args:
      metrics: any of knn, mauve, prd, distinct, self_bleu, vendi.
      model: the embedder, a Hugging Face name or a folder.
      pooling: ``mean``, ``last`` or ``first`` token; None for the folder's own, else mean.
      max_tokens: where texts are cut; None for the model's limit.
      normalise: scale features to length 1.
      pca: share of the variance to keep for k-NN; None for all features.
      pca_fit: on the ``reference`` alone, or ``joint`` on both sets as the paper's code does.
      k: neighbours.
      boundary: ``closed`` or ``open`` balls.
      samples: texts taken of each set, at random; None for all.
      ngram: length of distinct's and the longest of self-BLEU's n-grams.
      tokenisation: of the n-gram metrics.
      level: of the intervals.
      seed: of every draw.
    """

    metrics: tuple[Metric, ...] = ALL
    model: str = "gpt2-large"
    pooling: Pooling | None = None
    max_tokens: int | None = None
    normalise: bool = True
    pca: float | None = None
    pca_fit: Literal["reference", "joint"] = "reference"
    k: int = 4
    boundary: Boundary = "closed"
    samples: int | None = None
    ngram: int = 4
    tokenisation: Tokenisation = "words"
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [name for name in self.metrics if name not in ALL]
        if unknown or not self.metrics:
            raise ValueError(f"metrics must be of {', '.join(ALL)}, at least one, got {list(self.metrics)}")
        if self.samples is not None and self.samples <= self.k:
            raise ValueError(f"samples must be more than k = {self.k}, got {self.samples}")


PAPER = ScoreSettings(
    model="gpt2-large", pooling="mean", normalise=True, pca=0.9, pca_fit="joint", k=4, boundary="open", samples=2000
)
"""Mean pooling of GPT2-large, unit rows, PCA on both sets to 90 % of the variance, open balls, k = 4, 2,000 texts of each."""


@dataclass(frozen=True)
class Diversity:
    """The metrics of one set alone; None where it was not asked for."""

    distinct: Distinct | None = None
    self_bleu: SelfBleu | None = None
    vendi: Vendi | None = None


@dataclass(frozen=True)
class TextScores:
    """Everything about a generated set against a reference set.

    Args:
      knn: precision, recall, density and coverage, with intervals and ceiling.
      mauve: with seed spread and baseline.
      prd: the precision-recall curve of clustered features.
      generated: distinct-n, self-BLEU and Vendi of the generated texts.
      reference: the same of as many reference texts: what the first are to be read against.
      notes: what to know before believing the numbers, in plain sentences.
      settings: what was asked for.
      embedding: how texts became features; None where no metric needed features or they came from a caller's function.
      components: features left by PCA, None without it.
      n_reference: texts scored.
      n_generated: texts scored.
    """

    knn: KnnScores | None
    mauve: Mauve | None
    prd: Prd | None
    generated: Diversity
    reference: Diversity
    notes: tuple[str, ...]
    settings: ScoreSettings = field(repr=False)
    embedding: EmbedSettings | None = field(repr=False)
    components: int | None = field(repr=False)
    n_reference: int = field(repr=False)
    n_generated: int = field(repr=False)
    version: int = field(repr=False, default=VERSION)

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        result: dict[str, Any] = plain(self)
        return result


@dataclass(frozen=True)
class Embedded:
    """Features of both sets and what embedding them has to say."""

    x: NDArray[Any]
    y: NDArray[Any]
    settings: EmbedSettings | None = None
    truncated: int = 0
    empty: int = 0


def score_texts(
    reference_texts: Sequence[str],
    generated_texts: Sequence[str],
    settings: ScoreSettings | None = None,
    *,
    embed: Callable[[Sequence[str]], Any] | None = None,
    cache: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> TextScores:
    """Score generated texts against reference texts.

    Args:
      reference_texts: written by people.
      generated_texts: written by the model.
      settings: what and how; `PAPER` for the paper's way.
      embed: a function from texts to an (N, D) array, in place of ``settings.model``.
      cache: a folder for features, so that a text is embedded once.
      device: where to embed and to compare.
      progress: called as (stage, done, total).

    Examples:
      >>> texts = ["a cat sat", "a dog ran", "the cat ran", "a dog sat", "the end"]
      >>> scores = score_texts(texts, texts, ScoreSettings(metrics=("distinct", "self_bleu"), ngram=2))
      >>> scores.generated.distinct == scores.reference.distinct
      True
    """
    settings = settings or ScoreSettings()
    tell = progress or (lambda stage, done, total: None)
    check_texts(reference_texts)
    check_texts(generated_texts)
    reference = drawn(reference_texts, settings.samples, settings.seed, "reference_texts")
    generated = drawn(generated_texts, settings.samples, settings.seed + 1, "generated_texts")
    against = [name for name in AGAINST if name in settings.metrics]
    sets = None
    if against or "vendi" in settings.metrics:
        sets = featurise(reference, generated, settings, embed, cache, device, tell)
    found: dict[str, Any] = {}
    for done, name in enumerate(against):
        tell(name, done, len(against) + 1)
        found[name] = AGAINST[name](sets, settings, device)
    tell("diversity", len(against), len(against) + 1)
    alone = both_alone(reference, generated, sets, settings)
    tell("done", len(against) + 1, len(against) + 1)
    knn, components = found.get("knn", (None, None))
    truncated, empty = (sets.truncated, sets.empty) if sets else (0, 0)
    return TextScores(
        knn=knn,
        mauve=found.get("mauve"),
        prd=found.get("prd"),
        generated=alone[1],
        reference=alone[0],
        notes=notes_on(
            reference,
            generated,
            knn=knn,
            truncated=truncated,
            empty=empty,
            few_for_bleu="self_bleu" in settings.metrics and any(one.self_bleu is None for one in alone),
            features=bool(against),
        ),
        settings=settings,
        embedding=sets.settings if sets else None,
        components=components,
        n_reference=len(reference),
        n_generated=len(generated),
    )


def drawn(texts: Sequence[str], samples: int | None, seed: int, name: str) -> list[str]:
    """All texts, or some at random; refused when there are fewer than asked for."""
    if samples is None:
        return list(texts)
    if len(texts) < samples:
        raise ValueError(
            f"{name} must be at least samples = {samples}, got {len(texts)}: ask for fewer, or for all there are (--samples all; "
            "samples=None in Python)"
        )
    return [texts[place] for place in np.random.default_rng(seed).permutation(len(texts))[:samples]]


def featurise(
    reference: list[str],
    generated: list[str],
    settings: ScoreSettings,
    embed: Callable[[Sequence[str]], Any] | None,
    cache: str | Path | None,
    device: str | torch.device | None,
    tell: Progress,
) -> Embedded:
    """Features of both sets, embedded together so that equal texts are equal rows, and normalised where asked."""
    together = reference + generated
    if embed is not None:
        given = embed(together)
        rows = np.asarray(given.detach().cpu() if isinstance(given, torch.Tensor) else given)
        if rows.ndim != 2 or len(rows) != len(together):
            raise ValueError(f"embed must give one row for each of {len(together)} texts, got shape {rows.shape}")
        result = Embedded(rows[: len(reference)], rows[len(reference) :])
    else:
        embedder = Embedder(settings.model, settings.pooling, settings.max_tokens, None, device)
        made = embedder(together, cache=cache, progress=tell)
        x, y = made.features[: len(reference)], made.features[len(reference) :]
        result = Embedded(x, y, made.settings, made.truncated, made.empty)
    return replace(result, x=unit_rows(result.x), y=unit_rows(result.y)) if settings.normalise else result


def score_knn(sets: Embedded, settings: ScoreSettings, device: Any) -> tuple[KnnScores, int | None]:
    """k-NN scores, after PCA where asked, and how many components it left."""
    x, y, components = sets.x, sets.y, None
    if settings.pca is not None:
        reduce = fit_pca(x if settings.pca_fit == "reference" else np.concatenate([x, y]), share=settings.pca)
        x, y, components = reduce(x), reduce(y), len(reduce.components)
    scores = knn_scores(
        x, y, k=settings.k, boundary=settings.boundary, level=settings.level, seed=settings.seed, device=device
    )
    return scores, components


AGAINST: dict[str, Callable[[Any, ScoreSettings, Any], Any]] = {
    "knn": score_knn,
    "mauve": lambda sets, settings, device: mauve_score(sets.x, sets.y, seed=settings.seed),
    "prd": lambda sets, settings, device: prd_scores(
        sets.x, sets.y, clusters=max(2, min(20, len(sets.x) // 2, len(sets.y) // 2)), seed=settings.seed
    ),
}


def both_alone(
    reference: list[str], generated: list[str], sets: Embedded | None, settings: ScoreSettings
) -> tuple[Diversity, Diversity]:
    """Each set by itself, both cut at random to the smaller one's size: these metrics change with it."""
    size = min(len(reference), len(generated))
    rows = (None, None) if sets is None else (sets.x, sets.y)
    found = []
    for texts, of in zip((reference, generated), rows, strict=True):
        some = np.sort(np.random.default_rng(settings.seed).permutation(len(texts))[:size])
        found.append(diversity([texts[place] for place in some], None if of is None else of[some], settings))
    return found[0], found[1]


def diversity(texts: list[str], rows: NDArray[Any] | None, settings: ScoreSettings) -> Diversity:
    """The metrics that look at one set alone."""
    spoken = [text for text, tokens in zip(texts, tokenise(texts, settings.tokenisation), strict=True) if tokens]
    asked, n, cut = settings.metrics, settings.ngram, settings.tokenisation
    return Diversity(
        distinct=distinct_n(texts, n=n, tokenisation=cut) if "distinct" in asked else None,
        self_bleu=self_bleu(spoken, n=n, tokenisation=cut) if "self_bleu" in asked and len(spoken) > 1 else None,
        vendi=vendi_score(rows) if "vendi" in asked and rows is not None else None,
    )
