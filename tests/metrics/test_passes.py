"""pass@k against its definition, to the last digit and far out; precision and recall made of it."""

import json
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from widen.metrics import pass_at_k, pass_scores

# n, c, k, value: from an independent sheet, checked symbolically
GOLDEN = [
    (10, 3, 1, 0.3),
    (10, 3, 5, 0.9166666666666666),
    (10, 0, 5, 0.0),
    (10, 10, 1, 1.0),
    (10, 6, 5, 1.0),
    (10, 5, 5, 0.996031746031746),
    (200, 1, 100, 0.5),
    (200, 7, 100, 0.9929911172418123),
    (1000, 13, 100, 0.7480262507962617),
    (1000, 901, 100, 1.0),
    (1000, 900, 100, 1.0),
]


@pytest.mark.parametrize(("n", "c", "k", "value"), GOLDEN)
def test_known_values(n, c, k, value):
    assert pass_at_k(n, c, k) == pytest.approx(value, rel=1e-15)


def test_equals_its_binomials_for_every_small_case():
    for n in range(1, 13):
        for k in range(1, n + 1):
            for c in range(n + 1):
                exact = 1 - Fraction(comb(n - c, k), comb(n, k))
                assert pass_at_k(n, c, k) == pytest.approx(float(exact), rel=1e-14, abs=0)


@pytest.mark.parametrize(("n", "c", "k"), [(10**5, 1, 3), (10**6, 2, 10), (10**5, 10**4, 1000)])
def test_keeps_its_digits_far_out(n, c, k):
    """1 - product loses eleven of them at the first."""
    exact = 1 - Fraction(comb(n - c, k), comb(n, k))
    assert pass_at_k(n, c, k) == pytest.approx(float(exact), rel=1e-12, abs=0)


def test_is_unbiased():
    """Averaged over what c can be for a problem solved with probability p, it is 1 - (1-p)^k exactly; the plug-in is not."""
    n, k, p = 12, 5, 0.2
    c = np.arange(n + 1)
    law = np.array([comb(n, i) * p**i * (1 - p) ** (n - i) for i in c])
    assert law @ pass_at_k(n, c, k) == pytest.approx(1 - (1 - p) ** k, rel=1e-14)
    assert law @ (1 - (1 - c / n) ** k) < 1 - (1 - p) ** k - 0.01


def test_arrays_give_arrays_and_numbers_numbers():
    assert pass_at_k([10, 20], [3, 0], 5).tolist() == [pass_at_k(10, 3, 5), 0.0]
    assert pass_at_k(10, np.array([[1, 2], [3, 4]]), 1).shape == (2, 2)
    assert isinstance(pass_at_k(10, 3, 5), float)


REFUSED = [
    ("needs at least 11 samples of every problem; 1 have fewer, the least 10", [10, 20], [3, 4], 11),
    ("k must be a whole number of at least 1", 10, 3, 0),
    ("c must lie between 0 and n", 10, 11, 1),
    ("c must lie between 0 and n", 10, -1, 1),
    ("whole numbers", 10, 0.5, 1),
    ("whole numbers", [], [], 1),
    ("whole numbers", 10, float("nan"), 1),
]


@pytest.mark.parametrize(("message", "n", "c", "k"), REFUSED)
def test_bad_counts_are_refused(message, n, c, k):
    with pytest.raises(ValueError, match=message):
        pass_at_k(n, c, k)


def test_too_few_samples_are_refused_and_not_dropped():
    with pytest.raises(ValueError, match="needs at least 100 samples of every problem; 2 have fewer, the least 50"):
        pass_scores([100, 50, 50], [1, 2, 3])


def test_precision_is_pass_at_1_and_recall_what_more_tries_add():
    c = np.array([0, 1, 5, 100])
    scores = pass_scores(100, c)
    assert scores.ks == (1, 10, 100)
    assert scores.precision == pytest.approx(c.mean() / 100)
    assert scores.values == pytest.approx([np.mean(pass_at_k(100, c, k)) for k in (1, 10, 100)])
    assert scores.recall == pytest.approx(0.75 - scores.precision)
    assert scores.recall_normalised == pytest.approx(scores.recall / (1 - scores.precision))


def test_the_papers_recall_falls_as_precision_rises_and_the_normalised_one_need_not():
    """Every problem is solved at least once in both; the second model is right more often."""
    weak, strong = pass_scores(100, [2] * 10), pass_scores(100, [90] * 10)
    assert weak.recall > strong.recall
    assert weak.recall_normalised == strong.recall_normalised == 1.0
    assert pass_scores(100, [100] * 3).recall == 0.0
    assert pass_scores(100, [100] * 3).recall_normalised == 1.0


def test_intervals_hold_the_values_and_shrink_with_problems():
    few, many = (pass_scores(100, np.tile([0, 1, 50, 100], n)) for n in (5, 100))
    for scores in (few, many):
        for value, (low, high) in zip(scores.values, scores.intervals, strict=True):
            assert low <= value <= high
        assert scores.recall_interval.low <= scores.recall <= scores.recall_interval.high
        assert (
            scores.recall_normalised_interval.low <= scores.recall_normalised <= scores.recall_normalised_interval.high
        )
    assert np.diff(many.precision_interval) < np.diff(few.precision_interval) / 3


@pytest.mark.parametrize("right", [0, 100])
def test_intervals_of_64_problems_have_width_where_no_or_every_sample_is_right(right):
    scores = pass_scores(100, [right] * 64)
    for low, high in (*scores.intervals, scores.recall_interval, scores.recall_normalised_interval):
        assert 0 <= low < high <= 1
        assert high - low > 0.03


def test_pass_scores_go_to_json():
    again = json.loads(json.dumps(pass_scores(10, [3, 4], ks=(5,)).to_json(), allow_nan=False))
    assert (again["ks"], again["problems"], again["samples"]) == ([1, 5], 2, [10, 10])


def test_one_list_of_problems_is_wanted():
    with pytest.raises(ValueError, match="one number per problem"):
        pass_scores(10, [[1, 2], [3, 4]], ks=(1,))
