"""Separation of right from wrong tokens: brute force over all pairs, the artificial case, the integer task."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.data.mulmod import MulMod
from widen.metrics import ratio_histogram, separation_scores
from widen.theory import ArtificialCase, acceptable_counts, decoding_frontier, valid_continuations

SOME = settings(max_examples=30, deadline=None, derandomize=True)


@st.composite
def contexts(draw):
    count, vocab = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    p = np.array([[draw(st.integers(0, 3)) for _ in range(vocab)] for _ in range(count)], float)
    p[:, 0] += p.sum(axis=1) == 0
    p[0, -1] = 0.0  # a wrong token somewhere
    p[0, 0] += p[0].sum() == 0
    q = np.array([[draw(st.integers(1, 4)) for _ in range(vocab)] for _ in range(count)], float)
    weights = np.array([draw(st.integers(0, 3)) for _ in range(count)], float)
    weights[0] += 1
    return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True), weights


def tokens(p, q, weights):
    """(context, weight, ratio) of every right and of every wrong token."""
    right, wrong = [], []
    for i, (p_row, q_row, w) in enumerate(zip(p, q, weights, strict=True)):
        number = sum(x == 0 for x in p_row)
        for x, y in zip(p_row, q_row, strict=True):
            (right if x > 0 else wrong).append((i, w * x if x > 0 else w / number, y / max(q_row)))
    return [t for t in right if t[1] > 0], [t for t in wrong if t[1] > 0]


def share(pairs):
    pairs = list(pairs)
    hits = sum(w * (1.0 if a > b + 1e-12 else 0.5 if abs(a - b) <= 1e-12 else 0.0) for w, a, b in pairs)
    return hits / sum(w for w, _, _ in pairs)


@SOME
@given(contexts())
def test_every_number_is_its_definition_over_all_pairs(context):
    p, q, weights = context
    q = 2.0 ** np.round(np.log2(q) * 2)  # ratios that are powers of 2 compare without rounding
    right, wrong = tokens(p, q, weights)
    found = separation_scores(p, np.log2(q) * math.log(2), weights=weights)
    assert found.auc == pytest.approx(share((a * b, x, y) for (_, a, x), (_, b, y) in itertools.product(right, wrong)))
    inside = []
    for i in {i for i, _, _ in wrong}:
        own = itertools.product([t for t in right if t[0] == i], [t for t in wrong if t[0] == i])
        inside.append((weights[i], share((a * b, x, y) for (_, a, x), (_, b, y) in own)))
    assert found.auc_within == pytest.approx(np.average([x for _, x in inside], weights=[w for w, _ in inside]))
    total, wrong_total = sum(w for _, w, _ in right), sum(w for _, w, _ in wrong)

    def gain(m):
        kept = sum(w for _, w, r in right if r >= m - 1e-9) / total
        return kept, sum(w for _, w, r in wrong if r >= m - 1e-9) / wrong_total

    assert (found.right_kept, found.wrong_kept) == pytest.approx(gain(found.threshold))
    assert found.right_kept - found.wrong_kept == pytest.approx(
        max(a - b for a, b in (gain(r) for _, _, r in right + wrong))
    )
    noise = {i: max((r for j, _, r in wrong if j == i), default=0.0) for i in range(len(p))}
    assert found.below_noise == pytest.approx(sum(w for i, w, r in right if r <= noise[i] + 1e-12) / total)
    worst = max(noise.values())
    assert found.below_any_noise == pytest.approx(sum(w for _, w, r in right if r <= worst + 1e-12) / total)
    assert found.contexts == (weights > 0).sum()


@pytest.mark.parametrize(("support", "a", "epsilon"), [(50, 0.725, 0.15), (90, 0.9, 0.15), (50, 0.6, 0.55)])
def test_the_artificial_case_is_separable_exactly_when_nothing_lies_below_any_noise(support, a, epsilon):
    case = ArtificialCase(vocab=100, support=support, rho=0.5, a=a, epsilon=epsilon)
    with np.errstate(divide="ignore"):
        found = separation_scores(np.array(case.p()), np.log(np.array(case.q())))
    assert (found.below_any_noise == 0) == case.separable
    if case.separable:
        assert case.noise_ratio < found.threshold <= case.rare_ratio * (1 + 1e-12)
        assert (found.right_kept, found.wrong_kept) == (1.0, 0.0)
    assert (found.below_noise == 0) == (case.noise_ratio < 1)


def test_mass_below_the_noise_is_what_no_precise_decoding_reaches():
    """With uniform P the frontier stays at precision 1 up to lam = 1/(1 - below_noise), where it keeps the rest."""
    q, valid = np.array([0.4, 0.25, 0.2, 0.1, 0.05]), np.array([True, True, False, True, True])
    found = separation_scores((valid / 4)[None], np.log(q)[None])
    assert found.below_noise == 0.5
    assert decoding_frontier(q, valid, 1 / (1 - found.below_noise)) == pytest.approx(1.0)
    assert decoding_frontier(q, valid, 0.99 / (1 - found.below_noise)) < 1


@SOME
@given(st.data())
def test_continuations_are_the_conditionals_of_p(data):
    everything = list(itertools.product(range(3), repeat=3))
    everything = [x[: x.index(2) + 1] if 2 in x else x for x in everything]  # 2 ends a sequence
    chosen = data.draw(st.lists(st.sampled_from(sorted(set(everything))), min_size=1, unique=True))
    mass = np.array([data.draw(st.integers(1, 5)) for _ in chosen], float)
    padded = np.array([[*x, *[-1] * (3 - len(x))] for x in chosen])
    found = valid_continuations(padded, mass / mass.sum())
    dense = found.dense(4)
    law = dict(zip(chosen, mass / mass.sum(), strict=True))
    seen = set()
    for i, (s, n) in enumerate(zip(found.sequence, found.position, strict=True)):
        prefix = tuple(padded[s][:n])
        seen.add(prefix)
        inside = {x: m for x, m in law.items() if x[:n] == prefix and len(x) > n}
        assert found.mass[i] == pytest.approx(sum(inside.values()))
        for token in range(4):
            expected = sum(m for x, m in inside.items() if x[n] == token) / sum(inside.values())
            assert dense[i, token] == pytest.approx(expected)
    assert len(seen) == len(found.mass)
    assert seen == {x[:n] for x in chosen for n in range(len(x))}
    counts = acceptable_counts(padded[(padded >= 0).all(axis=1)]) if (padded >= 0).all() else None
    if counts is not None:
        assert [(dense[found.position == n] > 0).sum(axis=1).max() for n in range(3)] == counts.tolist()


def test_the_integer_task_has_its_contexts_and_a_perfect_model_separates_them():
    task = MulMod(modulus=7, low=1, high=9, under_representation=None)
    found = valid_continuations(task.support()[:, 1:], np.exp(task.log_p()))
    p = found.dense(13)
    assert found.mass[found.position == 4].sum() == pytest.approx(1.0)
    with np.errstate(divide="ignore"):
        perfect = separation_scores(p, np.log(p), weights=found.mass)
    assert (perfect.auc, perfect.auc_within, perfect.below_any_noise) == (pytest.approx(1.0), pytest.approx(1.0), 0.0)
    blind = separation_scores(p, np.zeros_like(p), weights=found.mass)
    assert (blind.auc, blind.auc_within, blind.below_noise) == (
        pytest.approx(0.5),
        pytest.approx(0.5),
        pytest.approx(1.0),
    )


def test_bad_input_is_refused_by_name():
    good = np.array([[0.5, 0.5, 0.0]])
    for call, message in (
        (lambda: separation_scores(good, np.zeros((1, 2))), r"\(1, 3\) and \(1, 2\)"),
        (lambda: separation_scores(good * 2, np.zeros((1, 3))), "reference: each row"),
        (lambda: separation_scores(good, np.full((1, 3), np.nan)), "logits: each row"),
        (lambda: separation_scores(good, np.zeros((1, 3)), weights=[0.0]), "weights must be 1 numbers"),
        (
            lambda: separation_scores(np.full((1, 2), 0.5), np.zeros((1, 2))),
            "no context of positive weight has a wrong token",
        ),
        (lambda: valid_continuations([[0, 1], [0, 1]]), "lists a sequence twice"),
        (lambda: valid_continuations([[0.5]]), "sequences must be integers"),
        (lambda: valid_continuations([[-1, 0]]), "tokens first"),
        (lambda: valid_continuations([[0], [1]], [1.0, 0.0]), "p = 0.0"),
        (lambda: valid_continuations([[0], [1]], [1.0]), "p = 'shape"),
        (lambda: valid_continuations([[5]]).dense(5), "vocab = 5"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_the_histogram_holds_the_distributions_that_the_scores_compare():
    """Two contexts by hand: right mass and wrong tokens by bin, contexts by weight; ratios below the first edge are in the first bin."""
    p = np.array([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    q = np.array([[0.5, 0.3, 0.2, 1e-12], [0.2, 0.7, 0.1, 1e-3]])
    found = ratio_histogram(p, np.log(q), weights=[3, 1])
    assert (len(found.edges), found.edges[0], found.edges[-1]) == (41, 1e-8, 1.0)
    for side, held in (
        (found.right, [(1.0, 3 / 8), (0.6, 3 / 8), (2 / 7, 1 / 4)]),
        (found.wrong, [(0.4, 3 / 8), (0.0, 3 / 8), (1.0, 1 / 12), (1 / 7, 1 / 12), (1 / 700, 1 / 12)]),
    ):
        expected = np.zeros(40)
        for ratio, share in held:
            expected[min(max(np.searchsorted(found.edges, ratio, side="right") - 1, 0), 39)] += share
        np.testing.assert_allclose(side, expected, atol=1e-12)
