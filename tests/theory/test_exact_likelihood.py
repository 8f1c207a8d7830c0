"""Likelihoods, curves and sampled recall of enumerable autoregressive models: golden vectors and full enumeration."""

import itertools
import math

import numpy as np
import pytest

from widen.theory import (
    exact_curves,
    exact_log_likelihood,
    expected_unique_recall,
    monte_carlo_precision,
    monte_carlo_precision_from_model,
    pr_curve,
    pr_curve_from_logs,
    tempered,
    tempered_log,
    token_log_likelihood,
    unique_recall_bounds,
)

TEMPERATURES = [0.0, 0.25, 1.0, 2.0, 10.0, math.inf]


@pytest.fixture(scope="module")
def ar(golden):
    """The golden model as arrays: logits (S, L, V), targets (S, L)."""
    model = golden["ar_exact"]
    targets = np.array([[int(c) for c in s] for s in model["support"]])
    logits = np.array([[model["logits_by_prefix"][s[:i]] for i in range(model["L"])] for s in model["support"]])
    return model, logits, targets


def test_golden_model(ar):
    model, logits, targets = ar
    temperatures = [row["t"] for row in model["by_temperature"]]
    log_q = exact_log_likelihood(logits, targets, temperatures)
    curves = exact_curves(model["P"], logits, targets, temperatures)
    for row, likelihood, curve in zip(model["by_temperature"], log_q, curves, strict=True):
        np.testing.assert_allclose(likelihood, row["logQ_support"], rtol=1e-10)
        lam = [float(x) for x in row["alpha"]]
        np.testing.assert_allclose(curve.precision(lam), list(row["alpha"].values()), rtol=1e-10)
        np.testing.assert_allclose(curve.precision(math.inf), row["alpha_inf"], rtol=1e-10)
        np.testing.assert_allclose(curve.auc, row["AUC"], rtol=1e-10)
        counts = [int(n) for n in row["expected_unique_recall"]]
        expected = list(row["expected_unique_recall"].values())
        np.testing.assert_allclose(expected_unique_recall(likelihood, counts), expected, rtol=1e-10)


def test_golden_unique_recall_of_the_perfect_model(golden):
    for row in golden["unique_recall_uniform"]:
        uniform = np.full(row["S"], -math.log(row["S"]))
        assert expected_unique_recall(uniform, row["N"]) == pytest.approx(row["expected"], rel=1e-10)


def enumerated(rng, vocab=3, length=3):
    """Every sequence of V^L with its row of logits at each position, some tokens impossible."""
    table = {
        prefix: rng.normal(size=vocab) * 2
        for n in range(length)
        for prefix in itertools.product(range(vocab), repeat=n)
    }
    table[(0,)][1] = -np.inf
    targets = np.array(list(itertools.product(range(vocab), repeat=length)))
    logits = np.array([[table[tuple(x[:i])] for i in range(length)] for x in targets.tolist()])
    return logits, targets


def test_likelihoods_of_all_sequences_sum_to_one_at_every_temperature():
    logits, targets = enumerated(np.random.default_rng(0))
    log_q = exact_log_likelihood(logits, targets, TEMPERATURES)
    np.testing.assert_allclose(np.exp(log_q).sum(axis=1), 1.0, rtol=1e-13)
    by_hand = [
        sum(tempered_log(logits[s, i], 2.0)[targets[s, i]] for i in range(targets.shape[1]))
        for s in range(len(targets))
    ]
    np.testing.assert_allclose(log_q[3], by_hand, rtol=1e-13)


def test_greedy_ties_share_and_impossible_tokens_stay_impossible():
    logits = np.array([[[1.0, 1.0, 0.0], [-np.inf, 5.0, 3.0]]] * 2)
    zero, infinite = exact_log_likelihood(logits, [[0, 1], [1, 0]], [0.0, math.inf])
    np.testing.assert_allclose(np.exp(zero), [0.5, 0.0])
    np.testing.assert_allclose(np.exp(infinite), [1 / 6, 0.0])
    tiny = exact_log_likelihood(logits[:1], [[0, 1]], [1e-300, 5e-324])
    np.testing.assert_allclose(np.exp(tiny), 0.5)


def test_a_large_logit_range_loses_nothing():
    logits = np.array([[[0.0, 800.0, -800.0]]])
    assert exact_log_likelihood(logits, [[0]], 1.0)[0] == pytest.approx(-800.0)
    assert exact_log_likelihood(logits, [[2]], [1.0, 100.0])[0, 0] == pytest.approx(-1600.0)


