"""Bootstrap intervals: the closed form is what resampling gives, and they cover what they claim to cover."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from widen.metrics.interval import mean_interval, share_interval


@given(st.integers(2, 5000), st.floats(0.01, 0.99), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_share_has_the_quantiles_of_its_binomial(n, share, level):
    successes = min(max(1, round(share * n)), n - 1)
    expected = binom.ppf([(1 - level) / 2, (1 + level) / 2], n, successes / n) / n
    assert tuple(share_interval(successes, n, level=level)) == pytest.approx(expected, abs=1e-15)


def test_resampling_bits_gives_the_closed_form():
    bits = [1.0] * 30 + [0.0] * 70
    closed, drawn = share_interval(30, 100), mean_interval(bits, resamples=20_000)
    assert drawn == pytest.approx(closed, abs=0.011)


def test_a_share_of_none_or_all_is_not_certain():
    assert share_interval(0, 40).high == pytest.approx(1 - 0.025 ** (1 / 40))
    assert share_interval(40, 40) == pytest.approx((0.025 ** (1 / 40), 1.0))


def test_a_mean_of_equal_numbers_has_no_width():
    assert mean_interval([3.0] * 10) == (3.0, 3.0)


def test_95_percent_intervals_hold_the_truth_about_95_times_in_100():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(120):
        low, high = mean_interval(rng.exponential(size=200), resamples=200)
        held += low <= 1 <= high
    assert 104 <= held <= 119


def test_a_higher_level_is_wider():
    values = np.random.default_rng(0).standard_normal(100)
    narrow, wide = mean_interval(values, level=0.5), mean_interval(values, level=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("values", [[], [np.nan], [[1.0]]])
def test_what_has_no_mean_is_refused(values):
    with pytest.raises(ValueError, match="list of finite numbers"):
        mean_interval(values)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 95.0])
def test_a_level_is_a_share(level):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        share_interval(1, 2, level=level)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        mean_interval([1.0], level=level)


@pytest.mark.parametrize(("successes", "n"), [(3, 2), (-1, 2), (0, 0)])
def test_a_share_counts_what_there_is(successes, n):
    with pytest.raises(ValueError, match="between 0 and n"):
        share_interval(successes, n)
