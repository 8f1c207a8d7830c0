"""The bounds hold on random laws, are the ones stated, and the learning-rate limit is where descent breaks."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.theory import (
    cdiv_learning_rate_limit,
    cdiv_safe_learning_rate,
    cdiv_scale,
    gamma_proxy,
    optima,
    position_weights,
    pr_curve,
    sequence_divergence_bound,
    sequence_precision_bound,
    softmax_curvature,
    trunc_guarantee,
    trunc_guarantee_paper,
    truncr_guarantee,
)

SOME = settings(max_examples=15, deadline=None, derandomize=True)


def test_the_proxy_is_a_law_between_the_model_and_the_target():
    q = np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(gamma_proxy(q, 2, gamma=0.1), [0.45, 0.27, 0.28], rtol=1e-14)
    np.testing.assert_array_equal(gamma_proxy(q, 1, gamma=1.0), [0, 1, 0])
    np.testing.assert_array_equal(gamma_proxy(q, 1, gamma=0.0), q)


@SOME
@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=5), st.floats(0.2, 3.0))
def test_the_divergence_to_a_one_hot_target_is_a_power_and_its_gradient_a_weighted_nll(weights, alpha):
    """Theorem theorem:tsallis: D_alpha(one-hot || Q) = (q^(1-alpha) - 1)/(alpha - 1), gradient q^(1-alpha) times NLL's."""
    if abs(alpha - 1) < 1e-3:
        return
    logits = np.log(weights)
    target = gamma_proxy(np.exp(logits) / np.exp(logits).sum(), 0, gamma=1.0)

    def softmax(z):
        return np.exp(z) / np.exp(z).sum()

    def divergence(z):
        return pr_curve(target, softmax(z)).tsallis(alpha)

    q = softmax(logits)
    assert divergence(logits) == pytest.approx((q[0] ** (1 - alpha) - 1) / (alpha - 1), rel=1e-9)
    for i in range(q.size):
        step = np.eye(q.size)[i] * 1e-6
        slope = (divergence(logits + step) - divergence(logits - step)) / 2e-6
        assert slope == pytest.approx(q[0] ** (1 - alpha) * (q[i] - (i == 0)), rel=1e-4, abs=1e-7)


def test_trunc_guarantee_holds_for_every_model():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(2, 12))
        p, q = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n) * rng.uniform(0.3, 3))
        kept = q >= rng.choice(q)
        drop = max(0.0, 1 - float(p[kept].sum()))
        truncated = np.where(kept, p, 0) / (1 - drop)
        entropy = -float((truncated[kept] * np.log(truncated[kept])).sum())
        loss = -float((p[kept] * np.log(q[kept])).sum())
        excess = max(0.0, loss - (1 - drop) * entropy)
        assert excess == pytest.approx((1 - drop) * pr_curve(truncated / truncated.sum(), q).kl_pq, abs=1e-12)
        sharp, paper = trunc_guarantee(excess, drop=drop), trunc_guarantee_paper(excess, drop=drop)
        curve = pr_curve(p, q)
        assert curve.precision(sharp.lam) >= sharp.precision - 1e-12
        assert curve.recall(sharp.lam) >= sharp.recall - 1e-12
        assert sharp.recall >= paper.recall
        assert sharp.precision == paper.precision


def test_trunc_guarantee_is_the_printed_one():
    sharp, paper = trunc_guarantee(0.02, drop=0.2), trunc_guarantee_paper(0.02, drop=0.2)
    assert sharp.precision == pytest.approx(1 - math.sqrt(0.02 / 1.6))
    assert sharp.recall == pytest.approx(0.8 - math.sqrt(0.02 * 0.8 / 2))
    assert paper.recall == pytest.approx(0.8 - math.sqrt(0.02))
    assert trunc_guarantee(100.0, drop=0.2)[1:] == (0.0, 0.0)


@SOME
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any), st.floats(0.0, 0.9))
def test_truncr_optimum_has_what_is_guaranteed(weights, drop):
    p = np.array(weights, float) / sum(weights)
    curve, promise = pr_curve(p, optima.truncr(p, drop=drop)), truncr_guarantee(drop=drop)
    assert curve.precision(promise.lam) == pytest.approx(promise.precision, abs=1e-12)
    assert curve.recall(promise.lam) == pytest.approx(promise.recall, abs=1e-12)
    assert curve.recall(0.0) == pytest.approx(1.0, abs=1e-12)
    assert curve.precision(1.0) >= 1 - drop - 1e-12
    assert float(curve.at_precision(1 - drop).recall) >= 1 - drop - 1e-12


