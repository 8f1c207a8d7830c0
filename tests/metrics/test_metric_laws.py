"""Laws that every metric obeys, one table of all metrics, and for every law a metric that breaks it and is caught.

A new metric adds a row. A law that does not apply to a row says so by leaving the row out of that law's list below, not by an exception.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

import widen.metrics as metrics

Numbers = dict[str, float]


def features(rng, n=40, dims=5):
    return rng.standard_normal((n, dims))


def texts(rng, n=40):
    words = ["a", "cat", "dog", "sat", "ran", "on", "the", "mat", "far", "away", "home", "soon"]
    return [" ".join(rng.choice(words, size=rng.integers(4, 12))) for _ in range(n)]


def counts(rng, n=40):
    return rng.integers(0, 11, size=n)


def conditionals(rng, n=10):
    return [rng.dirichlet(np.full(8, 0.3), size=rng.integers(2, 6)) for _ in range(n)]


def spoiled(items):
    """The same with a nan in it; for texts, with something that is no text."""
    if isinstance(items, list) and isinstance(items[0], str):
        return [*items[:-1], None]
    if isinstance(items, list):
        return [*items[:-1], np.full_like(items[-1], np.nan)]
    worse = np.array(items, dtype=float)
    worse[-1] = np.nan
    return worse


def shuffled(items, rng):
    order = rng.permutation(len(items))
    return [items[i] for i in order] if isinstance(items, list) else items[order]


def repeated(items, times):
    return (
        [item for item in items for _ in range(times)] if isinstance(items, list) else np.repeat(items, times, axis=0)
    )


@dataclass
class Row:
    """A metric as the laws see it.

    make: draws one set. sets: how many it compares. call: sets -> numbers. swaps: number -> what it becomes when the two sets trade
    places. perfect: what a set scores against itself. diverse: +1 where a larger number means more variety, -1 where less, for metrics
    of one set. alone: whether a set of one has a score (else it is refused).
    """

    make: Callable
    call: Callable[..., Numbers]
    sets: int = 2
    swaps: dict[str, str] = field(default_factory=dict)
    perfect: Numbers = field(default_factory=dict)
    diverse: dict[str, int] = field(default_factory=dict)
    alone: bool = False


def four(scores) -> Numbers:
    return scores.four._asdict()


def embed(batch):
    """Letters counted: features that need no model."""
    return np.array([[text.count(letter) + 0.1 for letter in "acdhmnorstuw"] for text in batch])


def text_numbers(reference, generated):
    settings = metrics.ScoreSettings(metrics=("knn", "distinct", "self_bleu", "vendi"), ngram=2)
    scores = metrics.score_texts(reference, generated, settings, embed=embed)
    alone = {
        f"{name}_{side}": getattr(getattr(scores, side), name).value
        for side in ("reference", "generated")
        for name in ("distinct", "self_bleu", "vendi")
    }
    return four(scores.knn) | alone


def prd_numbers(reference, generated):
    scores = metrics.prd_scores(reference, generated, clusters=4, runs=2, baseline=False)
    return {"auc": scores.auc, "f8": scores.f8, "f_eighth": scores.f_eighth}


def pass_numbers(right):
    scores = metrics.pass_scores(10, right, ks=(1, 5))
    return {"precision": scores.precision, "recall": scores.recall, "normalised": scores.recall_normalised}


PR = {"precision": "recall", "recall": "precision"}
WHOLE = {"precision": 1.0, "recall": 1.0}
METRICS: dict[str, Row] = {
    "knn_scores": Row(
        features,
        lambda a, b: four(metrics.knn_scores(a, b, k=3, ceiling=None)),
        swaps=PR,
        perfect=WHOLE | {"coverage": 1.0},
    ),
    "knn_scores_by_k": Row(
        features,
        lambda a, b: four(metrics.knn_scores_by_k(a, b, ks=(2, 3), ceiling=None)[1]),
        swaps=PR,
        perfect=WHOLE | {"coverage": 1.0},
    ),
    "mauve_score": Row(
        features,
        lambda a, b: {"mauve": metrics.mauve_score(a, b, clusters=4, seeds=2, baseline=False).value},
        swaps={"mauve": "mauve"},
        perfect={"mauve": 1.0},
    ),
    "prd_scores": Row(
        features,
        prd_numbers,
        swaps={"auc": "auc", "f8": "f_eighth", "f_eighth": "f8"},
        perfect={"auc": 1.0, "f8": 1.0, "f_eighth": 1.0},
    ),
    "score_texts": Row(texts, text_numbers, swaps=PR, perfect=WHOLE | {"coverage": 1.0}),
    "vendi_score": Row(
        features, lambda a: {"vendi": metrics.vendi_score(a).value}, sets=1, diverse={"vendi": 1}, alone=True
    ),
    "distinct_n": Row(
        texts, lambda a: {"distinct": metrics.distinct_n(a).value}, sets=1, diverse={"distinct": 1}, alone=True
    ),
    "self_bleu": Row(texts, lambda a: {"bleu": metrics.self_bleu(a).value}, sets=1, diverse={"bleu": -1}),
    "pass_scores": Row(counts, pass_numbers, sets=1, alone=True),
    "pass_at_k": Row(counts, lambda c: {"pass": float(np.mean(metrics.pass_at_k(10, c, 5)))}, sets=1, alone=True),
    "sparsity": Row(
        conditionals, lambda p: {"support": metrics.sparsity(p, masses=(0.9,)).support[0]}, sets=1, alone=True
    ),
}
NOT_METRICS = {  # makers of features, intervals and clusters; sparsity_of_model and mauve_of_histograms are tested against rows above
    *("embed_texts", "fit_pca", "kmeans", "mean_interval", "share_interval", "unit_rows", "support_sizes"),
    *("mauve_of_histograms", "sparsity_of_model"),
    "separation_scores",
    "ratio_histogram",  # its arguments share their rows, unlike two sets of items; test_separation.py has its laws
}
names = pytest.mark.parametrize("name", METRICS)


def test_no_metric_is_forgotten():
    functions = {name for name in metrics.__all__ if name[0].islower() and name != "exact"}
    assert set(METRICS) <= functions
    assert functions - NOT_METRICS <= set(METRICS)


# Each law is a function of a row that asserts; the tests apply it to the table, and then to the metric that must not pass.


def law_order(row: Row):
    """Listing the same items in another order changes nothing."""
    rng = np.random.default_rng(0)
    sets = [row.make(rng) for _ in range(row.sets)]
    assert row.call(*(shuffled(items, rng) for items in sets)) == pytest.approx(row.call(*sets), rel=1e-12)


def law_swap(row: Row):
    """precision(a, b) is recall(b, a); what is symmetric stays."""
    rng = np.random.default_rng(1)
    a, b = row.make(rng), 0.5 * row.make(rng) if row.make is features else row.make(rng)
    forth, back = row.call(a, b), row.call(b, a)
    assert row.swaps
    assert {name: forth[name] for name in row.swaps} == pytest.approx(
        {name: back[other] for name, other in row.swaps.items()}, rel=1e-9
    )


def law_perfect(row: Row):
    """A set against itself is perfect, also when every item occurs six times (more often than there are neighbours)."""
    items = row.make(np.random.default_rng(2))
    assert row.perfect
    for same in (items, repeated(items, 6)):
        found = row.call(same, same)
        assert {name: found[name] for name in row.perfect} == pytest.approx(row.perfect, rel=1e-9)


def law_repetition(row: Row):
    """Saying everything twice is no more varied."""
    items = row.make(np.random.default_rng(3))
    once, twice = row.call(items), row.call(repeated(items, 2))
    assert row.diverse
    for name, sign in row.diverse.items():
        assert sign * (twice[name] - once[name]) <= 1e-9


def law_alone(row: Row):
    """A set of one item has a finite score, or is refused with the reason; never nan."""
    rng = np.random.default_rng(4)
    sets = [row.make(rng)[:1] for _ in range(row.sets)]
    if row.alone:
        assert all(math.isfinite(number) for number in row.call(*sets).values())
    else:
        with pytest.raises(ValueError, match=r"at least|more than|between"):
            row.call(*sets)


def law_nan(row: Row):
    """One number that is none spoils no score in silence: it is refused, in whichever set it is."""
    rng = np.random.default_rng(5)
    sets = [row.make(rng) for _ in range(row.sets)]
    for place in range(row.sets):
        # ValueError from the metric; TypeError where a text is None and the type checker of the tests sees it first.
        with pytest.raises((ValueError, TypeError), match=r"finite|must be|Sequence\[str\]"):
            row.call(*(spoiled(items) if at == place else items for at, items in enumerate(sets)))


LAWS: dict[str, tuple[Callable[[Row], None], Callable[[Row], bool]]] = {
    "order": (law_order, lambda row: True),
    "swap": (law_swap, lambda row: row.sets == 2),
    "perfect": (law_perfect, lambda row: row.sets == 2),
    "repetition": (law_repetition, lambda row: bool(row.diverse)),
    "alone": (law_alone, lambda row: True),
    "nan": (law_nan, lambda row: True),
}
APPLIES = [(law, name) for law, (_, applies) in LAWS.items() for name, row in METRICS.items() if applies(row)]


@pytest.mark.parametrize(("law", "name"), APPLIES)
def test_law_holds(law, name):
    LAWS[law][0](METRICS[name])


def open_balls(a, b):
    """prdc's boundary: identical sets of repeated points score 0."""
    return four(metrics.knn_scores(a, b, k=3, boundary="open", ceiling=None))


def nearest_only(a, b):
    """A one-sided share, called precision and recall both."""
    share = float((np.linalg.norm(a[:, None] - b[None], axis=-1).min(0) < 1.5).mean())
    return {"precision": share, "recall": share}


BREAKERS: dict[str, Row] = {
    "order": Row(features, lambda a: {"first": float(a[0, 0])}, sets=1),
    "swap": Row(features, nearest_only, swaps=PR),
    "perfect": Row(features, open_balls, perfect=WHOLE),
    "repetition": Row(texts, lambda a: {"different": float(len(" ".join(a)))}, sets=1, diverse={"different": 1}),
    "alone": Row(
        features, lambda a: {"variance": float(np.var(a, ddof=1)) if len(a) > 1 else float("nan")}, sets=1, alone=True
    ),
    "nan": Row(features, lambda a: {"mean": float(np.nanmean(a))}, sets=1),
}


@pytest.mark.parametrize("law", LAWS)
def test_law_catches_a_metric_that_breaks_it(law):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        LAWS[law][0](BREAKERS[law])