def test_what_lies_under_the_mask_is_inert():
    rng = np.random.default_rng(1)
    logits, targets = rng.normal(size=(4, 5, 7)), rng.integers(0, 7, size=(4, 5))
    mask = rng.random((4, 5)) < 0.6
    spoiled, wild = logits.copy(), targets.copy()
    spoiled[~mask], wild[~mask] = np.nan, -100
    np.testing.assert_array_equal(
        exact_log_likelihood(spoiled, wild, TEMPERATURES, mask=mask),
        exact_log_likelihood(logits, targets, TEMPERATURES, mask=mask),
    )
    by_hand = [sum(tempered_log(logits[s, i], 1.0)[targets[s, i]] for i in range(5) if mask[s, i]) for s in range(4)]
    np.testing.assert_allclose(exact_log_likelihood(logits, targets, 1.0, mask=mask), by_hand, rtol=1e-13)


def test_slices_change_nothing_and_float32_logits_are_summed_in_float64(monkeypatch):
    rng = np.random.default_rng(2)
    logits, targets = rng.normal(size=(9, 6, 11)).astype(np.float32), rng.integers(0, 11, size=(9, 6))
    whole = exact_log_likelihood(logits, targets, TEMPERATURES)
    np.testing.assert_allclose(whole, exact_log_likelihood(logits.astype(np.float64), targets, TEMPERATURES), rtol=0)
    monkeypatch.setattr("widen.theory.exact.SLICE", 23)
    np.testing.assert_array_equal(exact_log_likelihood(logits, targets, TEMPERATURES), whole)
    rows = token_log_likelihood(logits.reshape(-1, 11), targets.ravel(), TEMPERATURES).reshape(6, 9, 6).sum(axis=2)
    np.testing.assert_allclose(rows, whole, rtol=1e-13)


def test_shapes_follow_the_temperatures():
    logits, targets = enumerated(np.random.default_rng(3))
    assert exact_log_likelihood(logits, targets, 1.0).shape == (27,)
    assert exact_log_likelihood(logits, targets, [[1.0, 2.0]]).shape == (1, 2, 27)
    assert len(exact_curves(np.full(27, 1 / 27), logits, targets, 1.0)) == 1


def test_a_full_support_has_precision_one_and_the_curve_of_the_joint_law():
    logits, targets = enumerated(np.random.default_rng(4))
    p = np.random.default_rng(5).dirichlet(np.ones(27))
    for t, curve in zip((0.5, 3.0), exact_curves(p, logits, targets, [0.5, 3.0]), strict=True):
        assert curve.precision(math.inf) == pytest.approx(1.0, abs=1e-13)
        q = np.exp(exact_log_likelihood(logits, targets, t))
        assert curve.auc == pytest.approx(pr_curve(p, q / q.sum()).auc, rel=1e-12)


def test_prefixes_bound_sequences_from_above():
    """Data processing along the sequence: precision of length-l prefixes never rises with l."""
    rng = np.random.default_rng(6)
    p, q = rng.dirichlet(np.ones(27)).reshape(3, 3, 3), rng.dirichlet(np.ones(27)).reshape(3, 3, 3)
    lam = np.geomspace(0.1, 10, 21)
    curves = [pr_curve(p.sum(axis=(1, 2)), q.sum(axis=(1, 2))), pr_curve(p.sum(axis=2).ravel(), q.sum(axis=2).ravel())]
    curves.append(pr_curve(p.ravel(), q.ravel()))
    for short, long in itertools.pairwise(curves):
        assert (short.precision(lam) >= long.precision(lam) - 1e-14).all()


def test_unique_recall_is_what_sampling_gives():
    rng = np.random.default_rng(7)
    q = np.array([0.4, 0.2, 0.1, 0.05])  # a quarter of Q is off the support
    draws = rng.choice(5, size=(20_000, 6), p=[*q, 0.25])
    seen = np.mean([[(row == x).any() for x in range(4)] for row in draws])
    assert expected_unique_recall(np.log(q), 6) == pytest.approx(seen, abs=0.004)


def test_unique_recall_edges_and_shapes():
    assert expected_unique_recall([0.0], 1) == 1.0
    assert expected_unique_recall([0.0, -np.inf], 10) == 0.5
    assert expected_unique_recall([0.0, -1.0], 0) == 0.0
    assert expected_unique_recall([-800.0], 10**6) == pytest.approx(1e6 * math.exp(-800), rel=1e-6, abs=0)
    assert expected_unique_recall([-40.0], 10) == pytest.approx(10 * math.exp(-40), rel=1e-13, abs=0)
    log_q = np.log(np.random.default_rng(8).dirichlet(np.ones(5), size=3))
    assert expected_unique_recall(log_q, [1, 10]).shape == (3, 2)
    assert expected_unique_recall(log_q, 3).shape == (3,)
    assert type(expected_unique_recall(log_q[0], 3)) is float