def test_nll_has_the_same_guarantee_and_dominates_every_other_optimum():
    """Why the population limit alone favours no loss but NLL: its curve is 1 everywhere."""
    p = np.random.default_rng(1).dirichlet(np.ones(30) * 0.5)
    lam = np.geomspace(0.01, 100, 41)
    best = pr_curve(p, optima.nll(p))
    assert best.auc == pytest.approx(1.0, abs=1e-14)
    others = (optima.truncr(p, drop=0.2), optima.cdiv(p, alpha=1.4), optima.gold(p), optima.trunc(p, drop=0.2))
    for q in others:
        curve = pr_curve(p, q / q.sum())
        assert (curve.precision(lam) <= best.precision(lam) + 1e-14).all()
        assert curve.auc < 0.99


def test_golden_position_weights(golden):
    for case in golden["seq_bound"]["cases"]:
        weights = position_weights(case["lambda"], case["L"])
        assert weights.sum() == pytest.approx(case["sum"], rel=1e-10)
        identity = abs(case["lambda"] ** (1 / case["L"]) - 1) * weights.sum()
        assert identity == pytest.approx(abs(case["lambda"] - 1), abs=1e-13)  # the paper's constant is 0
    assert position_weights(0.1, 4)[0] == 1.0


def random_pair(rng, vocab, length):
    """Conditionals of P and Q after every prefix; P may have zeros."""
    tables = []
    for zeros in (0.3, 0.0):
        table = {}
        for n in range(length):
            for prefix in itertools.product(range(vocab), repeat=n):
                row = rng.dirichlet(np.ones(vocab)) * (rng.random(vocab) >= zeros)
                table[prefix] = row / row.sum() if row.sum() > 0 else np.full(vocab, 1 / vocab)
        tables.append(table)
    return tables


def test_tokens_bound_sequences_additively_and_multiplicatively():
    rng = np.random.default_rng(2)
    for _ in range(30):
        vocab, length = int(rng.integers(2, 4)), int(rng.integers(1, 4))
        p_table, q_table = random_pair(rng, vocab, length)
        sequences = list(itertools.product(range(vocab), repeat=length))
        p, q = (
            np.array([math.prod(t[s[:i]][s[i]] for i in range(length)) for s in sequences]) for t in (p_table, q_table)
        )
        curve = pr_curve(p / p.sum(), q / q.sum())
        prefix_mass = {
            prefix: math.prod(p_table[prefix[:i]][prefix[i]] for i in range(len(prefix))) for prefix in p_table
        }
        for lam in (0.1, 0.5, 1.0, 2.0, 7.0):
            token_lam, mean, least = lam ** (1 / length), np.zeros(length), np.ones(length)
            for prefix, mass in prefix_mass.items():
                token = pr_curve(p_table[prefix], q_table[prefix])
                mean[len(prefix)] += mass * token.pr_divergence(token_lam)
                if mass > 0:
                    least[len(prefix)] = min(least[len(prefix)], token.precision(token_lam))
            assert curve.pr_divergence(lam) <= sequence_divergence_bound(mean, lam=lam) + 1e-12
            assert curve.precision(lam) >= sequence_precision_bound(least) - 1e-12
            if length == 1:
                assert sequence_divergence_bound(mean, lam=lam) == pytest.approx(curve.pr_divergence(lam), abs=1e-12)


def test_the_additive_bound_is_empty_for_long_sequences_and_the_multiplicative_is_not():
    """1 % off the support at each of 1000 tokens, lam = .5: the additive bound on precision is -6.2, the truth 4e-5."""
    lam, length = 0.5, 1000
    token = pr_curve([1.0], [0.99])
    divergence = np.full(length, token.pr_divergence(lam ** (1 / length)))
    assert min(lam, 1) - sequence_divergence_bound(divergence, lam=lam) == pytest.approx(-6.2, abs=0.1)
    product = sequence_precision_bound(np.full(length, token.precision(math.inf)))
    assert product == pytest.approx(0.99**1000, rel=1e-10)


