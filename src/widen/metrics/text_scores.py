"""Texts in, all metrics out: how good and how varied a generator is, with intervals, ceilings and notes on what to distrust.

`ScoreSettings` says what to compute and how; `PAPER` is the paper's way (App., "Precision and Recall for the WritingPrompts Task").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from .embed import Embedder, EmbedSettings, Pooling
from .features import as_tensor, fit_pca, unit_rows
from .knn import KnnScores, knn_scores
from .knn_search import Boundary
from .mauve import Mauve, mauve_score
from .ngrams import Distinct, SelfBleu, Tokenisation, check_texts, distinct_n, self_bleu, tokenise
from .plain import to_json
from .prd import Prd, prd_scores
from .vendi import Vendi, vendi_score

VERSION = 2
Metric = Literal["knn", "mauve", "prd", "distinct", "self_bleu", "vendi"]
ALL: tuple[Metric, ...] = get_args(Metric)
Progress = Callable[[str, int, int], None]
SHORT = 20  # words; features of shorter texts carry little information
FEW = 1000  # texts; with fewer, k-NN scores vary visibly between samples


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
      pca_fit: on the ``reference`` alone, or ``joint`` on both sets as in the paper's code.
      samples: texts drawn from each set; None for all.
      ngram: n of distinct-n, and the longest n-gram of self-BLEU.
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
        if not self.metrics or not set(self.metrics) <= set(ALL):
            raise ValueError(f"metrics must be of {', '.join(ALL)}, at least one, got {list(self.metrics)}")
        if self.samples is not None and self.samples <= self.k:
            raise ValueError(f"samples must be more than k = {self.k}, got {self.samples}")


PAPER = ScoreSettings(
    model="gpt2-large", pooling="mean", normalise=True, pca=0.9, pca_fit="joint", k=4, boundary="open", samples=2000
)
"""Mean pooling of GPT2-large, unit rows, PCA on both sets to 90 % of the variance, open balls, k = 4, 2,000 texts per set."""


@dataclass(frozen=True)
class Diversity:
    """The metrics of one set alone; None for those not asked for, and where the texts are too short."""

    distinct: Distinct | None = None
    self_bleu: SelfBleu | None = None
    vendi: Vendi | None = None


@dataclass(frozen=True)
class TextScores:
    """All scores of a generated set against a reference set; None for metrics that were not asked for.

    Args:
      generated: distinct-n, self-BLEU and Vendi of the generated texts.
      reference: the same for as many reference texts, for comparison.
      notes: what to know before you trust the numbers.
      embedding: how texts became features; None if no metric needed features, or if the caller gave a function.
      components: features left by PCA; None without it.
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

    to_json = to_json


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
      settings: what to compute and how; `PAPER` for the paper's way.
      embed: a function from texts to an (N, D) array, used instead of ``settings.model``.
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
    reference = _drawn(reference_texts, settings.samples, settings.seed, "reference_texts")
    generated = _drawn(generated_texts, settings.samples, settings.seed + 1, "generated_texts")
    n, asked = len(reference), [name for name in ("knn", "mauve", "prd") if name in settings.metrics]
    together = [*reference, *generated]  # embedded together, so that equal texts have equal features
    empty = np.array([not text.strip() for text in together])
    x = y = embedding = knn = mauve = prd = components = None
    truncated = 0
    if asked or "vendi" in settings.metrics:
        if embed is not None:
            rows = as_tensor(embed(together), "embed(texts)", device="cpu").numpy()
            if len(rows) != len(together):
                raise ValueError(f"embed must give one row for each of {len(together)} texts, got shape {rows.shape}")
        else:
            embedder = Embedder(settings.model, settings.pooling, settings.max_tokens, None, device)
            made = embedder(together, cache=cache, progress=tell)
            rows, embedding, truncated = made.features, made.settings, made.truncated
        rows, empty = _without_features(rows, empty)
        rows = unit_rows(rows) if settings.normalise else rows
        x, y = rows[:n], rows[n:]
    # If the reference has empty texts too, they are compared like any others.
    silent = empty[n:] & ~empty[:n].any()
    for done, name in enumerate(asked):
        tell(name, done, len(asked) + 1)
        if name == "knn":
            knn, components = _score_knn(x, y, silent, settings, device)
        elif name == "mauve":
            mauve = mauve_score(x, y, seed=settings.seed)
        else:
            clusters = max(2, min(20, n // 2, len(generated) // 2))
            prd = prd_scores(x, y, clusters=clusters, seed=settings.seed)
    tell("diversity", len(asked), len(asked) + 1)
    size = min(n, len(generated))
    alone = [_diversity(texts, rows, size, settings) for texts, rows in ((reference, x), (generated, y))]
    tell("done", len(asked) + 1, len(asked) + 1)
    return TextScores(
        knn=knn,
        mauve=mauve,
        prd=prd,
        reference=alone[0],
        generated=alone[1],
        notes=notes_on(
            reference,
            generated,
            knn=knn,
            truncated=truncated,
            empty=int(silent.sum()),
            left_out=tuple(
                name
                for name in ("self_bleu", "distinct")
                if name in settings.metrics and any(getattr(one, name) is None for one in alone)
            ),
            features=bool(asked),
        ),
        settings=settings,
        embedding=embedding,
        components=components,
        n_reference=n,
        n_generated=len(generated),
    )


def _drawn(texts: Sequence[str], samples: int | None, seed: int, name: str) -> list[str]:
    """``samples`` of the texts, drawn without replacement; all of them if None."""
    check_texts(texts)
    if samples is None:
        return list(texts)
    if len(texts) < samples:
        raise ValueError(
            f"{name} must be at least samples = {samples}, got {len(texts)}: ask for fewer, or for all there are (--samples all; "
            "samples=None in Python)"
        )
    return [texts[place] for place in np.random.default_rng(seed).permutation(len(texts))[:samples]]


def _without_features(rows: NDArray[Any], empty: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Rows of zeros get a feature of their own, so that such texts resemble each other and no other text; they count as empty."""
    zero = ~rows.any(1)
    if not zero.any():
        return rows, empty
    length = np.linalg.norm(rows, axis=1).max() or 1.0
    return np.column_stack([rows, zero * length]), empty | zero


def _score_knn(
    x: Any, y: Any, empty: NDArray[np.bool_], settings: ScoreSettings, device: Any
) -> tuple[KnnScores, int | None]:
    """k-NN scores, after PCA if asked, and the number of components. ``empty`` says which generated texts are."""
    components = None
    if settings.pca is not None:
        both = np.concatenate([x, y[~empty]])
        reduce = fit_pca(x if settings.pca_fit == "reference" else both, share=settings.pca)
        x, y, components = reduce(x), reduce(y), len(reduce.components)
    options = {name: getattr(settings, name) for name in ("k", "boundary", "level", "seed")}
    return knn_scores(x, y, device=device, empty=empty, **options), components


def _diversity(texts: list[str], rows: NDArray[Any] | None, size: int, settings: ScoreSettings) -> Diversity:
    """The metrics of one set alone, on ``size`` texts drawn at random, as they depend on the size of the set."""
    some = np.sort(np.random.default_rng(settings.seed).permutation(len(texts))[:size])
    texts = [texts[place] for place in some]
    asked, n, cut = settings.metrics, settings.ngram, settings.tokenisation
    lengths = [len(tokens) for tokens in tokenise(texts, cut)]
    spoken = [text for text, length in zip(texts, lengths, strict=True) if length]
    return Diversity(
        distinct=distinct_n(texts, n=n, tokenisation=cut) if "distinct" in asked and max(lengths) >= n else None,
        self_bleu=self_bleu(spoken, n=n, tokenisation=cut) if "self_bleu" in asked and len(spoken) > 1 else None,
        vendi=vendi_score(rows[some]) if "vendi" in asked and rows is not None else None,
    )


def notes_on(
    reference: Sequence[str],
    generated: Sequence[str],
    *,
    knn: KnnScores | None = None,
    truncated: int = 0,
    empty: int = 0,
    left_out: Sequence[str] = (),
    features: bool = True,
) -> tuple[str, ...]:
    """Ways in which these numbers are known to mislead, most serious first.

    ``truncated`` and ``empty`` count texts; ``empty`` is 0 if a reference text is empty too. Without ``features`` no score has an interval.
    """
    n, m, known = len(reference), len(generated), set(reference)
    repeated, copied = m - len(set(generated)), sum(text in known for text in generated)
    open_balls = knn is not None and knn.settings.boundary == "open"
    zero = knn.diagnostics.zero_radii_reference + knn.diagnostics.zero_radii_generated if knn and open_balls else 0
    is_empty = "is empty: it counts as imprecise and reaches"
    are_empty = "are empty: they count as imprecise and reach"
    intervals = "; look at the intervals" if features else ""
    notes = {
        f"The sets differ in size ({n:,} reference, {m:,} generated texts): most of these scores depend on it.": n != m,
        f"Fewer than {FEW:,} texts in a set: scores vary visibly between samples{intervals}.": min(n, m) < FEW,
        "self-BLEU is left out: it compares the texts of one set and needs two that hold a word.": "self_bleu"
        in left_out,
        "distinct-n is left out of a set: none of its texts has n words.": "distinct" in left_out,
        f"{repeated:,} of {m:,} generated texts repeat an earlier one word for word.": repeated,
        f"{copied:,} generated texts are copies of reference texts: precision and coverage count them as good.": copied,
        f"{zero:,} balls have radius 0 and are empty, as the boundary is open: use a closed boundary.": zero,
        f"{empty:,} of {m:,} generated texts {is_empty if empty == 1 else are_empty} no reference text.": empty,
        f"{truncated:,} texts were cut at the embedder's limit: the rest of them was not scored.": truncated,
    }
    for name, texts in (("reference", reference), ("generated", generated)):
        words = median(len(text.split()) for text in texts)
        at_most = f"Half of the {name} texts have at most {words:g} words"
        notes[f"{at_most}: features of short texts carry little information."] = features and words < SHORT
    return tuple(note for note, applies in notes.items() if applies)
