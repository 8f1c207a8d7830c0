"""Sums over very many atoms keep their digits, and the curve built on them is right at that size."""

import math

import numpy as np
import pytest

from widen.theory import pr_curve
from widen.theory.prefix import BLOCK, RunningSums


def test_running_sums_stay_exact_over_a_million_atoms():
    x = np.random.default_rng(2).random(1_000_000)
    k = np.array([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 123_457, 1_000_000])
    for view in (x, x[::-1]):
        sums, plain = RunningSums(view), np.cumsum(view)
        exact = np.array([math.fsum(view[:end]) for end in k])
        assert (np.abs(sums.at(k) - exact) <= 1e-15 * exact).all()
        assert abs(plain[-1] - exact[-1]) > 10 * abs(sums.total - exact[-1])
        for start, stop in ((0, 5), (100, 100), (127, 700), (123_000, 123_457)):
            np.testing.assert_allclose(sums.between(start, stop), sums.at(np.arange(start, stop + 1)), rtol=1e-15)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 300, 20_000])
def test_running_sums_take_any_number_of_queries(size, monkeypatch):
    x = np.random.default_rng(3).random(size)
    table = np.concatenate([[0.0], np.cumsum(x)])
    for shape in ((), (3,), (7, 11)):  # few queries look into single blocks, many sum once over all
        k = np.random.default_rng(4).integers(0, size + 1, size=shape)
        whole = RunningSums(x).at(k)
        assert whole.shape == shape
        np.testing.assert_allclose(whole, table[k], rtol=1e-12)
        with monkeypatch.context() as patch:
            patch.setattr("widen.theory.prefix.QUERIES", 5)
            np.testing.assert_array_equal(RunningSums(x).at(k), whole)
    assert RunningSums(x).total == pytest.approx(x.sum())


def test_the_area_does_not_depend_on_its_slices(monkeypatch):
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(1000)), rng.dirichlet(np.ones(1000) * 0.5)
    whole = pr_curve(p, q).auc
    monkeypatch.setattr("widen.theory.divergence.SLICE", 7)
    assert pr_curve(p, q).auc == pytest.approx(whole, rel=1e-14)


def test_a_large_curve_matches_the_definition():
    rng = np.random.default_rng(3)
    p, q = rng.exponential(size=300_000), rng.exponential(size=300_000) ** 2
    p, q = p / p.sum(), q / q.sum()
    curve = pr_curve(p, q)
    for lam in (1e-6, 0.1, 1.0, 10.0, 1e6):
        assert curve.precision(lam) == pytest.approx(math.fsum(np.minimum(lam * p, q)), rel=2e-15)
        assert curve.recall(lam) == pytest.approx(math.fsum(np.minimum(p, q / lam)), rel=2e-15)
