"""The curve against the golden vectors, against the definition term by term, and against the laws that every PR-curve obeys."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.theory import pr_curve, pr_curve_from_logs, support_precision_recall

LAM = np.array([0.0, 1e-300, 1e-9, 0.01, 0.3, 0.5, 0.75, 1.0, 1.25, 2.0, 7.0, 1e9, 1e300, np.inf])
SOME = settings(max_examples=15, deadline=None, derandomize=True)


@st.composite
def two_laws(draw, max_size=8):
    """Small integer weights, so that zeros, ties and equal laws are common; Q may keep mass off the listed atoms."""
    n = draw(st.integers(1, max_size))
    weights = st.lists(st.integers(0, 6), min_size=n, max_size=n).filter(any)
    p, q = (np.array(draw(weights), float) for _ in range(2))
    return p / p.sum(), q / (q.sum() + draw(st.integers(0, 2)))


def by_definition(p, q, lam):
    """sum min(lam P, Q), with 0 * inf = 0."""
    terms = [min(lam * pi if pi else 0.0, qi) for pi, qi in zip(p, q, strict=True)]
    return math.fsum(terms)


def recall_by_definition(p, q, lam):
    if lam == 0:
        return math.fsum(pi for pi, qi in zip(p, q, strict=True) if qi)
    return math.fsum(min(pi, qi / lam) for pi, qi in zip(p, q, strict=True))


def test_golden_curves(golden):
    assert len(golden["pr_curves"]) == 5
    for case in golden["pr_curves"]:
        curve = pr_curve(case["P"], case["Q"])
        close = dict(rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(curve.precision(case["lambda"]), case["alpha"], **close)
        np.testing.assert_allclose(curve.recall(case["lambda"]), case["beta"], **close)
        np.testing.assert_allclose(curve.pr_divergence(case["lambda"]), case["D_lambda"], **close)
        np.testing.assert_allclose(curve.precision(np.inf), case["alpha_inf"], **close)
        np.testing.assert_allclose(curve.recall(0.0), case["beta_0"], **close)
        np.testing.assert_allclose(curve.auc, case["AUC"], **close)
        np.testing.assert_allclose(curve.total_variation, case["TV"], **close)
        np.testing.assert_allclose(curve.kl_pq, float(case["KL_PQ"]), **close)
        np.testing.assert_allclose(curve.kl_qp, float(case["KL_QP"]), **close)
        for order, value in case.get("tsallis", {}).items():
            np.testing.assert_allclose(curve.tsallis(float(order)), float(value), **close)


@SOME
@given(two_laws())
def test_matches_brute_force(laws):
    p, q = laws
    with np.errstate(divide="ignore"):
        curves = pr_curve(p, q), pr_curve_from_logs(np.log(p), np.log(q))
    for curve in curves:
        np.testing.assert_allclose(curve.precision(LAM), [by_definition(p, q, x) for x in LAM], rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(
            curve.recall(LAM), [recall_by_definition(p, q, x) for x in LAM], rtol=1e-13, atol=1e-15
        )


@SOME
@given(two_laws())
def test_the_ends_are_the_support_precision_and_recall(laws):
    p, q = laws
    curve, ends = pr_curve(p, q), support_precision_recall(p, q)
    assert curve.precision(math.inf) == pytest.approx(ends.precision, abs=1e-15)
    assert curve.recall(0.0) == pytest.approx(ends.recall, abs=1e-15)
    assert curve.precision(0.0) == 0.0
    assert curve.recall(math.inf) == 0.0


@SOME
@given(two_laws())
def test_precision_rises_and_is_concave_and_recall_falls_as_lam_grows(laws):
    curve = pr_curve(*laws)
    lam = np.linspace(0.0, 4.0, 401)
    precision, recall = curve.precision(lam), curve.recall(lam)
    assert (np.diff(precision) >= -1e-15).all()
    assert (np.diff(precision, 2) <= 1e-15).all()
    assert (np.diff(recall) <= 1e-15).all()
    assert (precision <= 1 + 1e-15).all()
    assert (precision >= 0).all()


@SOME
@given(two_laws())
def test_precision_is_linear_between_breakpoints_and_bends_at_each(laws):
    curve = pr_curve(*laws)
    knots = np.concatenate([[0.0], curve.breakpoints, curve.breakpoints[-1:] + 1.0])
    middle = (knots[:-1] + knots[1:]) / 2
    chord = (curve.precision(knots[:-1]) + curve.precision(knots[1:])) / 2
    np.testing.assert_allclose(curve.precision(middle), chord, atol=1e-14)
    for knot in curve.breakpoints:
        step = 1e-3 * knot
        assert curve.precision(knot - step) + curve.precision(knot + step) < 2 * curve.precision(knot) - 1e-6 * knot


@SOME
@given(two_laws())
def test_swapping_the_laws_swaps_the_axes(laws):
    p, q = laws
    lam = LAM[1:-1]
    curve = pr_curve(p, q)
    swapped = curve.swapped()
    np.testing.assert_allclose(curve.precision(lam), lam * swapped.precision(1 / lam), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(
        curve.recall(LAM), swapped.precision(1 / np.maximum(LAM, 1e-308)), rtol=1e-12, atol=1e-15
    )
    assert swapped.auc == pytest.approx(curve.auc, rel=1e-12)
    assert swapped.total_variation == pytest.approx(curve.total_variation, abs=1e-15)
    if q.sum() > 1 - 1e-12:
        direct = pr_curve(q / q.sum(), p)
        np.testing.assert_allclose(direct.precision(LAM), swapped.precision(LAM), rtol=1e-12, atol=1e-14)


@SOME
@given(two_laws(), st.integers(0, 7), st.integers(0, 7))
def test_merging_two_atoms_never_lowers_precision(laws, i, j):
    """Data processing: what cannot be told apart cannot be told wrong."""
    p, q = laws
    i, j = i % p.size, j % p.size
    if i == j:
        return
    rest = [k for k in range(p.size) if k not in (i, j)]
    merged = pr_curve(np.append(p[rest], p[i] + p[j]), np.append(q[rest], q[i] + q[j]))
    assert (merged.precision(LAM) >= pr_curve(p, q).precision(LAM) - 1e-15).all()
    assert merged.auc >= pr_curve(p, q).auc - 1e-14


@SOME
@given(two_laws())
def test_the_area_is_the_integral_under_the_drawn_curve(laws):
    curve = pr_curve(*laws)
    points = curve.points(1501)
    trapezoids = np.trapezoid(points.precision[::-1], points.recall[::-1])
    assert trapezoids == pytest.approx(curve.auc, abs=2e-5)


@SOME
@given(two_laws())
def test_area_is_one_exactly_when_the_laws_are_equal(laws):
    p, q = laws
    assert pr_curve(p, p).auc == pytest.approx(1.0, abs=1e-15)
    assert (pr_curve(p, q).auc > 1 - 1e-12) == bool(np.allclose(p, q, atol=1e-14))


def piece_integral(curve, power):
    """∫ D_λ λ^-power dλ, the linear pieces of D integrated one by one in closed form."""
    knots = np.union1d(curve.breakpoints, [1.0])
    knots = knots[knots >= min(1.0, curve.breakpoints[0])]
    total = 0.0
    for low, high in itertools.pairwise(knots):
        d_low, d_high = curve.pr_divergence(low), curve.pr_divergence(high)
        slope = (d_high - d_low) / (high - low)
        level = d_low - slope * low

        def power_integral(x, exponent):
            return math.log(x) if exponent == -1 else x ** (exponent + 1) / (exponent + 1)

        total += level * (power_integral(high, -power) - power_integral(low, -power))
        total += slope * (power_integral(high, 1 - power) - power_integral(low, 1 - power))
    tail = curve.pr_divergence(math.inf)
    return total + (tail * knots[-1] ** (1 - power) / (power - 1) if tail > 1e-15 else 0.0)


def test_divergences_are_the_integrals_of_the_pr_divergence():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
        curve = pr_curve(p, q)
        assert curve.kl_pq == pytest.approx(piece_integral(curve, 2), rel=1e-10, abs=1e-12)
        assert curve.kl_qp == pytest.approx(piece_integral(curve, 1), rel=1e-10, abs=1e-12)
        for order in (0.5, 1.4, 2.0, 3.0):
            assert curve.tsallis(order) == pytest.approx(order * piece_integral(curve, 1 + order), rel=1e-9, abs=1e-12)


@SOME
@given(two_laws())
def test_divergences_match_their_sums(laws):
    p, q = laws
    curve, missing = pr_curve(p, q), 1 - q.sum() > 1e-9
    tv = 0.5 * np.abs(p - q).sum() + 0.5 * (1 - q.sum())
    assert curve.total_variation == pytest.approx(tv, abs=1e-15)
    assert curve.pr_divergence(1.0) == pytest.approx(tv, abs=1e-15)
    both = (p > 0) & (q > 0)
    lost_p, lost_q = bool((p > 0)[q == 0].any()), bool((q > 0)[p == 0].any()) or missing
    kl_pq = math.inf if lost_p else float((p[both] * np.log(p[both] / q[both])).sum())
    kl_qp = math.inf if lost_q else float((q[both] * np.log(q[both] / p[both])).sum())
    assert curve.kl_pq == pytest.approx(kl_pq, abs=1e-14)
    assert curve.kl_qp == pytest.approx(kl_qp, abs=1e-14)
    for order in (0.0, 0.3, 2.5):
        power = math.inf if order > 1 and lost_p else float((p[both] ** order * q[both] ** (1 - order)).sum())
        assert curve.tsallis(order) == pytest.approx((power - 1) / (order - 1), abs=1e-13)
    assert curve.tsallis(1.0) == curve.kl_pq


@SOME
@given(two_laws())
def test_pr_divergence_is_half_an_l1_distance(laws):
    """½ sum |lam P - Q| - ½ |lam - 1|, mass of Q off the listed atoms included."""
    p, q = laws
    for lam in (0.0, 0.2, 1.0, 1.7, 30.0):
        half = 0.5 * (np.abs(lam * p - q).sum() + (1 - q.sum())) - 0.5 * abs(lam - 1)
        assert pr_curve(p, q).pr_divergence(lam) == pytest.approx(half, abs=1e-13)


def test_kl_of_close_laws_keeps_its_digits():
    """The plain sum of p log(p/q) is off by 100 % here: the true value, delta² to leading order, lies under its rounding."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        p = rng.dirichlet(np.ones(20))
        q = p * (1 + 1e-9 * rng.standard_normal(20))
        q /= q.sum()
        curve, leading = pr_curve(p, q), ((q - p) ** 2 / (2 * p)).sum()
        assert curve.kl_pq == pytest.approx(leading, rel=1e-5, abs=0)
        assert curve.kl_qp == pytest.approx(leading, rel=1e-5, abs=0)
        assert curve.total_variation == pytest.approx(np.abs(q - p).sum() / 2, rel=1e-6, abs=0)


