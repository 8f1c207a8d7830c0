"""One token from one uniform."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.sample.draw import BLOCK, choose, draw


def brute(scores, u):
    """The smallest token whose cumulative probability exceeds u, in float64, with its log-probability."""
    w = np.exp(scores.astype(np.float64) - scores.max())
    cumulative = np.cumsum(w)
    token = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
    return token, np.log(w[token] / cumulative[-1]), np.abs(cumulative / cumulative[-1] - u).min()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 13, BLOCK - 1, BLOCK, BLOCK + 1, 1000, 3 * BLOCK]))
def test_draw_is_the_inverse_of_the_cumulative_distribution(seed, vocab):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 4, (8, vocab)).astype(np.float32)
    scores[:, rng.random(vocab) < 0.3] = -np.inf
    scores[:, rng.integers(vocab)] = 0.0
    u = rng.random(8)
    token, logq = draw(torch.from_numpy(scores), torch.from_numpy(u), torch.arange(8))
    for row in range(8):
        expected, expected_logq, margin = brute(scores[row], u[row])
        if margin > 1e-6:  # nearer than that the float32 sums of the blocks may decide otherwise
            assert token[row] == expected
            assert logq[row] == pytest.approx(expected_logq, abs=1e-5)
        assert scores[row, token[row]] > -np.inf


@pytest.mark.parametrize("u", [0.0, 1e-300, 0.5, 1 - 2.0**-52])
def test_a_token_of_probability_zero_is_never_drawn_even_at_the_ends(u):
    scores = torch.full((1, 1000), -torch.inf)
    scores[0, [300, 700]] = torch.tensor([0.0, 0.0])
    token, _ = draw(scores, torch.tensor([u], dtype=torch.float64), torch.tensor([0]))
    assert int(token) == (300 if u < 0.5 else 700)


def test_a_token_too_unlikely_for_float32_is_not_drawn_even_at_zero():
    assert draw(torch.tensor([[-100.0, 0.0]]), torch.zeros(1, dtype=torch.float64), torch.tensor([0]))[0].tolist() == [
        1
    ]


def test_the_last_uniform_stays_inside_where_float32_sums_round_up():
    """u * total may exceed what the weights of the last block really sum to; the last token that has any weight takes it."""
    scores = torch.randn(400, 200, generator=torch.Generator().manual_seed(0))
    scores[:, 150:] = -torch.inf
    token, _ = draw(scores, torch.full((400,), 1 - 2.0**-52, dtype=torch.float64), torch.arange(400))
    assert set(token.tolist()) == {149}


def test_every_token_of_a_long_tail_is_hit_by_its_own_uniform():
    """In a float32 running sum the steps of such a tail are a few units in the last place, and tokens swallow one another."""
    vocab = 131_071
    scores = torch.zeros(1, vocab)
    scores[0, 0] = np.log(vocab)  # token 0 has half the mass, the others share the rest
    tokens = np.random.default_rng(0).integers(1, vocab, 60)
    u = (1 + (tokens - 0.5) / vocab) / (1 + (vocab - 1) / vocab)
    assert draw(scores, torch.from_numpy(u), torch.zeros(60, dtype=torch.long))[0].tolist() == tokens.tolist()


def test_greedy_takes_the_first_of_the_likeliest_and_reports_the_models_own_probability():
    logits = torch.tensor([[0.0, 2.0, 2.0], [3.0, 0.0, 0.0]])
    token, logq, sampler = choose(logits, None, None, torch.tensor([0, 1, 1]))
    assert token.tolist() == [1, 0, 0]
    assert logq.tolist() == pytest.approx(logits.log_softmax(-1)[[0, 1, 1], [1, 0, 0]].tolist(), abs=1e-6)
    assert sampler.tolist() == [0, 0, 0]


def test_both_log_probabilities_are_reported():
    logits, scores = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[-torch.inf, 2.0, 4.0]])
    token, logq, sampler = choose(logits, scores, torch.tensor([0.999], dtype=torch.float64), torch.tensor([0]))
    assert int(token) == 2
    assert float(logq) == pytest.approx(float(logits.log_softmax(-1)[0, 2]))
    assert float(sampler) == pytest.approx(float(scores.log_softmax(-1)[0, 2]))
