"""The engine of the small Llama: the right law, and the engine's own random numbers."""

from collections import Counter

import numpy as np
import pytest
import torch
from small_models import chi_square, softmax

from widen.data.mulmod import BOS, MulMod
from widen.models.tiny_llama import LlamaShape, TinyLlama
from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.small import UNPROMPTED, MulModEngine
from widen.sample.philox import key, uniforms
from widen.sample.prompts import Prompt

TASK = MulMod(modulus=7, low=1, high=9, under_representation=None)  # a x b = c in single digits: 5 tokens


def model(std=0.5):
    return TinyLlama(LlamaShape(layers=2, dim=16, heads=2, hidden=24, init_std=std), seed=1)


def drawn(spec, *, num, prompts=(UNPROMPTED,), batch=100_000, max_tokens=256, seed=0):
    settings = Settings(decoding=Decoding.parse(spec), max_tokens=max_tokens, seed=seed)
    engine = MulModEngine(model(), TASK, batch=batch)
    engine.check([settings], prompts)
    return [s for d in engine.draw(prompts, [settings], num=num) for s in d.samples]


def law_of(prompt, length, next_law):
    law = {(): 1.0}
    for _ in range(length):
        rows = torch.tensor([[*prompt, *prefix] for prefix in law])
        logits = model().logits(rows)[:, -1].double().detach().numpy()
        law = {
            (*prefix, t): p * q
            for (prefix, p), z in zip(law.items(), logits, strict=True)
            for t, q in enumerate(next_law(z))
            if q
        }
    return law


@pytest.mark.parametrize(
    ("spec", "next_law"),
    [
        ("t=1", softmax),
        ("t=0.6", lambda z: softmax(z / 0.6)),
        ("t=1,top_k=4", lambda z: softmax(np.where(z >= np.sort(z)[-4], z, -np.inf))),
    ],
)
def test_samples_follow_the_exact_law(spec, next_law):
    samples = drawn(spec, num=5000, max_tokens=3)
    law = law_of([BOS], 3, next_law)
    assert chi_square(law, Counter(s.ids for s in samples)) > 1e-3
    for sample in samples[:100]:
        assert sample.sampler == pytest.approx(np.log(law[sample.ids]), abs=1e-4)
        assert sample.finish == "length"


def test_whole_sequences_carry_their_exact_log_likelihood():
    from widen.models.likelihood import log_likelihood

    samples = drawn("t=0.5", num=300)
    assert {s.num_tokens for s in samples} == {TASK.length}
    assert {s.finish for s in samples} == {"stop"}
    tokens = np.array([[BOS, *s.ids] for s in samples])
    for column, value in ((1.0, [s.logq for s in samples]), (0.5, [s.sampler for s in samples])):
        found = log_likelihood(model(), tokens, [column])[0]
        assert np.allclose(found, value, atol=1e-4)
    assert [s.text for s in samples] == TASK.text(tokens)


def test_each_token_is_drawn_with_the_uniform_of_its_address():
    for sample in drawn("t=1", num=40)[::7]:
        u = uniforms(np.array([key(0, "bos", 1.0)], np.uint64), np.array([sample.index]), TASK.length)[0]
        for position, token in enumerate(sample.ids):
            z = model().logits(torch.tensor([[BOS, *sample.ids[:position]]]))[0, -1].double().detach().numpy()
            cumulative = np.cumsum(softmax(z))
            assert np.abs(cumulative - u[position]).min() > 1e-6
            assert token == np.searchsorted(cumulative, u[position], side="right")


def test_batches_prompts_and_restarts_change_nothing():
    whole = drawn("t=1", num=500)
    assert [s.ids for s in drawn("t=1", num=500, batch=64)] == [s.ids for s in whole]
    assert [s.ids for s in drawn("t=1", num=200)] == [s.ids for s in whole[:200]]
    prompts = [Prompt(text="3x", id="p"), UNPROMPTED]
    both = drawn("t=1", num=500, prompts=prompts)
    assert [s.ids for s in both if s.prompt == "bos"] == [s.ids for s in whole]
    prompted = [s for s in both if s.prompt == "p"]
    assert {(s.prompt_tokens, s.num_tokens) for s in prompted} == {(3, TASK.length - 2)}
    assert chi_square(law_of([BOS, 3, 10], TASK.length - 2, softmax), Counter(s.ids for s in prompted)) > 1e-3


def test_greedy_is_the_likeliest_path():
    (sample,) = drawn("t=0", num=1)
    ids = [BOS]
    for token in sample.ids:
        assert int(model().logits(torch.tensor([ids]))[0, -1].argmax()) == token
        ids.append(token)


@pytest.mark.parametrize(
    ("spec", "prompt", "words"),
    [
        ("kl_sigma=1", UNPROMPTED, "kl_sigma needs a prompt"),
        ("t=1", Prompt(text="3+4"), "'\\+' is none of the task's signs"),
        ("t=1", Prompt(ids=(3, 4)), "needs BOS"),
        ("t=1", Prompt(ids=()), "needs BOS"),
        ("t=1", Prompt(text="3x4=55"), "at most 4 tokens after it"),
        ("t=1", Prompt(ids=(BOS, 99)), "no token 99"),
    ],
)
def test_what_the_task_has_no_place_for_is_refused(spec, prompt, words):
    with pytest.raises(ValueError, match=words):
        drawn(spec, num=1, prompts=[prompt])