@SOME
@given(two_laws(), st.floats(0.0, 1.0))
def test_at_precision_is_the_greatest_recall_that_reaches_the_level(laws, level):
    curve = pr_curve(*laws)
    point = curve.at_precision(level)
    if level > curve.precision(math.inf) + 1e-9:
        assert (point.lam, point.recall) == (math.inf, 0.0)
        return
    assert float(point.precision) == pytest.approx(level, abs=1e-8)
    grid = np.linspace(0.0, 8.0, 4001)
    reaching = grid[curve.precision(grid) >= level]
    if level > 0 and reaching.size:
        assert float(point.recall) >= curve.recall(float(reaching[0])) - 1e-12
        assert reaching[0] >= float(point.lam) - 1e-9


def test_at_precision_reaches_the_very_end_of_the_curve():
    curve = pr_curve([0.3, 0.3, 0.4], [0.1, 0.2, 0.6])
    assert float(curve.at_precision(curve.precision(math.inf)).lam) == pytest.approx(1.5)
    assert float(curve.at_precision(curve.precision(math.inf) * (1 + 1e-15)).lam) == pytest.approx(1.5)
    levels = curve.at_precision([[0.0, 0.5], [0.9, 1.0]])
    assert levels.recall.shape == (2, 2)
    assert (np.diff(levels.recall.ravel()) <= 0).all()


