"""The integer task: its support, its laws, its sample and its rule."""

from dataclasses import replace

import numpy as np
import pytest

from widen.data.mulmod import BOS, EQUALS, TIMES, VOCAB, MulMod
from widen.run.value import to_json


def test_the_papers_support_has_99_times_99_sequences_of_bos_and_8_targets():
    task = MulMod()
    support = task.support()
    assert support.shape == (99 * 99, 9)
    assert task.length == 8
    assert len(np.unique(support, axis=0)) == 99 * 99
    assert (support[:, 0] == BOS).all()
    assert (support[:, 3] == TIMES).all()
    assert (support[:, 6] == EQUALS).all()
    assert support.max() < VOCAB


def test_every_sequence_of_the_support_is_a_right_product_by_schoolbook_arithmetic():
    for text in MulMod().text(MulMod().support()):
        a, rest = text.split("x")
        b, c = rest.split("=")
        assert int(a) * int(b) % 97 == int(c)
        assert len(a) == len(b) == len(c) == 2


def test_the_reference_is_uniform_and_the_training_law_gives_b_to_leading_digits_0_to_4():
    task = MulMod(under_representation=0.2)
    assert np.exp(task.log_p()).sum() == pytest.approx(1, abs=1e-12)
    assert np.ptp(task.log_p()) == 0
    p = np.exp(task.log_p_train())
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert p[task.support()[:, 1] < 5].sum() == pytest.approx(0.2, abs=1e-12)
    # Inside a half nothing is preferred.
    assert len(np.unique(p.round(15))) == 2


def test_b_of_the_reference_proportion_and_none_both_train_on_the_reference():
    assert np.allclose(MulMod(under_representation=49 / 99).log_p_train(), MulMod().log_p(), atol=1e-12)
    assert (MulMod(under_representation=None).log_p_train() == MulMod().log_p()).all()


def test_b_of_zero_leaves_a_half_out():
    task = MulMod(under_representation=0.0)
    assert (task.train_tokens()[:, 1] >= 5).all()
    assert np.isneginf(task.log_p_train()[task.support()[:, 1] < 5]).all()


def test_the_training_sample_follows_the_training_law():
    task = MulMod(num_samples=200_000)
    counts = np.bincount(task.unique_index(task.train_tokens()), minlength=9801)
    expected = 200_000 * np.exp(task.log_p_train())
    chi2 = ((counts - expected) ** 2 / expected).sum()
    # 9,800 degrees of freedom: mean 9,800, standard deviation 140.
    assert abs(chi2 - 9800) < 5 * 140


def test_the_training_sample_is_a_function_of_the_fields():
    assert (MulMod(seed=3).train_tokens() == MulMod(seed=3).train_tokens()).all()
    assert (MulMod(seed=3).train_tokens() != MulMod(seed=4).train_tokens()).any()


def test_unique_index_finds_each_row_of_the_support_and_nothing_else():
    task = MulMod(modulus=5, low=0, high=9, under_representation=None)
    support = task.support()
    assert (task.unique_index(support) == np.arange(100)).all()
    every = np.array(np.meshgrid([BOS], *[range(VOCAB)] * 1, [TIMES, 3], range(VOCAB), [EQUALS, BOS], range(VOCAB)))
    every = every.reshape(6, -1).T
    right = {tuple(row) for row in support.tolist()}
    assert task.is_correct(every).tolist() == [tuple(row) in right for row in every.tolist()]


@pytest.mark.parametrize(
    "spoil", [(0, 3), (1, TIMES), (3, EQUALS), (6, TIMES), (8, 9), (2, BOS)], ids=lambda spoil: f"token {spoil[0]}"
)
def test_one_wrong_token_makes_a_sequence_wrong(spoil):
    task = MulMod()
    rows = task.support()[[12, 5000]].copy()
    assert task.is_correct(rows).all()
    rows[:, spoil[0]] = spoil[1]
    assert not task.is_correct(rows)[rows[:, spoil[0]] != task.support()[[12, 5000], spoil[0]]].any()


def test_an_operand_outside_the_range_is_wrong_even_with_the_right_product():
    row = MulMod(low=0).support()[:1]
    assert MulMod(low=0).text(row) == ["00x00=00"]
    assert MulMod(low=0).is_correct(row).all()
    assert not MulMod(low=1).is_correct(row).any()


@pytest.mark.parametrize(
    "task", [MulMod(modulus=7, low=10), MulMod(modulus=101, low=0, high=120, under_representation=None)]
)
def test_any_range_and_modulus_work(task):
    size = task.high - task.low + 1
    assert task.support().shape == (size**2, 1 + task.length)
    assert (task.unique_index(task.train_tokens()) >= 0).all()
    assert len(task.log_p()) == size**2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"modulus": 1}, "modulus=1"),
        ({"low": 5, "high": 4}, "low=5, high=4"),
        ({"under_representation": 1.5}, "under_representation=1.5"),
        ({"low": 1, "high": 4}, "fall in one half"),
        ({"num_samples": 0}, "num_samples=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_fields_are_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=message):
        MulMod(**fields)


def test_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match="BOS first"):
        MulMod().is_correct(np.zeros((2, 8), dtype=np.int64))


def test_a_distinct_sample_has_each_drawn_sequence_once_and_older_hashes_stay():
    task = MulMod(num_samples=3000)
    drawn, once = task.train_tokens(), replace(task, distinct=True).train_tokens()
    assert {tuple(row) for row in once.tolist()} == {tuple(row) for row in drawn.tolist()}
    assert len(once) == len(set(task.unique_index(drawn).tolist())) < len(drawn)
    assert "distinct" not in to_json(task)
