"""Sampling and exact scoring of the small Llama hold each other to account."""

import itertools

import numpy as np
import pytest
import torch

from widen.data.mulmod import MulMod
from widen.models.ancestral import sample
from widen.models.likelihood import log_likelihood, stacked_log_likelihood
from widen.models.tiny_llama import LlamaShape, TinyLlama
from widen.theory import exact_log_likelihood

TINY = LlamaShape(vocab=4, layers=1, dim=8, heads=2, hidden=8, init_std=0.6)
TEMPERATURES = [0.0, 0.1, 0.7, 1.0, 3.0, float("inf")]


def every_sequence(length: int) -> np.ndarray:
    return np.array([(3, *rest) for rest in itertools.product(range(4), repeat=length)])


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_probabilities_of_all_sequences_add_up_to_one(temperature):
    logq = log_likelihood(TinyLlama(TINY), every_sequence(3), [temperature])[0]
    assert np.exp(logq).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("shape", [LlamaShape(init_std=0.2), LlamaShape(layers=1, dim=16, heads=2, hidden=8)])
def test_scores_are_those_of_the_theory(shape):
    support = MulMod().support()[::37]
    models = [TinyLlama(shape, seed=seed) for seed in range(2)]
    scores = stacked_log_likelihood(torch.stack([m.flat() for m in models]), support, TEMPERATURES, shape=shape)
    for m, model in enumerate(models):
        with torch.no_grad():
            logits = model.double().logits(torch.from_numpy(support[:, :-1])).numpy()
        expected = exact_log_likelihood(logits, support[:, 1:], TEMPERATURES)
        np.testing.assert_allclose(scores[m], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_follow_the_exact_law(temperature):
    model, everything = TinyLlama(TINY), every_sequence(3)
    drawn = sample(model, 20_000, bos=3, length=3, temperature=temperature)
    code = drawn[:, 1:] @ np.array([16, 4, 1])
    counts = np.bincount(code, minlength=64)
    expected = 20_000 * np.exp(log_likelihood(model, everything, [temperature])[0])
    chi2 = ((counts - expected) ** 2 / expected).sum()
    # 63 degrees of freedom: standard deviation 11.2.
    assert chi2 < 63 + 5 * 11.2


def test_more_samples_begin_with_the_same_samples():
    model = TinyLlama(TINY)
    few, many = sample(model, 50, bos=3, length=4, seed=5), sample(model, 500, bos=3, length=4, seed=5)
    assert (many[:50] == few).all()
    assert (sample(model, 50, bos=3, length=4, seed=6) != few).any()


def test_temperature_zero_is_greedy_and_infinity_takes_every_token():
    model = TinyLlama(TINY)
    greedy = sample(model, 5, bos=3, length=4, temperature=0.0)
    assert len(np.unique(greedy, axis=0)) == 1
    with torch.no_grad():
        logits = model.logits(torch.from_numpy(greedy[:1, :-1]))[0]
    assert (logits.argmax(-1).numpy() == greedy[0, 1:]).all()
    wild = sample(model, 4000, bos=3, length=1, temperature=float("inf"))[:, 1]
    assert np.abs(np.bincount(wild, minlength=4) / 4000 - 0.25).max() < 0.04


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="temperature=-1"):
        sample(TinyLlama(TINY), 1, bos=3, length=1, temperature=-1.0)
    with pytest.raises(ValueError, match="num_samples=0"):
        sample(TinyLlama(TINY), 0, bos=3, length=1)
    with pytest.raises(ValueError, match="temperatures"):
        log_likelihood(TinyLlama(TINY), every_sequence(2), [-0.5])
