"""Exact likelihoods under decodings with several steps: definitions token by token, ties, normalisation over V^L."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.theory import decoded_log, exact_curves, exact_log_likelihood, tempered_log

SOME = settings(max_examples=15, deadline=None, derandomize=True)
DECODINGS = [
    0.7,
    (),
    (("min_p", 0.3), ("temperature", 3.0)),
    (("temperature", 3.0), ("min_p", 0.3)),
    (("top_p", 0.6), ("temperature", math.inf)),
    (("epsilon", 0.2), ("top_k", 2)),
    (("top_n_sigma", 1.0), ("temperature", 0.0)),
    (("top_k", 2), ("temperature", 2.0), ("top_p", 0.7)),
]

values = {
    "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.5, math.inf]),
    "top_k": st.integers(1, 7),
    "top_p": st.floats(0.05, 1.0),
    "min_p": st.floats(0.01, 1.0),
    "epsilon": st.floats(0.01, 0.9),
    "top_n_sigma": st.floats(0.1, 3.0),
}
steps = st.lists(st.sampled_from(sorted(values)).flatmap(lambda n: st.tuples(st.just(n), values[n])), max_size=3)
rows = st.lists(st.sampled_from([-2.0, -1.0, -0.25, 0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=6)  # ties are common


def by_hand(z, decoding):
    """The definitions of the steps, one token after another, with plain Python numbers."""
    z = dict(enumerate(map(float, z)))
    for name, value in decoding:
        top = max(z.values())
        total = sum(math.exp(x - top) for x in z.values())
        q = {v: math.exp(x - top) / total for v, x in z.items()}
        if name == "temperature" and value == 0:
            z = {v: 0.0 for v, x in z.items() if x == top}
        elif name == "temperature":
            z = {v: 0.0 if math.isinf(value) else x / value for v, x in z.items()}
        elif name == "top_k":
            least = sorted(z.values(), reverse=True)[min(int(value), len(z)) - 1]
            z = {v: x for v, x in z.items() if x >= least}
        elif name == "min_p":
            z = {v: x for v, x in z.items() if math.exp(x - top) >= value}
        elif name == "epsilon":
            z = {v: x for v, x in z.items() if q[v] >= value or x == top}
        elif name == "top_n_sigma":
            mean = sum(z.values()) / len(z)
            spread = math.sqrt(sum((x - mean) ** 2 for x in z.values()) / len(z))
            z = {v: x for v, x in z.items() if x >= top - value * spread}
        else:
            gone = 0.0
            for v in sorted(z, key=lambda v: (z[v], v))[:-1]:
                gone += q[v]
                if gone > 1 - value:
                    break
                del z[v]
    top = max(z.values())
    total = sum(math.exp(x - top) for x in z.values())
    return {v: math.exp(x - top) / total for v, x in z.items()}


@SOME
@given(rows, steps)
def test_every_step_does_what_its_definition_says(z, decoding):
    law = np.exp(decoded_log(z, decoding))
    expected = by_hand(z, decoding)
    np.testing.assert_allclose(law, [expected.get(v, 0.0) for v in range(len(z))], rtol=1e-12, atol=1e-15)


@SOME
@given(rows, steps)
def test_a_decoding_is_monotone_and_a_law(z, decoding):
    law = np.exp(decoded_log(z, decoding))
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    for i, j in itertools.permutations(range(len(z)), 2):
        assert law[i] >= law[j] - 1e-15 or z[i] <= z[j]
    assert law[int(np.argmax(z))] > 0 or any(n == "top_p" for n, _ in decoding)  # top_p drops ties by their index


def test_probabilities_of_all_sequences_sum_to_one_under_every_decoding():
    """V = 4, L = 3: logits by prefix, and the product of conditionals over all 64 sequences."""
    rng = np.random.default_rng(0)
    table = {prefix: rng.normal(size=4) * 2 for n in range(3) for prefix in itertools.product(range(4), repeat=n)}
    everything = np.array(list(itertools.product(range(4), repeat=3)))
    logits = np.array([[table[tuple(x[:i])] for i in range(3)] for x in everything.tolist()])
    log_q = exact_log_likelihood(logits, everything, DECODINGS)
    assert log_q.shape == (len(DECODINGS), 64)
    np.testing.assert_allclose(np.exp(log_q).sum(axis=1), 1.0, rtol=1e-12)
    for decoding, row in zip(DECODINGS, log_q, strict=True):
        one_by_one = [(("temperature", decoding),)] if isinstance(decoding, float) else [decoding]
        for x, value in zip(everything.tolist(), row, strict=True):
            q = math.prod(by_hand(table[tuple(x[:i])], one_by_one[0]).get(x[i], 0.0) for i in range(3))
            assert math.exp(value) == pytest.approx(q, rel=1e-12, abs=1e-300)
    assert np.isneginf(log_q[2]).any()
    assert np.isfinite(log_q[0]).all()


def test_a_number_is_a_temperature_and_order_matters():
    rng = np.random.default_rng(1)
    logits, targets = rng.normal(size=(5, 2, 6)) * 3, rng.integers(6, size=(5, 2))
    plain = exact_log_likelihood(logits, targets, [0.5, 0.0, math.inf])
    spelled = exact_log_likelihood(logits, targets, [[("temperature", t)] for t in (0.5, 0.0, math.inf)])
    np.testing.assert_array_equal(plain, spelled)
    z = np.log([0.6, 0.3, 0.1])
    np.testing.assert_allclose(decoded_log(z, 2.0), tempered_log(z, 2.0), rtol=1e-14)
    assert np.isneginf(decoded_log(z, [("min_p", 0.2), ("temperature", 4.0)])[2])
    assert np.isfinite(decoded_log(z, [("temperature", 4.0), ("min_p", 0.2)])[2])


def test_ties_are_kept_by_every_filter_but_top_p():
    z = np.zeros(4)
    for decoding in ([("top_k", 1)], [("min_p", 1.0)], [("epsilon", 0.9)], [("top_n_sigma", 0.5)]):
        np.testing.assert_allclose(np.exp(decoded_log(z, decoding)), 0.25)
    np.testing.assert_allclose(np.exp(decoded_log(z, [("top_p", 0.5)])), [0, 0, 0.5, 0.5])


def test_curves_of_truncated_models_lose_what_is_cut_off():
    logits = np.log([[[0.6, 0.3, 0.1]], [[0.6, 0.3, 0.1]]])
    heated, cut = exact_curves([0.5, 0.5], logits, [[0], [1]], [math.inf, (("min_p", 0.4), ("temperature", math.inf))])
    assert heated.precision(math.inf) == pytest.approx(2 / 3)
    assert (cut.precision(math.inf), cut.auc) == (pytest.approx(1.0), pytest.approx(1.0))


@pytest.mark.parametrize(
    ("decodings", "message"),
    [
        ([(("top_q", 0.5),)], "step 'top_q': must be one of temperature"),
        ([(("top_p", 0.0),)], r"top_p = 0.0: must be in \(0, 1\]"),
        ([(("min_p", 1.5),)], "min_p = 1.5"),
        ([(("epsilon", 1.0),)], "epsilon = 1.0"),
        ([(("top_k", 1.5),)], "top_k = 1.5"),
        ([(("top_n_sigma", math.inf),)], "top_n_sigma = inf"),
        ([(("temperature", -1.0),)], "temperature = -1.0"),
        ([(("temperature", math.nan),)], "temperature = nan"),
        (-1.0, "decodings must lie in"),
        ((("min_p", 0.1), ("temperature", 2.0)), "this is one decoding"),
        ([(), "t=1"], "is not a step"),
    ],
)
def test_bad_decodings_are_refused_by_name(decodings, message):
    with pytest.raises(ValueError, match=message):
        exact_log_likelihood(np.zeros((1, 1, 3)), [[0]], decodings)