@SOME
@given(two_laws(), st.floats(0.0, 1.0))
def test_at_recall_mirrors_at_precision(laws, level):
    curve = pr_curve(*laws)
    point = curve.at_recall(level)
    if 1e-12 < level <= curve.recall(0.0):
        assert float(point.recall) == pytest.approx(level, abs=1e-14)
        assert float(point.precision) == pytest.approx(curve.precision(float(point.lam)), abs=1e-12)
    if level > curve.recall(0.0) + 1e-9:
        assert (float(point.lam), float(point.precision)) == (0.0, 0.0)


def test_points_for_drawing_run_from_one_end_to_the_other_and_hold_every_breakpoint():
    curve = pr_curve([0.5, 0.3, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25])
    points = curve.points(9)
    assert points.lam[0] == 0.0
    assert points.lam[-1] == math.inf
    assert set(curve.breakpoints) <= set(points.lam)
    assert (np.diff(points.precision) >= 0).all()
    assert (np.diff(points.recall) <= 0).all()
    np.testing.assert_allclose(points.precision[1:-1], points.lam[1:-1] * points.recall[1:-1], rtol=1e-12)


def test_one_atom_and_disjoint_laws():
    same = pr_curve([1.0], [1.0])
    assert (same.auc, same.precision(0.5), same.precision(2.0), same.recall(2.0)) == (1.0, 0.5, 1.0, 0.5)
    part = pr_curve([1.0], [0.25])
    assert (part.precision(math.inf), part.recall(0.0), part.q_only) == (0.25, 1.0, 0.75)
    none = pr_curve([1.0, 0.0], [0.0, 1.0])
    assert (none.auc, none.total_variation, none.kl_pq, none.kl_qp) == (0.0, 1.0, math.inf, math.inf)
    np.testing.assert_array_equal(none.precision(LAM), np.zeros(LAM.size))
    np.testing.assert_array_equal(none.recall(LAM), np.zeros(LAM.size))
    assert none.breakpoints.size == 0
    assert float(none.at_precision(0.5).recall) == 0.0
    assert none.points(5).precision.tolist() == [0.0] * 5


