"""Weights of grown answers: their formulas against brute force."""

from itertools import product

import numpy as np
import pytest

from widen.run.grow import Seen, answer_weights, chance_of_being_found

LAW = {"a": 0.6, "b": 0.25, "c": 0.05, "wrong": 0.1}
RIGHT = ("a", "b", "c")


@pytest.mark.parametrize("draws", [1, 2, 3, 5])
def test_under_inverse_chances_the_expected_law_of_a_prompt_is_uniform_over_its_right_answers(draws):
    """Every outcome of all draws, with its probability; one row per distinct right answer, weight 1 / pi."""
    expected = dict.fromkeys(RIGHT, 0.0)
    for outcome in product(LAW, repeat=draws):
        probability = np.prod([LAW[one] for one in outcome])
        for answer in set(outcome) & set(RIGHT):
            expected[answer] += probability / chance_of_being_found([(LAW[answer], draws)])
    assert expected == pytest.approx(dict.fromkeys(RIGHT, 1.0))


def test_with_one_draw_the_weight_is_one_over_q_and_with_many_uniform_becomes_plain():
    for answer in RIGHT:
        assert 1 / chance_of_being_found([(LAW[answer], 1)]) == pytest.approx(1 / LAW[answer])
    for draws, weights in {1: [1 / LAW[one] for one in RIGHT], 10_000: [1.0] * 3}.items():
        seen = [Seen(found=1, draws=((LAW[one], draws),)) for one in RIGHT]
        assert answer_weights("uniform", seen, cap=100) == pytest.approx(np.array(weights) / np.mean(weights))


def test_infinitely_many_single_draws_weighted_by_one_over_q_are_uniform():
    rng = np.random.default_rng(0)
    drawn = rng.choice(list(LAW), size=200_000, p=list(LAW.values()))
    mass = {one: np.sum(drawn == one) / chance_of_being_found([(LAW[one], 1)]) for one in RIGHT}
    assert [mass[one] / sum(mass.values()) for one in RIGHT] == pytest.approx([1 / 3] * 3, abs=0.01)


def test_rounds_that_found_an_answer_multiply_the_chance_of_missing_it():
    missed = sum(
        np.prod([q if one else 1 - q for one, q in zip(hits, (0.3, 0.3, 0.1), strict=True)])
        for hits in product((0, 1), repeat=3)
        if not any(hits)
    )
    assert chance_of_being_found([(0.3, 2), (0.1, 1)]) == pytest.approx(1 - missed)
    assert chance_of_being_found([(1e-12, 3)]) == pytest.approx(3e-12)  # a small q keeps its digits


@pytest.mark.parametrize("kind", ["plain", "sampled", "uniform"])
def test_the_weights_of_the_rows_of_a_prompt_have_mean_one(kind):
    rng = np.random.default_rng(1)
    for _ in range(20):
        copies, found = rng.integers(0, 3, 6), rng.integers(1, 9, 6)
        draws = [((float(q), 8),) for q in rng.uniform(1e-6, 1, 6)]
        seen = [Seen(int(c), int(f), d) for c, f, d in zip(copies, found, draws, strict=True)]
        weights, rows = np.array(answer_weights(kind, seen)), np.maximum(copies, 1)
        assert (weights * rows).sum() / rows.sum() == pytest.approx(1)
        if kind == "sampled":  # all rows of an answer together weigh as much as it was seen
            assert weights * rows / (copies + found) == pytest.approx((weights * rows / (copies + found))[0])


def test_an_answer_of_the_data_counts_as_certain_and_the_cap_bounds_a_rare_one():
    known, rare = answer_weights("uniform", [Seen(copies=1), Seen(found=1, draws=((1e-9, 4),))], cap=4)
    assert rare / known == pytest.approx(4)


@pytest.mark.parametrize(("kind", "cap", "sentence"), [("even", 10, "weights='even'"), ("plain", 0.5, "cap=0.5")])
def test_illegal_weights_are_refused(kind, cap, sentence):
    with pytest.raises(ValueError, match=sentence):
        answer_weights(kind, [Seen(found=1)], cap=cap)
