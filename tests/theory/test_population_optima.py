"""Where each loss stops: golden vectors, stationarity, and comparison with every other law."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.theory import optima, tempered
from widen.theory.optima import lambda_pr_is_unique, lambda_pr_threshold

SOME = settings(max_examples=15, deadline=None, derandomize=True)
CLOSE = dict(rtol=1e-10, atol=1e-14)


@st.composite
def laws(draw, max_size=7):
    weights = draw(st.lists(st.integers(0, 9), min_size=1, max_size=max_size).filter(any))
    return np.array(weights, float) / sum(weights)


def entropy(q):
    return -sum(x * math.log(x) for x in q if x > 0)


def test_golden_optima(golden):
    cases = golden["stationary_optima"]["cases"]
    assert len(cases) == 3
    for case in cases:
        p = case["P"]
        for alpha, row in case["cdiv"].items():
            np.testing.assert_allclose(optima.cdiv(p, alpha=float(alpha)), row["Q"], **CLOSE)
        for row in case["cdiv_clipped"]:
            np.testing.assert_allclose(optima.cdiv(p, alpha=row["alpha"], cap=row["M"]), row["Q"], **CLOSE)
        for gamma, row in case["tailr"].items():
            np.testing.assert_allclose(optima.tailr(p, gamma=float(gamma)), row["Q"], **CLOSE)
        for drop, row in case["truncR"].items():
            np.testing.assert_allclose(optima.truncr(p, drop=float(drop)), row["Q"], **CLOSE)
            np.testing.assert_allclose(optima.truncr_threshold(p, drop=float(drop)), row["delta"], **CLOSE)
        for drop, row in case["trunc"].items():
            np.testing.assert_allclose(optima.trunc(p, drop=float(drop)), row["Q"], rtol=1e-10, atol=1e-15)
        for row in case["lambda_pr"]:
            threshold = lambda_pr_threshold(row["lambda"], row["L"], row["gamma"])
            np.testing.assert_allclose(threshold, row["delta"], **CLOSE)
            support = int(np.count_nonzero(p))
            assert lambda_pr_is_unique(row["lambda"], row["L"], row["gamma"], support=support) == (not row["flat"])
            if row["flat"]:
                with pytest.raises(ValueError, match="is stationary"):
                    optima.lambda_pr(p, threshold=threshold, gamma=row["gamma"])
            else:
                np.testing.assert_allclose(
                    optima.lambda_pr(p, threshold=threshold, gamma=row["gamma"]), row["Q"], **CLOSE
                )


def test_golden_thresholds(golden):
    for row in golden["delta_lambda"]:
        delta = lambda_pr_threshold(row["lambda"], row["L"], row["gamma"])
        assert delta == pytest.approx(row["delta"], rel=1e-10)
        assert math.log(delta) == pytest.approx(
            row["log_delta"], rel=1e-10, abs=1e-12
        )  # lam = 1 - 1e-12 is not a float64


OPTIMA = {
    "nll": lambda p: optima.nll(p),
    "gold": lambda p: optima.gold(p),
    "cdiv 1.4": lambda p: optima.cdiv(p, alpha=1.4),
    "cdiv 3 capped": lambda p: optima.cdiv(p, alpha=3.0, cap=2.0),
    "cdiv .3 capped": lambda p: optima.cdiv(p, alpha=0.3, cap=0.5),
    "cdiv 0": lambda p: optima.cdiv(p, alpha=0.0),
    "tailr .1": lambda p: optima.tailr(p, gamma=0.1),
    "tailr 1": lambda p: optima.tailr(p, gamma=1.0),
    "lambda_pr": lambda p: optima.lambda_pr(p, threshold=max(0.4, 1 / np.count_nonzero(p)), gamma=0.2),
    "lambda_pr 1": lambda p: optima.lambda_pr(p, threshold=max(0.4, 1 / np.count_nonzero(p)), gamma=1.0),
    "trunc": lambda p: optima.trunc(p, drop=0.3),
    "truncr": lambda p: optima.truncr(p, drop=0.3),
}


@pytest.mark.parametrize("name", OPTIMA)
@SOME
@given(p=laws())
def test_every_optimum_is_a_law_on_the_support_that_keeps_the_order(name, p):
    q = OPTIMA[name](p)
    assert q.shape == p.shape
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    assert (q >= 0).all()
    assert (q[p == 0] == 0).all()
    order = np.argsort(-p, kind="stable")
    assert (np.diff(q[order]) <= 1e-12).all()


@SOME
@given(laws(), st.floats(0.2, 4.0), st.floats(0.3, 20.0))
def test_cdiv_is_stationary(p, alpha, cap):
    """P w / q is one constant on the support, with and without the cap."""
    for limit in (math.inf, cap):
        q = optima.cdiv(p, alpha=alpha, cap=limit)
        on = p > 0
        level = p[on] * np.minimum(q[on] ** (1 - alpha), limit) / q[on]
        np.testing.assert_allclose(level, level[0], rtol=1e-9)


@SOME
@given(laws(), st.floats(0.2, 4.0), st.floats(0.2, 4.0))
def test_cdiv_then_temperature_is_nll_at_the_product(p, alpha, t):
    np.testing.assert_allclose(tempered(optima.cdiv(p, alpha=alpha), t), tempered(p, alpha * t), rtol=1e-10)
    np.testing.assert_allclose(tempered(optima.cdiv(p, alpha=alpha), 1 / alpha), p, rtol=1e-10)


@SOME
@given(laws())
def test_special_cases_are_other_losses(p):
    np.testing.assert_allclose(optima.gold(p), p**2 / (p**2).sum(), rtol=1e-12)
    np.testing.assert_allclose(optima.cdiv(p, alpha=1.0), p, rtol=1e-14)
    np.testing.assert_allclose(optima.cdiv(p, alpha=2.0, cap=1.0), p, rtol=1e-10)  # a cap at 1 leaves NLL
    np.testing.assert_allclose(optima.tailr(p, gamma=0.0), p, rtol=1e-14)
    np.testing.assert_allclose(optima.tailr(p, gamma=1.0), optima.cdiv(p, alpha=0.0), rtol=1e-14)
    np.testing.assert_allclose(optima.lambda_pr(p, threshold=1.0, gamma=0.2), optima.tailr(p, gamma=0.2), rtol=1e-14)
    np.testing.assert_allclose(
        optima.lambda_pr(p, threshold=1 - 1e-13, gamma=0.2), optima.tailr(p, gamma=0.2), atol=1e-11
    )
    np.testing.assert_allclose(optima.trunc(p, drop=0.0), p, atol=1e-15)
    np.testing.assert_allclose(optima.truncr(p, drop=0.0), p, atol=1e-15)
    np.testing.assert_allclose(optima.tailr(p, gamma=1 - 1e-12), optima.tailr(p, gamma=1.0), atol=1e-9)


@SOME
@given(laws(), st.floats(1e-4, 0.95))
def test_tailr_satisfies_its_optimality_conditions(p, gamma):
    """Maximises sum p log(gamma + (1-gamma) q): equal slopes where q > 0, smaller ones elsewhere."""
    q = optima.tailr(p, gamma=gamma)
    slope = p / (gamma + (1 - gamma) * q)
    level = slope[q > 0]
    np.testing.assert_allclose(level, level[0], rtol=1e-9)
    assert (slope[q == 0] <= level[0] * (1 + 1e-9)).all()
    gains = (q > p + 1e-12).nonzero()[0]
    share = p[q > 0].sum() / (q > 0).sum()
    assert (p[gains] > share - 1e-12).all() or p[q > 0].sum() < 1 - 1e-12


def test_the_printed_tailr_optimum_is_negative_when_a_token_has_no_mass():
    p, gamma = np.array([0.4, 0.3, 0.2, 0.1, 0.0]), 0.05
    printed = (p * (1 - gamma + 5 * gamma) - gamma) / (1 - gamma)
    assert printed[-1] == pytest.approx(-0.0526, abs=1e-4)
    q = optima.tailr(p, gamma=gamma)
    assert (q >= 0).all()

    def potential(law):
        return (p * np.log(gamma + (1 - gamma) * law)).sum()

    rng = np.random.default_rng(0)
    assert all(potential(q) >= potential(law) for law in rng.dirichlet(np.ones(5) * 0.7, size=2000))
    dense = np.array([0.3, 0.25, 0.2, 0.15, 0.1])  # every token above the threshold: there the printed form is right
    np.testing.assert_allclose(optima.tailr(dense, gamma=0.05), (dense * (0.95 + 0.25) - 0.05) / 0.95, rtol=1e-13)


@SOME
@given(laws(), st.floats(0.0, 0.9), st.floats(0.01, 0.99))
def test_lambda_pr_satisfies_its_optimality_conditions(p, gamma, room):
    support = np.count_nonzero(p)
    threshold = 1 / support + (1 - 1 / support) * room
    if threshold >= 1 or support == 1:
        return
    q = optima.lambda_pr(p, threshold=threshold, gamma=gamma)
    slope = p / (gamma + (1 - gamma) * np.maximum(q, 1e-300))
    inside, capped, out = (q > 1e-12) & (q < threshold - 1e-12), q >= threshold - 1e-12, (q <= 1e-12) & (p > 0)
    if inside.any():
        level = slope[inside][0]
        np.testing.assert_allclose(slope[inside], level, rtol=1e-7)
        assert (slope[capped] >= level * (1 - 1e-7)).all()
        assert (slope[out] <= level * (1 + 1e-7)).all()
    assert (q <= threshold + 1e-12).all()


def test_a_token_of_nearly_no_mass_does_not_change_lambda_pr():
    without = optima.lambda_pr([0.75, 0.2, 0.05], threshold=0.5, gamma=0.1)
    for tiny in (1e-15, 1e-20, 1e-50, 1e-300):
        q = optima.lambda_pr([0.75, 0.2, 0.05, tiny], threshold=0.5, gamma=0.1)
        np.testing.assert_allclose(q, [*without, 0.0], rtol=1e-12)


def test_lambda_pr_at_the_least_threshold_is_uniform():
    p = [0.5, 0.3, 0.2, 0.0]
    np.testing.assert_allclose(optima.lambda_pr(p, threshold=1 / 3, gamma=0.2), [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-12)


def test_below_the_least_threshold_nothing_moves():
    """|Supp| delta < 1: at any q with all its support above delta every weight is 0; uniqueness is exactly its opposite."""
    lam, length, gamma = 0.1, 8, 0.01
    delta = lambda_pr_threshold(lam, length, gamma)
    for q in (np.full(5, 0.2), np.array([0.5, 0.25, 0.12, 0.08, 0.05])):
        assert (q > delta).all()
    for support in range(1, 60):
        assert lambda_pr_is_unique(lam, length, gamma, support=support) == (support * delta >= 1)
    assert not lambda_pr_is_unique(0.9, 8, 0.5, support=1)
    assert lambda_pr_is_unique(1.0, 8, 0.0, support=1)
    assert lambda_pr_is_unique(2.0, 8, 0.0, support=1)


@SOME
@given(st.floats(0.001, 0.999), st.floats(1e-6, 1.0), st.floats(1e-9, 1.0))
def test_the_threshold_is_where_the_ratio_to_the_proxy_reaches_lam(lam, gamma, q):
    """min(lam, q / (gamma + (1-gamma) q)) is q / (...) exactly up to delta (one position)."""
    delta = lambda_pr_threshold(lam, 1, gamma)
    assert delta / (gamma + (1 - gamma) * delta) == pytest.approx(lam, rel=1e-9)
    if abs(q - delta) > 1e-9 * delta:
        assert (q <= delta) == (q / (gamma + (1 - gamma) * q) <= lam)


def test_thresholds_at_the_ends():
    assert lambda_pr_threshold(1.0, 2048, 1e-7) == 1.0
    assert lambda_pr_threshold(1.0, 8, 0.0) == 1.0
    assert lambda_pr_threshold(0.5, 8, 0.0) == 0.0
    assert lambda_pr_threshold(0.1, 4, 1.0) == pytest.approx(0.1**0.25, rel=1e-14)
    printed = 2 ** (1 / 100) * 1e-5 / (1 - (1 - 1e-5) * 2 ** (1 / 100))
    assert printed == pytest.approx(-0.00145, abs=1e-5)
    assert lambda_pr_threshold(2.0, 100, 1e-5) == math.inf
    assert lambda_pr_threshold(2.0, 4, 1.0) == pytest.approx(2**0.25)


@SOME
@given(laws(max_size=5), st.floats(0.0, 0.9))
def test_trunc_and_truncr_are_the_least_and_the_greatest_entropy_under_one_cap(p, drop):
    cap = p / (1 - drop)
    low, high = optima.trunc(p, drop=drop), optima.truncr(p, drop=drop)
    for q in (low, high):
        assert (q <= cap + 1e-12).all()
    for kept in itertools.product((False, True), repeat=p.size):  # vertices: some atoms full, one partly
        full = np.where(kept, cap, 0.0)
        rest = 1 - full.sum()
        for i in range(p.size):
            if not kept[i] and -1e-12 <= rest <= cap[i] + 1e-12:
                vertex = full.copy()
                vertex[i] = max(rest, 0.0)
                assert entropy(low) <= entropy(vertex) + 1e-9
                assert entropy(high) >= entropy(vertex) - 1e-9
                assert entropy(high) >= entropy((vertex + p) / 2) - 1e-9


def test_truncr_minimises_the_worst_case_nll():
    """CVaR of -log Q over the worst 1 - drop of P; random laws and the lemma's own solution do no better."""
    p, drop = np.array([0.5, 0.3, 0.2]), 0.5
    rng = np.random.default_rng(1)

    def cvar(q):
        loss = -np.log(q)
        order = np.argsort(-loss)
        taken = np.minimum(np.cumsum(p[order]), 1 - drop)
        return float((np.diff(taken, prepend=0.0) * loss[order]).sum() / (1 - drop))

    best = optima.truncr(p, drop=drop)
    np.testing.assert_allclose(best, [1 / 3] * 3, rtol=1e-14)
    assert all(cvar(best) <= cvar(q) + 1e-12 for q in rng.dirichlet(np.ones(3), size=3000))
    assert cvar(best) < cvar(np.array([0.375, 0.375, 0.25])) - 1e-3


