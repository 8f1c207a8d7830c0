"""distinct-n, self-BLEU and Vendi against their definitions written out at length."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.metrics import distinct_n, self_bleu, vendi_score
from widen.metrics.ngrams import ngrams, tokenise

WORDS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=9).map(" ".join)


def bleu_by_definition(hypothesis, references, n, smoothing):
    """BLEU with every reference looked at, as in Papineni et al., with nltk's conventions at the edges."""
    log = 0.0
    for i in range(1, n + 1):
        mine = Counter(ngrams(hypothesis, i))
        clipped = sum(min(count, max(Counter(ngrams(r, i))[gram] for r in references)) for gram, count in mine.items())
        if clipped == 0 and (i == 1 or smoothing == "none"):
            return 0.0
        log += math.log((clipped or 0.1) / max(1, sum(mine.values()))) / n
    nearest = min((abs(len(r) - len(hypothesis)), len(r)) for r in references)[1]
    return math.exp(log) * (1.0 if len(hypothesis) > nearest else math.exp(1 - nearest / len(hypothesis)))


@given(st.lists(WORDS, min_size=2, max_size=7), st.integers(1, 4), st.sampled_from(["epsilon", "none"]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_self_bleu_is_the_mean_bleu_against_all_others(texts, n, smoothing):
    cut = [text.split() for text in texts]
    expected = np.mean([bleu_by_definition(t, cut[:i] + cut[i + 1 :], n, smoothing) for i, t in enumerate(cut)])
    assert self_bleu(texts, n=n, smoothing=smoothing, tokenisation="whitespace").value == pytest.approx(
        expected, rel=1e-12, abs=1e-15
    )


@pytest.mark.slow
def test_self_bleu_agrees_with_nltk():
    bleu = pytest.importorskip("nltk.translate.bleu_score", reason="pip install nltk")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefg"), size=rng.integers(5, 30))) for _ in range(25)]
    cut = [text.split() for text in texts]
    smooth = bleu.SmoothingFunction().method1
    each = [bleu.sentence_bleu(cut[:i] + cut[i + 1 :], t, smoothing_function=smooth) for i, t in enumerate(cut)]
    assert self_bleu(texts, tokenisation="whitespace").value == pytest.approx(np.mean(each), rel=1e-12)


def test_self_bleu_of_copies_is_1_and_of_strangers_0():
    assert self_bleu(["a b c d e"] * 5).value == 1.0
    assert self_bleu(["a b c d", "e f g h"]).value == 0.0


def test_all_that_defines_self_bleu_travels_with_it():
    found = self_bleu(["a b", "b a", "a"], n=2, smoothing="none", tokenisation="whitespace")
    assert (found.n, found.smoothing, found.tokenisation, found.texts) == (2, "none", "whitespace", 3)


@given(st.lists(WORDS, min_size=1, max_size=8), st.integers(1, 3))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_distinct_counts_ngrams_within_texts(texts, n):
    grams = [gram for text in texts for gram in ngrams(text.split(), n)]
    if not grams:
        with pytest.raises(ValueError, match="at least one run"):
            distinct_n(texts, n=n, tokenisation="whitespace")
        return
    found = distinct_n(texts, n=n, tokenisation="whitespace")
    assert (found.different, found.total, found.value) == (len(set(grams)), len(grams), len(set(grams)) / len(grams))


def test_an_ngram_does_not_cross_from_one_text_into_the_next():
    assert distinct_n(["a b", "c d"], n=2).total == 2


def test_tokenisation_is_part_of_the_score():
    texts = ["don't", "do not"]
    assert [distinct_n(texts, n=1, tokenisation=how).total for how in ("words", "whitespace", "characters")] == [
        5,
        3,
        11,
    ]


REFUSED = [
    ("n must be at least 1", lambda: distinct_n(["a"], n=0)),
    ("n must be at least 1", lambda: self_bleu(["a", "b"], n=0)),
    ("at least two", lambda: self_bleu(["a"])),
    ("text 1 holds none", lambda: self_bleu(["a", "  "])),
    ("order must be at least 0", lambda: vendi_score([[1.0]], order=-1.0)),
    ("no row of zeros", lambda: vendi_score([[1.0], [0.0]])),
]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_bad_input_is_refused(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_string_is_not_a_list_of_texts():
    with pytest.raises(ValueError, match="got one string"):
        tokenise("abc", "words")


def vendi_by_definition(x, order):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(unit @ unit.T / len(x))
    values = values[values > 1e-12]
    if order == 1:
        return math.exp(-(values * np.log(values)).sum())
    return 1 / values.max() if math.isinf(order) else (values**order).sum() ** (1 / (1 - order))


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 2.0, 7.0, math.inf])
@pytest.mark.parametrize(("n", "dims"), [(30, 8), (8, 30)])
def test_vendi_is_that_of_the_full_similarity_matrix(n, dims, order):
    x = np.random.default_rng(0).standard_normal((n, dims))
    assert vendi_score(x, order=order).value == pytest.approx(vendi_by_definition(x, order), rel=1e-9)


def test_vendi_counts_a_point_as_often_as_it_occurs():
    x = np.repeat(np.random.default_rng(0).standard_normal((5, 4)), [9, 1, 1, 2, 1], axis=0)
    assert vendi_score(x).value == pytest.approx(vendi_by_definition(x, 1), rel=1e-9)


def test_vendi_is_continuous_at_order_1():
    x = np.random.default_rng(0).standard_normal((30, 8))
    assert vendi_score(x, order=1 + 1e-7).value == pytest.approx(vendi_score(x).value, rel=1e-6)


def test_vendi_of_many_copies_is_1_also_in_float32():
    row = np.random.default_rng(0).standard_normal((1, 50)).astype(np.float32)
    assert vendi_score(np.repeat(row, 2000, 0)).value == pytest.approx(1.0, abs=1e-12)


def test_vendi_counts_orthogonal_kinds():
    assert vendi_score(torch.eye(6)).value == pytest.approx(6.0)
    assert vendi_score(torch.eye(6).repeat(3, 1)).value == pytest.approx(6.0)