def test_masses_beyond_float64_still_count_in_log_space():
    curve = pr_curve_from_logs(np.log([0.5, 0.5]), [math.log(0.5), -2000.0])
    assert curve.recall(0.0) == 1.0
    assert curve.recall(1e-300) == pytest.approx(0.5)
    assert curve.kl_pq == pytest.approx(0.5 * (2000 + math.log(0.5)), rel=1e-14)
    assert math.isfinite(curve.auc)
    assert curve.swapped().precision(math.inf) == 1.0


def test_ratios_beyond_float64_do_not_spoil_the_area():
    tiny = 5e-324
    curve = pr_curve([1.0 - tiny, tiny], [1e-300, 1.0])
    assert curve.auc == pytest.approx(0.0, abs=1e-290)
    assert curve.precision(1e308) == pytest.approx(0.0, abs=1e-14)
    assert curve.precision(math.inf) == 1.0
    assert pr_curve([1e-300, 1.0], [1.0, 1e-300]).auc == pytest.approx(0.0, abs=1e-290)


def test_order_and_ties_of_atoms_do_not_matter():
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(50)), rng.dirichlet(np.ones(50))
    shuffle = rng.permutation(50)
    assert pr_curve(p[shuffle], q[shuffle]).auc == pytest.approx(pr_curve(p, q).auc, rel=1e-14)
    split = pr_curve(np.repeat(p, 3) / 3, np.repeat(q, 3) / 3)  # each atom in three equal parts: same ratios, all ties
    assert split.auc == pytest.approx(pr_curve(p, q).auc, rel=1e-13)
    assert split.breakpoints.size == 50
    np.testing.assert_allclose(split.precision(LAM), pr_curve(p, q).precision(LAM), rtol=1e-13)