def test_deterministic_contexts_have_one_optimum():
    one_hot = [0.0, 1.0, 0.0]
    for name, optimum in OPTIMA.items():
        np.testing.assert_allclose(optimum(np.array(one_hot)), one_hot, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: optima.cdiv(p, alpha=-1.0), "alpha = -1.0"),
        (lambda p: optima.cdiv(p, alpha=1.0, cap=0.0), "cap = 0.0"),
        (lambda p: optima.tailr(p, gamma=1.5), "gamma = 1.5"),
        (lambda p: optima.lambda_pr(p, threshold=0.0, gamma=0.1), "threshold = 0.0"),
        (lambda p: optima.lambda_pr(p, threshold=0.4, gamma=2.0), "gamma = 2.0"),
        (lambda p: optima.trunc(p, drop=1.0), "drop = 1.0"),
        (lambda p: optima.truncr(p, drop=-0.1), "drop = -0.1"),
        (lambda p: optima.nll(p[:1]), "p sums to 0.5"),
        (lambda p: lambda_pr_threshold(0.0, 8, 0.1), "lam = 0.0"),
        (lambda p: lambda_pr_threshold(0.5, 0, 0.1), "length = 0"),
        (lambda p: lambda_pr_is_unique(0.5, 8, 0.1, support=0), "support = 0"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.array([0.5, 0.5]))
