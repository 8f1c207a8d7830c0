"""Truncation in the artificial case: explicit vectors over V as the twin, the thresholds that give P, the limits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.theory import ArtificialCase, TruncatedCase, decoded_log, exact_thresholds, pr_curve

SOME = settings(max_examples=12, deadline=None, derandomize=True)
APP1 = ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)
LAM = np.array([0.1, 0.4, 0.7, 1.0, 1.3, 2.0, math.inf])


@st.composite
def cases(draw):
    support = draw(st.integers(2, 8))
    over = draw(st.integers(1, support - 1))
    rho = over / support
    a = rho + (1 - rho) * draw(st.floats(0.01, 0.99))
    vocab = support + draw(st.integers(1, 12))
    return ArtificialCase(vocab=vocab, support=support, rho=rho, a=a, epsilon=draw(st.floats(0.01, 0.95)))


filters = st.one_of(
    st.tuples(st.just("min_p"), st.floats(0.01, 1.0)),
    st.tuples(st.just("epsilon"), st.floats(0.001, 0.6)),
    st.tuples(st.just("top_p"), st.floats(0.05, 1.0)),
)
temperatures = st.tuples(st.just("temperature"), st.sampled_from([0.0, 0.3, 1.0, 2.0, 20.0, math.inf]))


def twin(case, steps, length=2):
    """P and the decoded Q over all sequences, from explicit vectors over V."""
    p = case.p().l1
    laws = [case.q().l1, case.q().l2, *[p] * (length - 2)]
    p_all, q_all = np.ones(1), np.ones(1)
    for law in laws:
        with np.errstate(divide="ignore"):
            q = np.exp(decoded_log(np.log(law), steps))
        p_all, q_all = np.outer(p_all, p).ravel(), np.outer(q_all, q).ravel()
    return pr_curve(p_all, q_all / q_all.sum())


@SOME
@given(cases(), filters, temperatures, st.booleans(), st.integers(2, 3))
def test_the_closed_form_is_the_curve_of_explicit_vectors(case, rule, heat, heat_first, length):
    steps = (heat, rule) if heat_first else (rule, heat)
    brute, exact = twin(case, steps, length), TruncatedCase(case=case, steps=steps, length=length)
    np.testing.assert_allclose(exact.precision(LAM), brute.precision(LAM), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(exact.recall(LAM), brute.recall(LAM), rtol=1e-9, atol=1e-12)
    assert exact.curve.auc == pytest.approx(brute.auc, rel=1e-8, abs=1e-10)
    assert exact.recall(0.0) == pytest.approx(brute.recall(0.0), rel=1e-9)


@SOME
@given(cases(), st.sampled_from([0.0, 0.4, 1.0, 3.0, math.inf]))
def test_without_a_filter_it_is_the_tempered_case(case, t):
    np.testing.assert_allclose(
        TruncatedCase(case=case, steps=(("temperature", t),)).precision(LAM),
        case.precision(LAM, t),
        rtol=1e-10,
        atol=1e-13,
    )


def test_the_first_appendix_figure_is_separable_and_truncation_before_heat_gives_p():
    assert (round(APP1.noise_ratio, 3), round(APP1.rare_ratio, 3)) == (0.176, 0.379)
    assert APP1.separable
    q1, q2 = APP1.q()
    assert APP1.noise_ratio == pytest.approx(q2[-1] / q2.max())
    assert APP1.rare_ratio == pytest.approx(q1[APP1.support - 1] / q1.max())
    for m in (0.177, 0.379):
        perfect = TruncatedCase(case=APP1, steps=(("min_p", m), ("temperature", math.inf)))
        np.testing.assert_allclose(perfect.precision(LAM), np.minimum(1.0, LAM), rtol=1e-12)
        assert perfect.curve.auc == pytest.approx(1.0)
        brute = twin(APP1, (("min_p", m), ("temperature", math.inf)))
        assert brute.auc == pytest.approx(1.0)
    best_by_heat = max(APP1.recall(1.0, t) for t in np.geomspace(0.05, 100, 60))
    assert best_by_heat < 0.77
    for t in (2.0, 5.0):
        truncated = TruncatedCase(case=APP1, steps=(("min_p", 0.3), ("temperature", t)))
        assert truncated.recall(1.0) > APP1.recall(1.0, t)
        assert truncated.precision(math.inf) == pytest.approx(1.0)


@SOME
@given(cases(), st.sampled_from(["min_p", "epsilon", "top_p"]), st.floats(0.001, 1.0))
def test_the_interval_holds_exactly_the_thresholds_that_give_p(case, rule, value):
    thresholds = exact_thresholds(case, rule)
    inside = (
        []
        if thresholds.empty
        else [thresholds.above + share * (thresholds.up_to - thresholds.above) for share in (0.01, 0.99)]
    )
    for m in [*inside, value]:
        if not 0 < m < 1 or min(abs(m - thresholds.above), abs(m - thresholds.up_to)) < 1e-9:
            continue
        brute = twin(case, ((rule, m), ("temperature", math.inf)), length=3)
        gives_p = brute.auc > 1 - 1e-9
        assert gives_p == (thresholds.above < m <= thresholds.up_to)
    assert case.separable == (not exact_thresholds(case, "min_p").empty)
    if case.separable:
        assert not exact_thresholds(case, "epsilon").empty


def test_the_edges_of_the_interval_are_half_open():
    case = ArtificialCase(vocab=8, support=4, rho=0.5, a=0.8, epsilon=0.1)  # rare .25, noise 1/9
    low, high = exact_thresholds(case, "min_p")
    assert (low, high) == (pytest.approx(1 / 9), pytest.approx(0.25))
    at = {m: TruncatedCase(case=case, steps=(("min_p", m), ("temperature", math.inf))) for m in (low, high)}
    assert at[low].precision(math.inf) == pytest.approx(0.5)  # noise is kept
    assert at[high].curve.auc == pytest.approx(1.0)
    above = TruncatedCase(case=case, steps=(("min_p", high * 1.001), ("temperature", math.inf)))
    assert (above.precision(math.inf), above.recall(0.0)) == (pytest.approx(1.0), pytest.approx(0.5))


@SOME
@given(cases(), st.floats(0.01, 0.99))
def test_min_p_after_the_heat_keeps_everything_once_t_is_large(case, m):
    hot = TruncatedCase(case=case, steps=(("temperature", 1e6), ("min_p", m)))
    np.testing.assert_allclose(hot.precision(LAM), case.precision(LAM, 1e6), rtol=1e-9)
    np.testing.assert_allclose(hot.precision(LAM), np.minimum(LAM, case.sparsity), rtol=1e-3)


@SOME
@given(cases(), filters)
def test_cold_limits_do_not_see_the_filter(case, rule):
    """At t -> 0 only the most probable tokens are left, whatever a filter that treats equals alike did before."""
    if rule[0] == "top_p":
        return
    cold = TruncatedCase(case=case, steps=(rule, ("temperature", 0.0)))
    np.testing.assert_allclose(cold.precision(LAM), case.precision(LAM, 0.0), rtol=1e-12, atol=1e-15)
    near = TruncatedCase(case=case, steps=(rule, ("temperature", 1e-4)))
    if min(case.gap, abs(case.log_noise_odds)) > 0.01:
        np.testing.assert_allclose(near.precision(LAM), cold.precision(LAM), atol=1e-6)


def test_the_main_figure_is_separable_too():
    case = ArtificialCase(vocab=100, support=20, rho=0.5, a=0.725, epsilon=0.15)
    assert (round(case.noise_ratio, 3), round(case.rare_ratio, 3), case.separable) == (0.044, 0.379, True)


def test_not_separable_means_noise_comes_with_the_rare_tokens():
    case = ArtificialCase(vocab=60, support=50, rho=0.5, a=0.9, epsilon=0.15)
    assert case.noise_ratio > case.rare_ratio
    assert exact_thresholds(case, "min_p").empty
    for m in np.linspace(0.01, 1.0, 100):
        heated = TruncatedCase(case=case, steps=(("min_p", m), ("temperature", math.inf)))
        assert heated.precision(math.inf) < 0.999 or heated.recall(0.0) < 0.999


def test_top_p_also_cuts_where_the_model_is_right():
    """One token in four is dropped at every position where the model is uniform."""
    case = ArtificialCase(vocab=16, support=8, rho=0.5, a=0.6, epsilon=0.01)
    steps = (("top_p", 0.75), ("temperature", 1.0))
    short, long = (TruncatedCase(case=case, steps=steps, length=n) for n in (2, 5))
    assert long.recall(0.0) == pytest.approx(short.recall(0.0) * 0.75**3)
    assert long.precision(math.inf) == pytest.approx(short.precision(math.inf))


def test_bad_input_is_refused_by_name():
    with pytest.raises(ValueError, match="steps = 'top_k'"):
        TruncatedCase(case=APP1, steps=(("top_k", 3),))
    with pytest.raises(ValueError, match="length = 1"):
        TruncatedCase(case=APP1, steps=(), length=1)
    with pytest.raises(ValueError, match="rule = 'top_k'"):
        exact_thresholds(APP1, "top_k")
