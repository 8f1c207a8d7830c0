"""KL-guided temperature: the formula, and the two streams of a model."""

import math

import numpy as np
import pytest
import torch
from small_models import Words, llama, next_logits, softmax

from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.local import LocalEngine
from widen.sample.kl_guided import MIN_TEMPERATURE, guided_temperature
from widen.sample.philox import key, uniforms
from widen.sample.prompts import Prompt

PROMPTS = [Prompt(text="w3 w4 w5 w6", id="a", without="w5 w6"), Prompt(text="w7", id="b", without="")]


def drawn(spec, *, num=6, batch=64, prompts=PROMPTS, max_tokens=10):
    settings = Settings(decoding=Decoding.parse(spec), max_tokens=max_tokens)
    engine = LocalEngine(llama(), Words(), batch=batch)
    return {(s.prompt, s.index): s for d in engine.draw(prompts, [settings], num=num) for s in d.samples}


def test_the_temperature_is_the_papers_formula():
    rng = np.random.default_rng(0)
    with_, without = rng.normal(0, 2, (2, 5, 9))
    p, r = (np.apply_along_axis(softmax, 1, z) for z in (with_, without))
    kl = (p * np.log(p / r)).sum(1)
    found = guided_temperature(torch.from_numpy(with_), torch.from_numpy(without), temperature=0.8, sigma=1.5)
    assert found.tolist() == pytest.approx((0.8 * 2 ** (-kl / 1.5)).tolist(), rel=1e-12)


def test_sigma_is_a_half_life_and_the_temperature_has_a_floor():
    with_, without = torch.tensor([[0.0, -torch.inf]]), torch.tensor([[0.0, math.log(3.0)]])  # KL = log 4
    half = guided_temperature(with_, without, temperature=1.0, sigma=math.log(4.0))
    assert float(half) == pytest.approx(0.5)
    assert float(guided_temperature(with_, without, temperature=1.0, sigma=1e-3)) == pytest.approx(MIN_TEMPERATURE)
    impossible = torch.tensor([[-torch.inf, 0.0]])
    assert float(guided_temperature(with_, impossible, temperature=1.0, sigma=5.0)) == pytest.approx(MIN_TEMPERATURE)


@pytest.mark.parametrize("temperature", ["1", "0.7"])
@pytest.mark.parametrize("sigma", ["inf", "1e30"])
def test_an_infinite_sigma_is_plain_sampling_token_for_token(sigma, temperature):
    plain, guided = drawn(f"t={temperature}"), drawn(f"t={temperature},kl_sigma={sigma}")
    assert {at: s.ids for at, s in plain.items()} == {at: s.ids for at, s in guided.items()}
    assert [s.sampler for s in plain.values()] == [s.sampler for s in guided.values()]


def test_a_small_sigma_is_nearly_greedy_where_the_prompt_matters():
    greedy, guided = drawn("t=0"), drawn("t=1,kl_sigma=1e-6")
    assert [s.ids for s in guided.values()] == [s.ids for s in greedy.values()]


@pytest.mark.parametrize(("without", "context"), [("bos", {"a": [0], "b": [0]}), ("field", {"a": [5, 6], "b": [0]})])
def test_each_token_is_drawn_at_the_temperature_of_its_two_streams(without, context):
    """Replayed by plain forward passes: with the prompt, and with what stands in its place."""
    model = llama()
    samples = drawn(f"t=1,kl_sigma=0.7,without={without}", num=3, max_tokens=6)
    for (prompt, index), sample in samples.items():
        ids = [int(w[1:]) for w in next(p.text for p in PROMPTS if p.id == prompt).split()]
        u = uniforms(np.array([key(0, prompt, 1.0)], np.uint64), np.array([index]), 6)[0]
        for position, token in enumerate(sample.ids):
            so_far = list(sample.ids[:position])
            z, z_without = (next_logits(model, [start + so_far])[0] for start in (ids, context[prompt]))
            p, r = softmax(z), softmax(z_without)
            t = 2 ** (-(p * np.log(p / r)).sum() / 0.7)
            cumulative = np.cumsum(softmax(z / t))
            assert np.abs(cumulative - u[position]).min() > 1e-5, "too near a boundary to replay: choose another seed"
            assert token == int(np.searchsorted(cumulative, u[position], side="right"))


def test_a_prompt_without_its_second_text_is_refused():
    engine = LocalEngine(llama(), Words())
    settings = Settings(decoding=Decoding.parse("kl_sigma=1,without=field"))
    with pytest.raises(ValueError, match="prompt 'c' has no 'without' text"):
        engine.check([settings], [Prompt(text="w3", id="c")])
