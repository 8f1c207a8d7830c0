"""The artificial case against enumerated laws, golden vectors, and scans of the claims about temperature."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.theory import ArtificialCase, pr_curve
from widen.theory.artificial import positive_root

APP1 = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)
LAM = np.array([0.0, 0.05, 0.3, 0.5, 1.0, 1.5, 3.0, np.inf])
SOME = settings(max_examples=15, deadline=None, derandomize=True)


@st.composite
def cases(draw, edges=False):
    support = draw(st.integers(2, 12))
    over = draw(st.integers(1, support - 1))
    rho = over / support
    low, high = (0.0, 1.0) if edges else (0.02, 0.98)
    return ArtificialCase(
        vocab=support + draw(st.integers(1, 60)),
        support=support,
        rho=rho,
        a=min(1.0, rho + (1 - rho) * draw(st.floats(low, high))),
        epsilon=draw(st.floats(low, 0.98)),
    )


def printed(case):
    """eq:assumptionsPtheta, letter by letter: P and Q at l1 and l2, (V,) each."""
    x, scale = np.arange(case.vocab), case.rho * case.support
    p = np.where(x < case.support, 1 / case.support, 0.0)
    b = case.rho / (1 - case.rho) * (1 - case.a)
    q1 = np.where(x < round(scale), case.a / scale, np.where(x < case.support, b / scale, 0.0))
    q2 = np.where(x < case.support, (1 - case.epsilon) / case.support, case.epsilon / (case.vocab - case.support))
    return p, q1, q2


def twin(case, t):
    """The pair (x_l1, x_l2) enumerated: P and Q^t over V x V. At the two limits ties matter, and the case itself tells them."""
    p, q1, q2 = printed(case)
    if 0 < t < math.inf:
        q1, q2 = q1 ** (1 / t) / (q1 ** (1 / t)).sum(), q2 ** (1 / t) / (q2 ** (1 / t)).sum()
    else:
        q1, q2 = case.q(t)
    return np.outer(p, p).ravel(), np.outer(q1, q2).ravel()


@SOME
@given(cases(edges=True))
def test_explicit_conditionals_are_the_printed_ones(case):
    p, q1, q2 = printed(case)
    np.testing.assert_allclose(case.p(), [p, p], rtol=1e-15)
    np.testing.assert_allclose(case.q(), [q1, q2], rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(case.q(0.5), [q1**2 / (q1**2).sum(), q2**2 / (q2**2).sum()], rtol=1e-11, atol=1e-300)
    x = np.arange(case.vocab)
    ends1 = x < (case.support if case.a < 1 else round(case.rho * case.support))
    ends2 = x < (case.vocab if case.epsilon > 0 else case.support)
    np.testing.assert_allclose(case.q(math.inf), [ends1 / ends1.sum(), ends2 / ends2.sum()], rtol=1e-13)


def test_golden_cases(golden):
    assert len(golden["artificial"]) == 7
    for row in golden["artificial"]:
        case = ArtificialCase(vocab=row["V"], support=row["K"], rho=row["rho"], a=row["a"], epsilon=row["eps"])
        close = dict(rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose([case.b, case.mu, case.epsilon_0], [row["b"], row["mu"], row["eps0"]], **close)
        np.testing.assert_allclose(case.t_0, float(row["t0"]), **close)
        if "lambda_min_at_t0" in row:
            np.testing.assert_allclose(case.lambda_min(case.t_0), row["lambda_min_at_t0"], **close)
        assert case.loses_recall_at_every_high_temperature == row["sharp_condition_K/V<=lambda_min(t=1)"]
        assert case.satisfies_paper_condition == row["paper_condition_K/V<=(1-a)(1-eps)"]
        limits = row["limits"]
        np.testing.assert_allclose(case.lambda_max(0.0), limits["lambda_max_t->0"], **close)
        np.testing.assert_allclose(case.lambda_min(0.0), limits["lambda_min_t->0"], **close)
        np.testing.assert_allclose(case.lambda_min(math.inf), limits["lambda_t->inf"], **close)
        np.testing.assert_allclose(case.lambda_max(math.inf), limits["lambda_t->inf"], **close)
        for point in row["grid"]:
            np.testing.assert_allclose(case.lambda_min(point["t"]), point["lambda_min"], **close)
            np.testing.assert_allclose(case.lambda_max(point["t"]), point["lambda_max"], **close)
            np.testing.assert_allclose(case.precision(math.inf, point["t"]), point["alpha_inf"], **close)
            lam = [float(x) for x in point["alpha"]]
            np.testing.assert_allclose(case.precision(lam, point["t"]), list(point["alpha"].values()), **close)
            np.testing.assert_allclose(case.curve(point["t"]).precision(lam), list(point["alpha"].values()), **close)
        for lam, t in row.get("argmax_t_of_beta_lambda", {}).items():
            np.testing.assert_allclose(case.best_temperature(float(lam)), t, **close)


@SOME
@given(cases(edges=True), st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 10.0, math.inf]))
def test_closed_form_is_the_curve_of_the_enumerated_laws(case, t):
    p, q = twin(case, t)
    brute = pr_curve(p, q / max(1.0, q.sum()))
    np.testing.assert_allclose(case.precision(LAM, t), brute.precision(LAM), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(case.curve(t).precision(LAM), brute.precision(LAM), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(case.curve(t).auc, brute.auc, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(case.recall(LAM[1:], t), brute.recall(LAM[1:]), rtol=1e-9, atol=1e-12)
    if brute.recall(0.0) and q.min(where=q > 0, initial=1) > 1e-300:  # an underflow of the twin is no end of support
        np.testing.assert_allclose(case.recall(0.0, t), brute.recall(0.0), rtol=1e-9)


def test_the_other_positions_change_nothing():
    """Four positions, context-dependent supports, differing at the second and third only: the same curve over V^4."""
    case = ArtificialCase(vocab=4, support=2, rho=0.5, a=0.8, epsilon=0.2)
    rng = np.random.default_rng(0)
    for t in (0.5, 1.0, 3.0):
        q1, q2 = case.q(t)
        p_all, q_all = np.ones(1), np.ones(1)
        for position in range(4):
            p_rows, q_rows = [], []
            for _ in range(p_all.size):
                shuffle = rng.permutation(4)  # which two tokens are acceptable depends on the context
                p_row = case.p().l1[shuffle]
                q_rows.append({1: q1[shuffle], 2: q2[shuffle]}.get(position, p_row))
                p_rows.append(p_row)
            p_all, q_all = (p_all[:, None] * p_rows).ravel(), (q_all[:, None] * q_rows).ravel()
        np.testing.assert_allclose(
            pr_curve(p_all, q_all).precision(LAM), case.precision(LAM, t), rtol=1e-12, atol=1e-14
        )


def test_printed_levels_and_three_regimes():
    """Prop. thm:PRcurve as printed, where nothing underflows."""
    for case in (APP1, ArtificialCase(vocab=60, support=10, rho=0.8, a=0.95, epsilon=0.1)):
        for t in (0.5, 1.0, 2.0):
            tau, nu, mu = 1 / t, case.vocab / case.support - 1, case.mu
            kept = (1 - case.epsilon) ** tau / ((1 - case.epsilon) ** tau + nu ** (1 - tau) * case.epsilon**tau)
            lead = (1 - case.a) ** tau + mu ** (1 - tau) * case.a**tau
            low = (1 - case.a) ** tau / lead * kept / (1 - case.rho)
            high = mu**-tau / (1 - case.rho) * case.a**tau / lead * kept
            assert case.lambda_min(t) == pytest.approx(low, rel=1e-13)
            assert case.lambda_max(t) == pytest.approx(high, rel=1e-13)
            assert case.precision(high * 1.5, t) == pytest.approx(kept, rel=1e-13)
            middle = (low + high) / 2
            assert case.precision(middle, t) == pytest.approx(case.rho * middle + (1 - case.rho) * low, rel=1e-13)
            assert case.precision(low / 2, t) == pytest.approx(low / 2, rel=1e-13)
            assert case.recall(low / 2, t) == pytest.approx(1.0, rel=1e-13)
    assert APP1.lambda_min(1.0) == pytest.approx(APP1.b * 0.85 / 0.5)
    assert APP1.lambda_max(1.0) == pytest.approx(0.725 * 0.85 / 0.5)
    assert APP1.precision(math.inf, 1.0) == pytest.approx(0.85)


@SOME
@given(cases(edges=True), st.sampled_from([5e-324, 1e-300, 1e-10, 1e10, 1e300, 1.7e308]))
def test_extreme_temperatures_are_finite_and_near_the_limits(case, t):
    values = case.precision(LAM, t)
    assert np.isfinite(values).all()
    if case.gap == 0 or case.gap > 1e-6:
        noise = case.log_noise_odds
        if noise == 0 or abs(noise) > 1e-6:
            np.testing.assert_allclose(values, case.precision(LAM, 0.0 if t < 1 else math.inf), atol=1e-6)


@SOME
@given(cases())
def test_limits_of_precision_and_recall(case):
    """t -> 0: min(1, rho lam); t -> inf: min(lam, K/V)."""
    lam = LAM[1:-1]
    if case.epsilon < 1 - case.sparsity - 1e-9:
        np.testing.assert_allclose(case.precision(lam, 0.0), np.minimum(1, case.rho * lam), rtol=1e-12)
    np.testing.assert_allclose(case.precision(lam, math.inf), np.minimum(lam, case.sparsity), rtol=1e-12)
    np.testing.assert_allclose(case.recall(lam, math.inf), np.minimum(1, case.sparsity / lam), rtol=1e-12)


def test_support_precision_turns_at_the_noise_of_a_uniform_law():
    """V=100, K=80: at epsilon .1 it falls with t, at .2 it stays, at .3 it rises; 1, K/V, 0 as t -> 0."""
    t = np.array([0.0, 0.5, 1.0, 2.0, math.inf])
    rows = {
        e: ArtificialCase(vocab=100, support=80, rho=0.5, a=0.7, epsilon=e).precision(math.inf, t)
        for e in (0.1, 0.2, 0.3)
    }
    assert (np.diff(rows[0.1]) < 0).all()
    np.testing.assert_allclose(rows[0.2], 0.8, rtol=1e-12)
    assert (np.diff(rows[0.3]) > 0).all()
    assert (rows[0.1][0], rows[0.3][0]) == (1.0, 0.0)
    np.testing.assert_allclose(rows[0.1][[1, 3]], [0.953, 0.857], atol=5e-4)
    np.testing.assert_allclose(rows[0.3][[1, 3]], [0.576, 0.753], atol=5e-4)


def test_noise_of_a_uniform_law_is_recognised_up_to_rounding():
    """epsilon = 1 - K/V in floats: without care the limit t -> 0 would be 0 or 1 by the luck of a rounding."""
    for vocab in range(3, 40):
        for support in range(2, vocab):
            case = ArtificialCase(vocab=vocab, support=support, rho=1 / support, a=0.9, epsilon=1 - support / vocab)
            assert case.precision(math.inf, 0.0) == pytest.approx(support / vocab)


@SOME
@given(cases())
def test_epsilon_0_divides_rising_from_peaking(case):
    t = np.geomspace(0.05, 200.0, 400)
    rising = np.diff(case.lambda_min(t)) > -1e-16
    if case.epsilon >= case.epsilon_0:
        assert case.t_0 == math.inf
        assert rising.all()
    else:
        middle = (t[1:] + t[:-1]) / 2
        assert rising[middle < case.t_0 * 0.98].all()
        assert not rising[(middle > case.t_0 * 1.02) & (middle > 0.2)].any() or case.lambda_min(case.t_0) < 1e-12


def test_epsilon_0_just_under_and_just_over():
    """V/K = 2, epsilon_0 = .275: at .274 lambda_min turns at t = 188.12, at .276 it never does."""
    under = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.274)
    assert under.t_0 == pytest.approx(188.12, abs=0.01)
    assert ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.276).t_0 == math.inf
    printed = (100 / 50 - 1) / (100 / 50 - 1 + (0.725 / 0.275) ** (0.5 / (1 - 0.5)))
    assert APP1.epsilon_0 == pytest.approx(printed, rel=1e-14)
    assert ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=APP1.epsilon_0).t_0 == math.inf


def test_epsilon_0_falls_with_lower_b_and_higher_rho():
    """Contrary to the caption of fig:ineq. Values to three figures, V/K = 2 and 10."""

    def level(ratio, b, rho):
        return ArtificialCase(vocab=10 * ratio, support=10, rho=rho, a=1 - b * (1 - rho) / rho, epsilon=0.1).epsilon_0

    np.testing.assert_allclose([level(2, b, 0.9) for b in (0.05, 0.1, 0.3)], [0.0046, 0.016, 0.108], rtol=0.05)
    assert level(2, 0.05, 0.5) == pytest.approx(0.05, rel=0.05)
    np.testing.assert_allclose([level(10, b, 0.9) for b in (0.05, 0.1, 0.3)], [0.31, 0.48, 0.74], rtol=0.02)


@SOME
@given(cases(), st.floats(0.2, 5.0))
def test_g_and_its_derivative(case, tau):
    g, step = case.g(tau), 1e-6
    assert g == pytest.approx((1 - case.rho) * case.lambda_min(1 / tau), rel=1e-12)
    slope = (case.g(tau + step) - case.g(tau - step)) / (2 * step)
    assert case.g_prime(tau) == pytest.approx(slope, rel=1e-5, abs=1e-8)
    assert np.sign(case.g_prime(tau)) == np.sign(case.h(1 / tau)) or abs(case.g_prime(tau)) < 1e-12


def test_the_printed_derivative_has_the_wrong_sign():
    """a = .7, mu = 1.5, epsilon = .2, V/K = 5, tau = 1.3: exact -0.012097."""
    case = ArtificialCase(vocab=50, support=10, rho=0.6, a=0.7, epsilon=0.2)
    assert case.mu == pytest.approx(1.5)
    assert case.g_prime(1.3) == pytest.approx(-0.012097, abs=1e-6)


@SOME
@given(cases(), st.floats(0.2, 5.0))
def test_h_is_the_printed_one_and_increases_when_noise_is_low(case, t):
    nu, r = case.vocab / case.support - 1, (1 - case.epsilon) * (case.vocab / case.support - 1) / case.epsilon
    left = (1 + ((1 - case.a) * case.mu / case.a) ** (1 / t) / case.mu) * math.log(r)
    printed = left - (1 + r ** (1 / t) / nu) * math.log(case.a / case.b)
    assert case.h(t) == pytest.approx(printed, rel=1e-9, abs=1e-9)
    slope = (case.h(t * (1 + 1e-6)) - case.h(t * (1 - 1e-6))) / (2e-6 * t)
    assert case.h_prime(t) == pytest.approx(slope, rel=1e-4, abs=1e-5)
    if case.epsilon < 1 - case.sparsity - 1e-9:
        assert case.h_prime(t) > 0


@SOME
@given(cases(), st.floats(0.02, 4.0))
def test_no_temperature_beats_the_best_one(case, lam):
    best = case.best_temperature(lam)
    grid = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 800), [math.inf]])
    assert case.recall(lam, best) >= case.recall(lam, grid).max() - 1e-12


def test_best_temperature_is_not_t_0():
    case = ArtificialCase(vocab=100, support=20, rho=0.5, a=0.725, epsilon=0.15)
    np.testing.assert_allclose(case.best_temperature([1.2, 1.5, 1.9]), [1.0364, 0.7277, 0.3286], atol=5e-5)
    assert case.best_temperature(2.0) == 0.0
    assert case.best_temperature(0.1) == case.t_0
    assert ArtificialCase(vocab=100, support=10, rho=0.5, a=0.525, epsilon=0.05).t_0 == pytest.approx(0.76110946)
    assert case.best_temperature([[0.5, 1.0]]).shape == (1, 2)


@SOME
@given(cases())
def test_the_sharp_condition_is_exact(case):
    """For every lam > K/V recall at t = inf lies under recall at t = 1, iff K/V ≤ lambda_min(1)."""
    if abs(case.sparsity - case.lambda_min(1.0)) < 1e-6:
        return
    lam = case.sparsity * np.array([1 + 1e-7, 1.01, 1.5, 3.0, 100.0])
    loses = case.recall(lam, math.inf) < case.recall(lam, 1.0) - 1e-15
    if case.loses_recall_at_every_high_temperature:
        assert loses[1:].all()
    else:
        assert not loses[0]
    if case.satisfies_paper_condition:
        assert case.loses_recall_at_every_high_temperature
    for x, lost in zip(lam[1:], loses[1:], strict=True):
        if abs(case.sparsity - case.precision(float(x), 1.0)) > 1e-9:
            assert case.loses_recall(float(x)) == (case.sparsity < case.precision(float(x), 1.0)) == lost
    assert not case.loses_recall(case.sparsity / 2)


def test_edges_of_the_parameters():
    fair = ArtificialCase(vocab=100, support=10, rho=0.5, a=0.5, epsilon=0.1)
    assert (fair.t_0, fair.gap) == (0.0, 0.0)
    assert fair.lambda_min(2.0) == fair.lambda_max(2.0)
    noisy = ArtificialCase(vocab=20, support=10, rho=0.5, a=0.5, epsilon=0.7)
    assert (noisy.t_0, noisy.best_temperature(1.0)) == (math.inf, math.inf)
    one_sided = ArtificialCase(vocab=100, support=10, rho=0.5, a=1.0, epsilon=0.1)
    assert one_sided.lambda_min(math.inf) == 0.0
    assert one_sided.recall(0.0, 1.0) == 0.5
    assert one_sided.epsilon_0 == 0.0
    clean = ArtificialCase(vocab=100, support=10, rho=0.5, a=0.7, epsilon=0.0)
    assert clean.t_0 == math.inf
    np.testing.assert_allclose(clean.precision(math.inf, [0.0, 1.0, math.inf]), 1.0)
    np.testing.assert_allclose([clean.lambda_min(math.inf), clean.lambda_max(math.inf)], 1.0)
    assert not clean.loses_recall_at_every_high_temperature
    tiny = ArtificialCase(vocab=1000, support=10, rho=0.5, a=0.8, epsilon=1e-16)
    assert tiny.t_0 == pytest.approx(4.86, abs=0.01)
    even = ArtificialCase(vocab=100, support=10, rho=0.5, a=0.5, epsilon=0.1)  # h is constant: no inf - inf at small t
    assert even.h_prime([1e-5, 1.0]).tolist() == [0.0, 0.0]


def test_shapes_broadcast_and_scalars_are_floats():
    assert APP1.precision(LAM[:, None], [0.5, 1.0, 2.0]).shape == (8, 3)
    assert type(APP1.precision(1.0, 1.0)) is float
    assert type(APP1.recall(1, 1)) is float
    assert type(APP1.lambda_min(1)) is float
    assert APP1.h([1.0, 2.0]).shape == (2,)
    assert ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15) == APP1


def test_rates_need_an_interior_case_and_positive_t():
    with pytest.raises(ValueError, match=r"epsilon = 0\.0"):
        ArtificialCase(vocab=100, support=10, rho=0.5, a=0.7, epsilon=0.0).h(1.0)
    with pytest.raises(ValueError, match=r"a = 1\.0"):
        ArtificialCase(vocab=100, support=10, rho=0.5, a=1.0, epsilon=0.1).g_prime(1.0)
    with pytest.raises(ValueError, match=r"t = 0\.0"):
        APP1.h_prime(0.0)
    assert APP1.h(0.0) == -math.inf


def test_roots_at_the_ends_are_the_ends():
    assert positive_root(lambda x: 3.0 - x) == pytest.approx(3.0)
    assert positive_root(lambda x: 1e-12 - x) == pytest.approx(1e-12, rel=1e-14, abs=0)
    assert positive_root(lambda x: -1.0) == 0.0
    assert positive_root(lambda x: 1.0) == math.inf


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (dict(support=1), "support"),
        (dict(support=100), "support"),
        (dict(rho=0.0), "rho"),
        (dict(rho=1.0), "rho"),
        (dict(rho=0.333), "rho"),
        (dict(a=0.4), "a"),
        (dict(a=1.1), "a"),
        (dict(epsilon=1.0), "epsilon"),
        (dict(epsilon=-0.1), "epsilon"),
    ],
)
def test_bad_parameters_are_refused_by_name(change, name):
    with pytest.raises(ValueError, match=f"{name} = "):
        ArtificialCase(**{**dict(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15), **change})
    with pytest.raises(ValueError, match="t must lie in"):
        APP1.lambda_min(-1.0)
