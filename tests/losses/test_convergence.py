"""Gradient descent with the real weights reaches what `theory.optima` says, wherever the optimum is unique (THEORY: optima)."""

import numpy as np
import pytest
import torch

from widen.losses import CDiv, LambdaPR, Rows, TaiLr, Trunc, TruncR, parse
from widen.theory import optima

P = np.array([0.5, 0.25, 0.12, 0.08, 0.05])


def descend(loss, *, start, steps, lr, decay=float("inf"), average_last=0):
    """Population descent on the logits of one context: every token is a sequence of length one, met with probability P.

    The gradient dL/dz_i = q_i sum_j P_j w_j - P_i w_i is divided by q_i (natural gradient): the same stationary points, and a token whose
    mass should vanish gets there in hundreds of steps, not in a hundred thousand.
    """
    p = torch.tensor(P)
    z = torch.tensor(start, dtype=torch.float64).log()
    mask, state, total = torch.ones(len(P), 1, dtype=torch.bool), loss.init(), torch.zeros(len(P), dtype=torch.float64)
    for i in range(steps):
        q = z.softmax(0)
        w, state = loss.apply(Rows(q.log()[:, None]), mask, state)
        state = loss.observe(loss.seen(state), state)
        pw = p * w[:, 0]
        z = z - lr / (1 + i / decay) * (pw.sum() - pw / q)
        if i >= steps - average_last:
            total += z.softmax(0)
    return (total / average_last if average_last else z.softmax(0)).numpy()


UNIFORM = np.full(5, 0.2)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.4, 2.0])
def test_cdiv_converges_to_the_power_of_p(alpha):
    got = descend(CDiv(alpha=alpha, cap=float("inf")), start=UNIFORM, steps=500, lr=0.1)
    np.testing.assert_allclose(got, optima.cdiv(P, alpha=alpha), atol=1e-6)


def test_clipped_cdiv_converges_to_its_own_optimum():
    got = descend(CDiv(alpha=2.0, cap=6.0), start=UNIFORM, steps=300, lr=0.15)
    np.testing.assert_allclose(got, optima.cdiv(P, alpha=2.0, cap=6.0), atol=1e-6)
    assert np.abs(got - optima.cdiv(P, alpha=2.0)).max() > 1e-3  # the cap binds here, and moves the optimum


@pytest.mark.parametrize("gamma", [0.01, 0.3])
def test_tailr_converges_to_water_filling(gamma):
    got = descend(TaiLr(gamma=gamma), start=UNIFORM, steps=300, lr=1.0)
    np.testing.assert_allclose(got, optima.tailr(P, gamma=gamma), atol=1e-5)


def test_lambda_pr_converges_on_average_to_capped_water_filling():
    loss = LambdaPR(lam=0.9, gamma=0.3)
    threshold = loss.threshold(1)
    assert threshold * 5 > 1  # the unique case
    got = descend(loss, start=UNIFORM, steps=600, lr=0.5, decay=20, average_last=100)
    np.testing.assert_allclose(got, optima.lambda_pr(P, threshold=threshold, gamma=0.3), atol=5e-3)


@pytest.mark.parametrize("start", [UNIFORM, P], ids=["uniform", "P"])
def test_lambda_pr_with_a_small_threshold_stays_where_it_starts(start):
    """The flat case: every token lies above delta, nothing trains, and the start is kept."""
    loss = LambdaPR(lam=0.1, gamma=1e-3)
    assert loss.threshold(1) * 5 < 1
    np.testing.assert_allclose(descend(loss, start=start, steps=20, lr=0.5), start, atol=1e-15)


def rolling_list_descent(loss, *, steps=500, lr=0.05, decay=100):
    """The algorithm itself: batches that hold each token as often as P says, the window, the quantile; from P; averaged iterate.

    Ties would make the quantile jump by whole atoms, so each copy of a token carries a small jitter of its own, as sequences do.
    """
    counts = np.rint(P * 100).astype(int)
    token = torch.repeat_interleave(torch.arange(5), torch.tensor(counts))
    jitter = torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.02
    mask = torch.ones(100, 1, dtype=torch.bool)
    z, state, total = torch.tensor(P).log(), loss.init(), torch.zeros(5, dtype=torch.float64)
    for i in range(steps):
        q = z.softmax(0)
        w, state = loss.apply(Rows((q.log()[token] - jitter)[:, None]), mask, state)
        state = loss.observe(loss.seen(state), state)
        pw = torch.zeros(5, dtype=torch.float64).index_add(0, token, w[:, 0]) / 100
        z = z - lr / (1 + i / decay) * (pw.sum() - pw / q)
        if i >= steps // 2:
            total += z.softmax(0)
    return (total / (steps - steps // 2)).numpy()


@pytest.mark.parametrize("drop", [0.1, 0.3])
def test_truncr_converges_to_the_capped_law(drop):
    got = rolling_list_descent(TruncR(drop=drop, window=100))
    assert 0.5 * np.abs(got - optima.truncr(P, drop=drop)).sum() < 0.01


def test_trunc_from_p_converges_to_the_minimum_entropy_law():
    got = rolling_list_descent(Trunc(drop=0.13, window=100))
    assert 0.5 * np.abs(got - optima.trunc(P, drop=0.13)).sum() < 0.01


def test_a_product_descends_too():
    """c-Div 1.4 times c-Div .6 is NLL: the same optimum, P."""
    got = descend(parse("cdiv:alpha=1.4,cap=inf * cdiv:alpha=0.6"), start=UNIFORM, steps=150, lr=0.2)
    np.testing.assert_allclose(got, P, atol=1e-6)
