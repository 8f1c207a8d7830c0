"""Intervals have the coverage that they state, stay inside their range, and never shrink to a point for a share."""

import numpy as np
import pytest
from scipy.special import betaincinv

from widen.metrics.interval import count_interval, mean_interval, share_interval, student


@pytest.mark.parametrize(("problems", "least", "most"), [(8, 0.93, 1.0), (64, 0.93, 0.97)])
def test_95_percent_intervals_of_clustered_samples_hold_the_truth_about_95_times_in_100(problems, least, most):
    """Rare, common and frequent success; samples of a problem nearly independent, correlated, all equal."""
    rng, held, repeats = np.random.default_rng(0), [], 60
    for mean in (0.02, 0.3, 0.9):
        for correlation in (0.05, 0.4, 0.999):
            sharp = 1 / correlation - 1
            chance = rng.beta(mean * sharp, (1 - mean) * sharp, size=(repeats, problems))
            for shares in rng.binomial(10, chance) / 10:
                low, high = share_interval(shares, resamples=200, seed=len(held))
                held.append(low <= mean <= high)
    assert least <= np.mean(held) <= most


@pytest.mark.parametrize("n", [1, 2, 5, 64, 1000])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_share_of_none_or_all_has_an_interval_with_width(n, value):
    low, high = share_interval([value] * n)
    assert 0 <= low < high <= 1
    assert value in (low, high)
    assert high - low > min(0.9, 2 / n)


def test_an_interval_of_a_share_stays_in_range_and_holds_the_share():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 10, 100):
        for shares in (rng.random(n), rng.random(n) ** 20, np.eye(1, n)[0] / 50, np.full(n, 0.5)):
            low, high = share_interval(shares)
            assert 0 <= low <= shares.mean() <= high <= 1
            assert high - low > 0.005


def test_of_many_problems_a_share_has_the_interval_of_the_bootstrap_over_problems():
    shares = np.random.default_rng(0).beta(0.5, 1.0, size=500)
    assert share_interval(shares, resamples=4000) == pytest.approx(mean_interval(shares, resamples=4000), abs=0.005)


def test_bits_have_jeffreys_interval_for_many_units():
    assert share_interval([1] * 300 + [0] * 700) == pytest.approx(betaincinv(300.5, 700.5, [0.025, 0.975]), abs=2e-4)


def test_drawing_bits_gives_the_closed_form():
    bits = np.array([1.0] * 12 + [0.0] * 28)
    nearly = np.where(bits == 1, 1 - 1e-9, 1e-9)  # not bits: this is drawn
    assert share_interval(nearly, resamples=40_000) == pytest.approx(share_interval(bits), abs=0.006)


def test_a_ratio_of_shares_counts_only_what_is_left():
    """Problems with nothing left do not change the ratio; if nothing is left anywhere the interval says nothing."""
    added, left = np.array([0.2, 0.0, 0.4]), np.array([0.5, 0.4, 0.8])
    with_more = share_interval(np.append(added, [0.0] * 3), np.append(left, [0.0] * 3))
    assert with_more.low <= added.sum() / left.sum() <= with_more.high
    low, high = share_interval([0.0] * 5, [0.0] * 5)
    assert low < 0.01
    assert high == 1


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
        share_interval([0, 1], level=level)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        mean_interval([1.0], level=level)


@pytest.mark.parametrize("shares", [[], [1.5], [-0.1], [np.nan], [[0.5]]])
def test_what_is_no_share_is_refused(shares):
    with pytest.raises(ValueError, match="between 0 and 1"):
        share_interval(shares)


def test_a_share_of_less_than_itself_is_refused():
    with pytest.raises(ValueError, match="between 0 and of"):
        share_interval([0.5], [0.4])


@pytest.mark.parametrize("counts", [[], [[1, 2]], [1, -1], [float("nan")], [float("inf")]])
def test_what_is_no_count_is_refused(counts):
    with pytest.raises(
        ValueError, match=r"counts must be a list of finite numbers, at least one, none below 0, got \["
    ):
        count_interval(counts)


def test_no_values_have_no_mean_by_student():
    with pytest.raises(ValueError, match=r"values must hold at least one number, got \[\]"):
        student([])
