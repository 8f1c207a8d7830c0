"""A curve of very many atoms keeps its digits."""

import math

import numpy as np
import pytest

from widen.theory import pr_curve


def test_a_large_curve_matches_the_definition():
    rng = np.random.default_rng(3)
    p, q = rng.exponential(size=300_000), rng.exponential(size=300_000) ** 2
    p, q = p / p.sum(), q / q.sum()
    curve = pr_curve(p, q)
    for lam in (1e-6, 1.0, 1e6):
        assert curve.precision(lam) == pytest.approx(math.fsum(np.minimum(lam * p, q)), rel=2e-15)
        assert curve.recall(lam) == pytest.approx(math.fsum(np.minimum(p, q / lam)), rel=2e-15)
