"""Weights of grown answers: their formulas against brute force."""

import math
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


LATER = {"a": 0.2, "b": 0.02, "c": 0.5}


def expected_weights(laws, draws, cap):
    """The expected weight of each right answer over every way in which the rounds find it or not.

    An answer of the data is beside it, whose weight is the unit.
    """
    expected = dict.fromkeys(RIGHT, 0.0)
    for answer, hits in product(RIGHT, product((0, 1), repeat=len(laws))):
        chances = [chance_of_being_found([(law[answer], draws)]) for law in laws]
        probability = np.prod([chance if hit else 1 - chance for hit, chance in zip(hits, chances, strict=True)])
        found = tuple((law[answer], draws) for hit, law in zip(hits, laws, strict=True) if hit)
        if found:
            seen = [Seen(copies=1), Seen(found=len(found), draws=found)]
            unit, weight = answer_weights("uniform", seen, cap=cap, rounds=len(laws))
            expected[answer] += probability * weight / unit
    return expected


@pytest.mark.parametrize("laws", [[LAW], [LAW, LATER], [LAW, LAW, LAW]])
def test_after_several_rounds_the_expected_law_is_still_uniform_over_the_right_answers(laws):
    """Also if a round samples the same model again, or no round does; the q of a round that found nothing is not known."""
    assert expected_weights(laws, 2, cap=1e6) == pytest.approx(dict.fromkeys(RIGHT, 1.0))
    capped = expected_weights(laws, 2, cap=2)
    chances = {one: [chance_of_being_found([(law[one], 2)]) for law in laws] for one in RIGHT}
    assert capped == pytest.approx({one: np.mean([min(1, 2 * p) for p in chances[one]]) for one in RIGHT})


def test_the_chance_of_being_found_keeps_the_digits_of_a_small_q_and_many_draws_multiply_the_chance_of_a_miss():
    missed = sum(
        np.prod([q if one else 1 - q for one, q in zip(hits, (0.3, 0.3, 0.1), strict=True)])
        for hits in product((0, 1), repeat=3)
        if not any(hits)
    )
    assert chance_of_being_found([(0.3, 2), (0.1, 1)]) == pytest.approx(1 - missed)
    assert chance_of_being_found([(1e-12, 3)]) == pytest.approx(3e-12)


def test_without_a_cap_answers_whose_probability_is_too_small_for_a_float_still_have_weights():
    """A long answer of a hot decoding has q = exp(-800) = 0."""
    never = Seen(found=1, draws=((0.0, 4),))
    assert answer_weights("uniform", [never, never, Seen(copies=1)], cap=math.inf) == pytest.approx([1.5, 1.5, 0])


@pytest.mark.parametrize("kind", ["plain", "sampled", "uniform"])
def test_the_weights_of_the_rows_of_a_prompt_have_mean_one(kind):
    rng = np.random.default_rng(1)
    for _ in range(20):
        copies, found = rng.integers(0, 3, 6), rng.integers(1, 9, 6)
        draws = [((float(q), 8),) for q in rng.uniform(1e-6, 1, 6)]
        seen = [Seen(int(c), int(f), d) for c, f, d in zip(copies, found, draws, strict=True)]
        weights, rows = np.array(answer_weights(kind, seen)), np.maximum(copies, 1)
        assert (weights * rows).sum() / rows.sum() == pytest.approx(1)
        shares = {"sampled": copies + found, "plain": np.ones(6)}
        if kind in shares:  # all rows of an answer together weigh as much as the answer
            per_answer = weights * rows / shares[kind]
            assert per_answer == pytest.approx(np.full(6, per_answer[0]))


@pytest.mark.parametrize("kind", ["plain", "uniform"])
def test_an_answer_that_the_data_repeats_weighs_no_more_than_another(kind):
    thrice, once, found = answer_weights(kind, [Seen(copies=3), Seen(copies=1), Seen(found=2, draws=((1.0, 2),))])
    assert (3 * thrice, once, found) == pytest.approx((5 / 3, 5 / 3, 5 / 3))


def test_an_answer_of_the_data_counts_as_certain_and_the_cap_bounds_a_rare_one():
    known, rare = answer_weights("uniform", [Seen(copies=1), Seen(found=1, draws=((1e-9, 4),))], cap=4)
    assert rare / known == pytest.approx(4)


@pytest.mark.parametrize(("kind", "cap", "sentence"), [("even", 10, "weights='even'"), ("plain", 0.5, "cap=0.5")])
def test_illegal_weights_are_refused(kind, cap, sentence):
    with pytest.raises(ValueError, match=sentence):
        answer_weights(kind, [Seen(found=1)], cap=cap)


@pytest.mark.parametrize(
    ("draws", "sentence"), [((), r"draws=\(\)"), (((0.5, 4), (0.5, 4)), "rounds=1: must be at least 2")]
)
def test_draws_that_fit_no_round_are_refused(draws, sentence):
    with pytest.raises(ValueError, match=sentence):
        answer_weights("uniform", [Seen(found=1, draws=draws)])
