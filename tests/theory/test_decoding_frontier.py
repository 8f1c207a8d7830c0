"""What monotone decodings reach: mixtures of upper sets, a linear program as the twin, real decodings below the bound."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from widen.theory import decoded_log, decoding_frontier, pr_curve
from widen.theory.frontier import upper_sets

SOME = settings(max_examples=12, deadline=None, derandomize=True)


@st.composite
def contexts(draw):
    size = draw(st.integers(1, 7))
    q = np.array(draw(st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any)), float)
    valid = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size).filter(any)))
    return q / q.sum(), valid


def best_by_linear_program(q, valid, lam):
    """max sum of s_v over right tokens with s ≤ lam P, s ≤ d, d monotone in q and a law: variables d (V), s (V)."""
    size, k = q.size, valid.sum()
    rows, limits = [], []
    for i in range(size):
        for j in range(size):
            if q[i] >= q[j] and i != j:  # d_j ≤ d_i
                row = np.zeros(2 * size)
                row[j], row[i] = 1, -1
                rows.append(row)
                limits.append(0.0)
        row = np.zeros(2 * size)
        row[size + i], row[i] = 1, -1
        rows.append(row)
        limits.append(0.0)
    bounds = [(0, 1 if x else 0) for x in q] + [(0, min(lam / k, 1.0) if v else 0) for v in valid]
    total = np.concatenate([np.ones(size), np.zeros(size)])
    objective = -np.concatenate([np.zeros(size), np.ones(size)])
    found = linprog(objective, A_ub=np.array(rows), b_ub=limits, A_eq=total[None], b_eq=[1.0], bounds=bounds)
    return -found.fun


@SOME
@given(contexts(), st.sampled_from([0.2, 0.7, 1.0, 1.6, 4.0]))
def test_the_hull_of_the_upper_sets_is_the_best_of_all_monotone_laws(context, lam):
    q, valid = context
    assert decoding_frontier(q, valid, lam) == pytest.approx(best_by_linear_program(q, valid, lam), abs=1e-8)


steps = st.sampled_from(
    [
        0.0,
        0.5,
        4.0,
        math.inf,
        (("min_p", 0.4), ("temperature", 3.0)),
        (("temperature", 3.0), ("min_p", 0.4)),
        (("top_k", 2), ("temperature", math.inf)),
        (("epsilon", 0.15), ("temperature", 2.0)),
        (("top_n_sigma", 1.0),),
    ]
)


@SOME
@given(contexts(), steps)
def test_no_decoding_passes_the_frontier_and_each_is_a_mixture_of_upper_sets(context, decoding):
    q, valid = context
    with np.errstate(divide="ignore"):
        law = np.exp(decoded_log(np.log(q), decoding))
    lam = np.array([0.1, 0.5, 1.0, 2.0, 8.0, math.inf])
    reached = pr_curve(valid / valid.sum(), law / law.sum()).precision(lam)
    assert (reached <= decoding_frontier(q, valid, lam) + 1e-12).all()
    sizes, _ = upper_sets(q, valid)
    down = np.sort(law)[::-1]
    levels = down[sizes.astype(int) - 1]
    weights = sizes * (levels - np.append(levels[1:], 0.0))
    assert (weights >= -1e-12).all()
    assert weights.sum() == pytest.approx(1.0)
    mixture = sum(w / n * (np.arange(q.size) < n) for w, n in zip(weights, sizes, strict=True))
    np.testing.assert_allclose(mixture, down, atol=1e-12)


@SOME
@given(contexts())
def test_a_truncation_to_an_upper_set_is_a_point_below_the_frontier_and_p_is_reached_iff_it_is_one(context):
    q, valid = context
    k = valid.sum()
    sizes, hits = upper_sets(q, valid)
    for n, h in zip(sizes, hits, strict=True):
        assert h / n <= decoding_frontier(q, valid, k / n) + 1e-12
    perfect = (sizes == k).any() and hits[sizes == k][0] == k
    assert (decoding_frontier(q, valid, 1.0) > 1 - 1e-12) == perfect


def test_bad_input_is_refused_by_name():
    with pytest.raises(ValueError, match="valid = 'no True'"):
        decoding_frontier([0.5, 0.5], [False, False], 1.0)
    with pytest.raises(ValueError, match="valid = "):
        decoding_frontier([0.5, 0.5], [True], 1.0)
    with pytest.raises(ValueError, match="lam must lie"):
        decoding_frontier([0.5, 0.5], [True, False], -1.0)