def test_the_callers_arrays_are_neither_changed_nor_kept():
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.1, 0.2, 0.7])
    before = p.copy(), q.copy()
    curve = pr_curve(p, q)
    value = curve.auc
    np.testing.assert_array_equal(p, before[0])
    np.testing.assert_array_equal(q, before[1])
    p[:] = 0.0
    assert pr_curve(*before).auc == value
    assert curve.total_variation == pr_curve(*before).total_variation


def test_scalars_give_floats_and_arrays_give_arrays_of_their_shape():
    curve = pr_curve([0.5, 0.5], [0.2, 0.8])
    assert type(curve.precision(1)) is float
    assert type(curve.recall(np.float32(1.0))) is float
    assert curve.pr_divergence(np.ones((2, 3))).shape == (2, 3)
    assert "atoms=2" in repr(curve)


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        ([0.5, 0.5], [0.5, 0.25, 0.25], r"shapes \(2,\) and \(3,\)"),
        ([0.5, -0.5, 1.0], [1.0, 0.0, 0.0], "p must be non-negative.*-0.5"),
        ([0.5, float("nan")], [0.5, 0.5], "p must be non-negative and free of nan"),
        ([0.5, 0.5], [0.5, float("nan")], "q must be non-negative and free of nan"),
        ([0.5, 0.4], [0.5, 0.5], "p sums to 0.9, it must sum to 1"),
        ([0.5, 0.5], [0.5, 0.6], "q sums to 1.1.*must sum to at most 1"),
        ([0.5, float("inf")], [0.5, 0.5], "p sums to inf"),
        ([[0.5, 0.5]], [[0.5, 0.5]], r"one axis.*\(1, 2\)"),
        ([], [], "at least one atom"),
    ],
)
def test_bad_masses_are_refused_by_name(p, q, message):
    with pytest.raises(ValueError, match=message):
        pr_curve(p, q)
    with pytest.raises(ValueError, match=message):
        support_precision_recall(p, q)


def test_bad_logs_lam_and_levels_are_refused_by_name():
    with pytest.raises(ValueError, match="logq must be logarithms"):
        pr_curve_from_logs([math.log(0.5)] * 2, [0.5, -1.0])
    with pytest.raises(ValueError, match="free of nan"):
        pr_curve_from_logs([math.log(0.5)] * 2, [math.nan, -1.0])
    with pytest.raises(ValueError, match=r"exp\(logp\) sums to"):
        pr_curve_from_logs([-1.0, -1.0], [-1.0, -1.0])
    with pytest.raises(ValueError, match="same atoms"):
        pr_curve_from_logs([0.0], [-1.0, -1.0])
    curve = pr_curve([1.0], [1.0])
    with pytest.raises(ValueError, match="lam must lie in"):
        curve.precision([-1.0, 1.0])
    with pytest.raises(ValueError, match="lam holds nan"):
        curve.recall(math.nan)
    with pytest.raises(ValueError, match="level"):
        curve.at_precision(1.5)
    with pytest.raises(ValueError, match="order"):
        curve.tsallis(-1.0)
    with pytest.raises(ValueError, match="num"):
        curve.points(1)