def test_unique_recall_lies_between_its_bounds_and_they_are_points_of_the_curve():
    rng = np.random.default_rng(9)
    for _ in range(30):
        size = int(rng.integers(1, 30))
        q = rng.dirichlet(np.ones(size) * rng.uniform(0.05, 2)) * rng.uniform(0.1, 1)
        with np.errstate(divide="ignore"):
            log_q = np.log(q)
        curve = pr_curve_from_logs(np.full(size, -math.log(size)), log_q)
        for n in (1, 2, 7, 50, 1000):
            low, high = unique_recall_bounds(log_q, n)
            assert low <= expected_unique_recall(log_q, n) * (1 + 1e-12)
            assert expected_unique_recall(log_q, n) <= high * (1 + 1e-12)
            assert high == pytest.approx(curve.recall(size / n), rel=1e-12)
            assert low == pytest.approx((1 - 1 / math.e) * high)


def test_monte_carlo_precision_is_unbiased():
    """Each atom drawn exactly as often as it is probable: then the mean is the precision itself."""
    p, q = np.array([8, 6, 4, 2, 0, 0]) / 20, np.array([2, 4, 0, 6, 4, 4]) / 20
    with np.errstate(divide="ignore"):
        logp, logq = np.log(p), np.log(q)
    curve = pr_curve(p, q)
    x, y = np.repeat(np.arange(6), (20 * p).astype(int)), np.repeat(np.arange(6), (20 * q).astype(int))
    lam = np.array([0.0, 0.1, 0.6, 1.0, 2.5, 50.0])
    np.testing.assert_allclose(monte_carlo_precision(logp[x], logq[x], lam).value, curve.precision(lam), rtol=1e-13)
    lam = np.append(lam, np.inf)
    from_model = monte_carlo_precision_from_model(logp[y], logq[y], lam)
    np.testing.assert_allclose(from_model.value, curve.precision(lam), rtol=1e-13)
    assert from_model.value.shape == from_model.standard_error.shape == (7,)


def test_monte_carlo_error_is_the_spread_of_the_estimate():
    rng = np.random.default_rng(10)
    p, q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    estimates = [monte_carlo_precision(np.log(p)[x], np.log(q)[x], 2.0) for x in rng.choice(4, size=(400, 200), p=p)]
    value, error = np.array(estimates).T
    assert value.mean() == pytest.approx(pr_curve(p, q).precision(2.0), abs=4 * value.std() / 20)
    assert value.std() == pytest.approx(error.mean(), rel=0.12)  # 400 draws fix a spread to about 4 %


def test_monte_carlo_of_one_lam_is_two_floats():
    estimate = monte_carlo_precision(np.log([0.5, 0.5]), np.log([0.25, 0.75]), 1.0)
    assert estimate.value == pytest.approx(0.75)
    assert estimate.standard_error == pytest.approx(0.25)
    assert type(estimate.value) is float


def test_bad_input_is_refused_by_name():
    logits = np.zeros((2, 3, 4))
    good = np.zeros((2, 3), int)
    for bad, message in (
        (lambda: exact_log_likelihood(logits, good[:, :2], 1.0), r"\(2, 3, 4\) and \(2, 2\)"),
        (lambda: exact_log_likelihood(logits, good + 4, 1.0), r"token ids in 0\.\.3"),
        (lambda: exact_log_likelihood(logits, good * 1.0, 1.0), "token ids"),
        (lambda: exact_log_likelihood(logits * np.nan, good, 1.0), "logits"),
        (lambda: exact_log_likelihood(logits - np.inf, good, 1.0), "logits"),
        (lambda: exact_log_likelihood(logits, good, -1.0), "decodings"),
        (lambda: exact_log_likelihood(logits, good, 1.0, mask=np.ones((2, 2))), "mask"),
        (lambda: exact_curves([0.5, 0.5], logits, good, 1.0), "twice"),
        (lambda: exact_curves([1.0], logits, np.array([[0, 0, 0], [0, 0, 1]]), 1.0), "p = "),
        (lambda: token_log_likelihood(logits, good, 1.0), r"\(N, V\)"),
        (lambda: expected_unique_recall([0.1], 1), "log_q"),
        (lambda: expected_unique_recall([-1.0], 1.5), "n = 1.5"),
        (lambda: unique_recall_bounds([], 1), "log_q"),
        (lambda: monte_carlo_precision([-1.0, -np.inf], [-1.0, -1.0], 1.0), "log_p"),
        (lambda: monte_carlo_precision([-1.0, -1.0], [-1.0, -1.0], math.inf), "lam"),
        (lambda: monte_carlo_precision([-1.0], [-1.0], 1.0), "at least 2"),
        (lambda: monte_carlo_precision_from_model([-1.0, -1.0], [-np.inf, -1.0], 1.0), "log_q"),
        (lambda: monte_carlo_precision([-1.0, -1.0], [-1.0], 1.0), "same atoms"),
    ):
        with pytest.raises(ValueError, match=message):
            bad()


def test_tempered_and_exact_agree():
    q = np.array([0.4, 0.3, 0.2, 0.1])
    for t in TEMPERATURES:
        likelihood = exact_log_likelihood(np.log(q)[None, None].repeat(4, axis=0), np.arange(4)[:, None], t)
        np.testing.assert_allclose(np.exp(likelihood), tempered(q, t), rtol=1e-13)
