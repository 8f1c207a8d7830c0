"""Tempered laws: the definition, its limits, and extreme temperatures."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.theory import tempered, tempered_log

Q = np.array([0.4, 0.3, 0.2, 0.1, 0.0])


@pytest.mark.parametrize("t", [0.25, 0.5, 1.0, 1.7, 4.0])
def test_matches_the_definition(t):
    np.testing.assert_allclose(tempered(Q, t), Q ** (1 / t) / (Q ** (1 / t)).sum(), rtol=1e-14)


def test_one_changes_nothing_and_infinity_is_uniform_on_the_support():
    np.testing.assert_allclose(tempered(Q, 1.0), Q, rtol=1e-15)
    np.testing.assert_array_equal(tempered(Q, math.inf), [0.25, 0.25, 0.25, 0.25, 0.0])


def test_zero_is_uniform_on_the_most_probable_tokens():
    np.testing.assert_array_equal(tempered(Q, 0.0), [1, 0, 0, 0, 0])
    np.testing.assert_allclose(tempered([0.4, 0.2, 0.4], 0.0), [0.5, 0, 0.5], rtol=1e-15)


@pytest.mark.parametrize("t", [5e-324, 1e-300, 1e-12])
def test_tiny_temperatures_reach_the_limit_without_a_warning(t):
    np.testing.assert_allclose(tempered(Q, t), tempered(Q, 0.0))


@pytest.mark.parametrize("t", [1e12, 1e300, 1.7e308])
def test_huge_temperatures_reach_the_limit_without_a_warning(t):
    np.testing.assert_allclose(tempered(Q, t), tempered(Q, math.inf), atol=1e-11)


def test_logits_and_log_probabilities_temper_alike():
    z = np.array([[3.0, -2.0, 1000.0], [0.0, 0.0, -np.inf]])
    shifted = tempered_log(z - 50.0, [0.5, 2.0])
    np.testing.assert_allclose(shifted, tempered_log(z, [0.5, 2.0]), atol=1e-12)
    assert shifted.shape == (2, 2, 3)
    np.testing.assert_allclose(np.exp(shifted).sum(axis=-1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(np.exp(tempered_log(z[1], [0.0, 3.0, np.inf])), [[0.5, 0.5, 0.0]] * 3, rtol=1e-15)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.floats(0.05, 20.0), st.floats(1.001, 5.0))
def test_entropy_grows_with_temperature(weights, t, factor):
    q = np.array(weights, float) / sum(weights)

    def entropy(law):
        return -sum(x * math.log(x) for x in law if x > 0)

    assert entropy(tempered(q, t * factor)) >= entropy(tempered(q, t)) - 1e-12


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.floats(0.2, 5.0), st.floats(0.2, 5.0))
def test_tempering_twice_multiplies_temperatures(weights, s, t):
    q = np.array(weights, float) / sum(weights)
    np.testing.assert_allclose(tempered(tempered(q, s), t), tempered(q, s * t), rtol=1e-11)


def test_tempering_tokens_is_not_tempering_sequences():
    """Two positions, the second depends on the first: the product of tempered conditionals is not the tempered product."""
    first, second = np.array([0.7, 0.3]), np.array([[0.9, 0.1], [0.5, 0.5]])
    by_token = tempered(first, 2.0)[:, None] * np.stack([tempered(row, 2.0) for row in second])
    by_sequence = tempered((first[:, None] * second).ravel(), 2.0).reshape(2, 2)
    assert np.abs(by_token - by_sequence).max() > 0.01


def test_bad_input_is_refused_by_name():
    with pytest.raises(ValueError, match="temperature must lie in"):
        tempered(Q, -1.0)
    with pytest.raises(ValueError, match="temperature holds nan"):
        tempered(Q, math.nan)
    with pytest.raises(ValueError, match="q must lie in"):
        tempered([-0.1, 1.1], 1.0)
    with pytest.raises(ValueError, match="probabilities, at most 1"):
        tempered([3.0, 1.0], 1.0)
    with pytest.raises(ValueError, match="finite entry in each row"):
        tempered_log([[0.0, 1.0], [-np.inf, -np.inf]], 1.0)
    with pytest.raises(ValueError, match="logits holds nan"):
        tempered_log([0.0, np.nan], 1.0)
