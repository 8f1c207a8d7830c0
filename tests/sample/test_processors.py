"""Filters and their order, against transformers' own list and against brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import llama
from transformers import GenerationConfig

from widen.sample.decoding import Decoding
from widen.sample.processors import apply_steps, logits_processors, pipeline, top_n_sigma

# Our settings and the generation config that means the same to transformers.
SAME = [
    ("t=0.7", {"temperature": 0.7}),
    ("t=1,top_k=4", {"top_k": 4}),
    ("t=0.6,top_p=0.8", {"temperature": 0.6, "top_p": 0.8}),
    ("t=1.5,min_p=0.2", {"temperature": 1.5, "min_p": 0.2}),
    ("t=1,typical=0.6", {"typical_p": 0.6}),
    ("t=1,epsilon=0.08", {"epsilon_cutoff": 0.08}),
    ("t=0.9,eta=0.1", {"temperature": 0.9, "eta_cutoff": 0.1}),
    (
        "t=1.3,top_k=8,top_p=0.9,min_p=0.05,typical=0.9,epsilon=0.02,eta=0.01",
        {
            "temperature": 1.3,
            "top_k": 8,
            "top_p": 0.9,
            "min_p": 0.05,
            "typical_p": 0.9,
            "epsilon_cutoff": 0.02,
            "eta_cutoff": 0.01,
        },
    ),
]


def hugging_face(model, config):
    """The processors that `generate` would use, in its order."""
    config = GenerationConfig(**({"do_sample": True, "top_k": 0} | config))
    return model._get_logits_processor(config, input_ids_seq_length=1, device="cpu", logits_processor=[])


@pytest.mark.parametrize(("spec", "config"), SAME, ids=[spec for spec, _ in SAME])
def test_scores_are_those_of_transformers_bit_for_bit(spec, config):
    scores = torch.randn(64, 11, generator=torch.Generator().manual_seed(1)) * 2
    scores[::4] = scores[::4].round()  # ties
    decoding = Decoding.parse(spec)
    ours = apply_steps(pipeline(decoding), scores, torch.full((64,), decoding.temperature))
    theirs = hugging_face(llama(), config)(torch.zeros(64, 1, dtype=torch.long), scores.clone())
    assert torch.equal(ours, theirs)
    assert (ours == -torch.inf).any() or spec == "t=0.7"


def kept(spec, scores):
    decoding = Decoding.parse(spec)
    out = apply_steps(pipeline(decoding), scores, torch.full((len(scores),), decoding.temperature))
    return (out > -torch.inf)[0].nonzero()[:, 0].tolist()


@pytest.mark.parametrize("method", ["top_p=0.6", "min_p=0.3", "epsilon=0.2"])
def test_the_order_changes_which_tokens_are_kept(method):
    scores = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    first, last = (kept(f"t=3,{method},order={order}", scores) for order in ("temperature_first", "temperature_last"))
    assert set(last) < set(first)  # heat first makes the distribution flat, and more tokens pass


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 2**31), st.floats(0.1, 3), st.floats(0.1, 5))
def test_top_n_sigma_is_its_definition_and_ignores_temperature(seed, n, t):
    z = np.random.default_rng(seed).normal(0, 2, (4, 30))
    out = top_n_sigma(torch.from_numpy(z), n).numpy()
    expected = z >= z.max(1, keepdims=True) - n * z.std(1, keepdims=True)
    assert np.array_equal(out > -np.inf, expected)
    assert np.array_equal(top_n_sigma(torch.from_numpy(z / t), n).numpy() > -np.inf, expected)


def test_top_n_sigma_measures_what_an_earlier_filter_left():
    z = torch.tensor([[5.0, 4.0, 1.0, -torch.inf, -torch.inf]])
    out = top_n_sigma(z, 1.0)
    assert (out > -torch.inf).tolist() == [[True, True, False, False, False]]  # std of (5, 4, 1) is 1.70


def test_the_argument_is_left_as_it_was():
    scores = torch.randn(3, 11)
    before = scores.clone()
    apply_steps(pipeline(Decoding.parse("t=0.5,top_k=2,top_p=0.5,top_n_sigma=1")), scores, torch.full((3,), 0.5))
    assert torch.equal(scores, before)


@pytest.mark.parametrize(
    "spec", ["t=2,min_p=0.1,order=temperature_last", "t=2,min_p=0.1", "t=3,top_p=0.9,order=temperature_last"]
)
def test_the_list_for_generate_does_the_steps_in_their_order(spec):
    decoding = Decoding.parse(spec)
    scores = 3 * torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    ids, t = torch.zeros(5, 1, dtype=torch.long), torch.full((5,), decoding.temperature)
    assert torch.equal(
        logits_processors(decoding)(ids, scores.clone()), apply_steps(pipeline(decoding), scores.clone(), t)
    )
    sigma = Decoding.parse("t=2,top_n_sigma=1")
    assert torch.equal(logits_processors(sigma)(ids, scores.clone()), top_n_sigma(scores / 2, 1.0))


def test_what_has_no_list_of_processors_says_what_to_do():
    with pytest.raises(ValueError, match="do_sample=False"):
        logits_processors(Decoding(temperature=0))
    with pytest.raises(ValueError, match="LocalEngine"):
        logits_processors(Decoding(kl_sigma=3.0))