@SOME
@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 2.0)), min_size=1, max_size=6))
def test_a_difference_of_products_is_bounded_term_by_term(pairs):
    """The step behind the additive bound, for non-negative factors."""
    a, b = np.array(pairs).T
    terms = [abs(a[i] - b[i]) * a[:i].prod() * b[i + 1 :].prod() for i in range(a.size)]
    assert abs(a.prod() - b.prod()) <= sum(terms) + 1e-9


def test_the_difference_of_products_needs_non_negative_factors():
    a, b = np.array([-1.0, 1.0]), np.array([1.0, -1.0])
    signed = abs(a[0] - b[0]) * b[1] + a[0] * abs(a[1] - b[1])
    assert signed < abs(a.prod() - b.prod())


def test_scale_of_cdiv_matches_golden_and_its_range(golden):
    for case in golden["stationary_optima"]["cases"]:
        support = np.count_nonzero(case["P"])
        for alpha, row in case["cdiv"].items():
            scale = cdiv_scale(case["P"], alpha=float(alpha))
            assert scale == pytest.approx(row["C"], rel=1e-10)
            if float(alpha) > 1:
                assert 1 <= scale <= support ** (float(alpha) - 1)


@SOME
@given(st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any))
def test_softmax_curvature_is_the_largest_eigenvalue(weights):
    q = np.array(weights, float) / sum(weights)
    assert softmax_curvature(q) == pytest.approx(np.linalg.eigvalsh(np.diag(q) - np.outer(q, q))[-1], abs=1e-14)


def descend(p, alpha, rate, steps=3000):
    """Gradient descent on the logits with detached weights, from near the optimum; the distance to it at the end."""
    optimum = optima.cdiv(p, alpha=alpha)
    z = np.log(optimum) + 1e-4 * np.array([1.0, -1.0, 0.5, -0.5, 0.0])
    for _ in range(steps):
        q = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        if not (q > 1e-200).all():
            return math.inf
        weighted = p * q ** (1 - alpha)
        z = z - rate * (q * weighted.sum() - weighted)
    return float(np.abs(q - optimum).max())


@pytest.mark.parametrize("alpha", [1.0, 1.4, 2.0])
def test_descent_is_stable_just_below_the_learning_rate_limit_and_not_above(alpha):
    p = np.array([0.5, 0.25, 0.12, 0.08, 0.05])
    limit = cdiv_learning_rate_limit(p, alpha=alpha)
    assert descend(p, alpha, 0.95 * limit) < 1e-9
    assert descend(p, alpha, 1.05 * limit) > 1e-3
    assert cdiv_safe_learning_rate(p, alpha=alpha) <= limit
    assert cdiv_safe_learning_rate(p, alpha=alpha) == pytest.approx(4 / (alpha * cdiv_scale(p, alpha=alpha)))
    assert cdiv_learning_rate_limit([1.0, 0.0], alpha=alpha) == math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gamma_proxy([0.5, 0.5], 2, gamma=0.1), "token = 2"),
        (lambda: gamma_proxy([0.5, 0.5], 0, gamma=1.1), "gamma = 1.1"),
        (lambda: gamma_proxy([0.5, 0.4], 0, gamma=0.1), "q sums to 0.9"),
        (lambda: trunc_guarantee(-1.0, drop=0.1), "excess = -1.0"),
        (lambda: trunc_guarantee(0.1, drop=1.0), "drop = 1.0"),
        (lambda: truncr_guarantee(drop=1.0), "drop = 1.0"),
        (lambda: position_weights(0.0, 3), "lam = 0.0"),
        (lambda: position_weights(0.5, 0), "length = 0"),
        (lambda: sequence_divergence_bound([[0.1]], lam=0.5), "divergences"),
        (lambda: sequence_divergence_bound([-0.1], lam=0.5), "divergences"),
        (lambda: sequence_precision_bound([1.5]), "precisions"),
        (lambda: cdiv_scale([1.0], alpha=0.0), "alpha = 0.0"),
        (lambda: cdiv_learning_rate_limit([1.0], alpha=math.inf), "alpha = inf"),
        (lambda: cdiv_safe_learning_rate([1.0], alpha=-1.0), "alpha = -1.0"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
