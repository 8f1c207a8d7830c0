"""Exact scores of the integer task: against brute force on a small modulus, and against the paper's sampled algorithm."""

import itertools

import numpy as np
import pytest
import torch

from widen.data import MulMod
from widen.metrics.exact_points import exact_points
from widen.models import LlamaShape, TinyLlama, log_likelihood
from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.small import UNPROMPTED, MulModEngine
from widen.theory import tempered
from widen.theory.curve import slopes

TASK = MulMod(modulus=3, low=1, high=3, under_representation=None)  # 9 sequences of 5 target tokens: a x b = c
SHAPE = LlamaShape(layers=1, dim=8, heads=2, hidden=8, init_std=0.6)


@pytest.fixture(scope="module")
def model():
    return TinyLlama(SHAPE, seed=3).double()


def conditional(model, prefix, temperature):
    """Q^t of the next token, straight from the definition."""
    hidden = model(torch.tensor([prefix]))[:, -1]
    q = torch.softmax(hidden @ model.head.T, -1)[0].detach().numpy()
    return tempered(q / q.sum(), temperature)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_likelihoods_and_scores_match_a_walk_token_by_token(model, temperature):
    support = TASK.support()
    by_hand = np.array(
        [
            np.prod([conditional(model, row[:i].tolist(), temperature)[row[i]] for i in range(1, len(row))])
            for row in support
        ]
    )
    log_q = log_likelihood(model, support, [temperature])
    np.testing.assert_allclose(np.exp(log_q[0]), by_hand, rtol=1e-10)
    (point,) = exact_points(TASK.log_p(), log_q, temperatures=[temperature], num_samples=7)
    assert point.precision == pytest.approx(by_hand.sum(), rel=1e-10)
    assert point.recall == pytest.approx(np.mean(1 - (1 - by_hand) ** 7), rel=1e-10)
    p = np.full(9, 1 / 9)
    for lam, precision, recall in zip(point.lams, point.precision_at, point.recall_at, strict=True):
        assert precision == pytest.approx(np.minimum(lam * p, by_hand).sum(), rel=1e-9)
        assert recall == pytest.approx(np.minimum(lam * p, by_hand).sum() / lam, rel=1e-9)
    assert point.curve_precision[-1] == pytest.approx(point.precision)
    assert point.curve_recall[0] == pytest.approx(1, rel=1e-12)  # a softmax has full support


def test_all_sequences_together_have_mass_one(model):
    """Over a vocabulary of 13 and three tokens: 2,197 sequences, each scored as if it were a support."""
    everything = np.array([[12, *tokens] for tokens in itertools.product(range(13), repeat=3)])
    assert np.exp(log_likelihood(model, everything, [1.7])[0]).sum() == pytest.approx(1.0, rel=1e-9)


def test_the_sampled_algorithm_agrees_with_its_expectation(model):
    """Fixed seeds; the tolerance is four times the sampling error."""
    n, seeds, temperature = 1000, 4, 0.5
    log_q = log_likelihood(model, TASK.support(), [temperature])
    (exact,) = exact_points(TASK.log_p(), log_q, temperatures=[temperature], num_samples=n)
    right, seen = 0, []
    for seed in range(seeds):
        settings = Settings(decoding=Decoding.parse(f"t={temperature:g}"), seed=seed)
        (drawn,) = MulModEngine(model, TASK).draw([UNPROMPTED], [settings], num=n)
        index = TASK.unique_index(np.array([(12, *sample.ids) for sample in drawn.samples]))
        right += (index >= 0).sum()
        seen.append(len(set(index[index >= 0])) / 9)
    assert right / (seeds * n) == pytest.approx(exact.precision, abs=4 * np.sqrt(0.25 / (seeds * n)))
    chance = -np.expm1(n * np.log1p(-np.exp(log_q[0])))
    assert np.mean(seen) == pytest.approx(
        exact.recall, abs=4 * np.sqrt((chance * (1 - chance)).sum() / 81 / seeds) + 1e-3
    )


def test_the_reference_itself_scores_its_ceiling():
    log_p = TASK.log_p()
    (point,) = exact_points(log_p, log_p[None], temperatures=[1.0], num_samples=9)
    assert point.precision == pytest.approx(1)
    assert point.recall == point.recall_ceiling == pytest.approx(1 - (8 / 9) ** 9)
    assert point.auc == pytest.approx(1)


def test_a_curve_is_kept_at_slopes_from_0_to_inf():
    (point,) = exact_points(TASK.log_p(), TASK.log_p()[None] - 1.0, temperatures=[1.0])
    lam = slopes(65)
    assert (lam[0], lam[-1]) == (0.0, np.inf)
    assert lam[32] == pytest.approx(1.0)
    assert (np.diff(lam[:-1]) > 0).all()
    assert point.curve_precision == pytest.approx(np.minimum(lam, np.exp(-1.0)))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 temperatures and 9 sequences"):
        exact_points(TASK.log_p(), np.zeros((1, 9)), temperatures=[1.0, 2.0])
