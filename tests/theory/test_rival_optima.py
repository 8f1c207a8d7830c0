"""Where other people's losses stop: gradient descent on the logits, identities and limits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.theory import optima, tempered

SOME = settings(max_examples=8, deadline=None, derandomize=True)


@st.composite
def laws(draw, max_size=6):
    weights = draw(st.lists(st.integers(0, 9), min_size=1, max_size=max_size).filter(any))
    return np.array(weights, float) / sum(weights)


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def focal_weight(q, gamma):
    return (1 - q) ** gamma - gamma * q * (1 - q) ** (gamma - 1) * np.log(q)


def weighted(p, z, weight, tau=1.0):
    """Population gradient of a weighted loss: sum over targets y of P_y w(q_y) (softmax(z/tau) - onehot(y))."""
    w = weight(softmax(z))
    return softmax(z / tau) * (p * w).sum() - p * w


def entropy_gradient(p, z, bonus):
    q = softmax(z)
    log_q = np.log(q)
    return q - p + bonus * q * (log_q - (q * log_q).sum())


# name -> (gradient of the logits given p and z, the optimum that it should reach)
LOSSES = {
    "gem": (lambda p, z: weighted(p, z, np.ones_like, tau=0.7), lambda p: optima.gem(p, beta=0.7)),
    "tofu": (
        lambda p, z: weighted(p, z, lambda q: focal_weight(q, 3.0), tau=0.8),
        lambda p: optima.tofu(p, gamma=3.0, beta=0.8),
    ),
    "focal 2": (
        lambda p, z: weighted(p, z, lambda q: focal_weight(q, 2.0)),
        lambda p: optima.focal(p, gamma=2.0),
    ),
    "focal .5": (
        lambda p, z: weighted(p, z, lambda q: focal_weight(q, 0.5)),
        lambda p: optima.focal(p, gamma=0.5),
    ),
    "dco": (
        lambda p, z: weighted(p, z, lambda q: 8 * q * (1 - q) ** 7 / (1 - (1 - q) ** 8)),
        lambda p: optima.dco(p, n=8),
    ),
    "smooth": (
        lambda p, z: softmax(z) - 0.9 * p - 0.1 / p.size,
        lambda p: optima.smooth(p, eps=0.1),
    ),
    "entropy": (
        lambda p, z: entropy_gradient(p, z, 0.4),
        lambda p: optima.entropy(p, bonus=0.4),
    ),
    "eaft": (
        lambda p, z: (0.2 - softmax(z) @ np.log(softmax(z))) * (softmax(z) - p),
        lambda p: optima.eaft(p),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_descent_on_the_logits_ends_at_the_optimum(name):
    gradient, optimum = LOSSES[name]
    rng = np.random.default_rng(3)
    for p in (np.array([0.5, 0.25, 0.12, 0.08, 0.05]), rng.dirichlet(np.ones(6))):
        z = rng.normal(size=p.size)
        for _ in range(3000):
            z -= 2 * gradient(p, z)
        np.testing.assert_allclose(softmax(z), optimum(p), atol=1e-6)


@pytest.mark.parametrize("name", ["smooth", "entropy"])
def test_mass_off_the_support_is_what_gradient_descent_leaves_there(name):
    gradient, optimum = LOSSES[name]
    p, z = np.array([0.7, 0.3, 0.0]), np.zeros(3)
    for _ in range(8000):
        z -= gradient(p, z)
    np.testing.assert_allclose(softmax(z), optimum(p), atol=1e-6)
    assert optimum(p)[-1] > 1e-3


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"smooth", "entropy"}))
@SOME
@given(p=laws())
def test_weighted_optima_are_stationary_laws_on_the_support_in_the_order_of_p(name, p):
    gradient, optimum = LOSSES[name]
    q = optimum(p)
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    assert (q[p == 0] == 0).all()
    assert (np.diff(q[np.argsort(-p, kind="stable")]) <= 1e-12).all()
    on = p > 0
    if on.sum() > 1:
        np.testing.assert_allclose(gradient(p[on], np.log(q[on])), 0.0, atol=1e-10)
    else:
        assert (q == p).all()


@SOME
@given(laws(), st.floats(1e-6, 50.0))
def test_the_entropy_optimum_is_stationary_for_every_bonus(p, bonus):
    q = optima.entropy(p, bonus=bonus)
    log_q = np.log(np.maximum(q, 1e-300))
    h = -(q * log_q).sum()
    np.testing.assert_allclose(q * (1 + bonus * (log_q + h)), p, atol=1e-10)
    if q.min() > 1e-300:
        np.testing.assert_allclose(log_q[p == 0], -1 / bonus - h, rtol=1e-7)


@SOME
@given(laws(), st.floats(0.1, 3.0), st.floats(0.1, 1.0), st.floats(0.0, 6.0))
def test_special_cases_are_other_losses(p, beta, beta_below_one, gamma):
    np.testing.assert_allclose(optima.gem(p, beta=beta), optima.cdiv(p, alpha=1 / beta), rtol=1e-13)
    np.testing.assert_allclose(optima.gem(p, beta=beta), tempered(p, 1 / beta), rtol=1e-13)
    np.testing.assert_allclose(
        optima.tofu(p, gamma=0.0, beta=beta_below_one), optima.gem(p, beta=beta_below_one), rtol=1e-13
    )
    np.testing.assert_allclose(optima.tofu(p, gamma=1e-9, beta=0.5), optima.gem(p, beta=0.5), atol=1e-7)
    np.testing.assert_allclose(optima.tofu(p, gamma=gamma, beta=1.0), optima.focal(p, gamma=gamma), rtol=1e-13)
    for same in (
        optima.gem(p, beta=1.0),
        optima.focal(p, gamma=0.0),
        optima.dco(p, n=1),
        optima.smooth(p, eps=0.0),
        optima.entropy(p, bonus=0.0),
        optima.eaft(p),
    ):
        np.testing.assert_allclose(same, p, rtol=1e-13)


@SOME
@given(laws())
def test_strong_settings_end_at_a_uniform_law(p):
    support = (p > 0) / (p > 0).sum()
    for q in (optima.gem(p, beta=1e-9), optima.focal(p, gamma=1e6), optima.dco(p, n=10**7)):
        np.testing.assert_allclose(q, support, atol=1e-4)
    for q in (optima.smooth(p, eps=1.0), optima.entropy(p, bonus=1e9)):
        np.testing.assert_allclose(q, 1 / p.size, atol=1e-6)


@SOME
@given(laws(), st.floats(0.1, 1.0), st.integers(2, 200), st.floats(0.01, 3.0))
def test_gem_dco_and_the_entropy_bonus_are_flatter_than_p(p, beta, n, bonus):
    for q in (optima.gem(p, beta=beta), optima.dco(p, n=n), optima.entropy(p, bonus=bonus)):
        assert q.max() <= p.max() + 1e-12
        assert -(q[q > 0] * np.log(q[q > 0])).sum() >= -(p[p > 0] * np.log(p[p > 0])).sum() - 1e-12


def test_focal_loss_flattens_common_tokens_and_sharpens_rare_ones():
    """Its weight peaks at q = .10 for gamma = 2."""
    common = np.array([0.5, 0.3, 0.2])
    assert optima.focal(common, gamma=2.0).max() < 0.5
    rare = np.array([3.0] * 20 + [1.0] * 20) / 80
    q = optima.focal(rare, gamma=2.0)
    assert q[0] / q[-1] > 3.2
    grid = np.linspace(0.01, 0.99, 981)
    assert grid[focal_weight(grid, 2.0).argmax()] == pytest.approx(0.10, abs=0.005)


def test_extreme_laws_keep_a_finite_optimum():
    for p in ([1.0, 1e-300], [1 - 1e-12, 1e-12], [0.5, 0.5, 1e-200]):
        for q in (
            optima.focal(p, gamma=3.0),
            optima.focal(p, gamma=0.01),
            optima.tofu(p, gamma=3.0, beta=0.1),
            optima.dco(p, n=1000),
            optima.dco(p, n=1.5),
            optima.entropy(p, bonus=1e-9),
            optima.entropy(p, bonus=100.0),
        ):
            assert np.isfinite(q).all()
            assert q.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: optima.gem(p, beta=0.0), "beta = 0.0"),
        (lambda p: optima.gem(p, beta=math.inf), "beta = inf"),
        (lambda p: optima.tofu(p, gamma=1.0, beta=1.5), "beta = 1.5"),
        (lambda p: optima.tofu(p, gamma=-1.0, beta=0.5), "gamma = -1.0"),
        (lambda p: optima.focal(p, gamma=-1.0), "gamma = -1.0"),
        (lambda p: optima.dco(p, n=0.5), "n = 0.5"),
        (lambda p: optima.smooth(p, eps=1.5), "eps = 1.5"),
        (lambda p: optima.entropy(p, bonus=-0.1), "bonus = -0.1"),
        (lambda p: optima.eaft(p[:1]), "p sums to 0.5"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.array([0.5, 0.5]))
