"""The local engine: the right law, the right tokens, the same samples whatever the batch, the order and the restarts."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import END, VOCAB, Words, chi_square, exact_law, llama, next_logits, of_kind, softmax

from widen.sample.decoding import Decoding, Settings
from widen.sample.draw import draw
from widen.sample.engines.local import LocalEngine
from widen.sample.philox import key, uniforms
from widen.sample.processors import apply_steps, pipeline
from widen.sample.prompts import Prompt
from widen.sample.shared_prefixes import FEW

PROMPTS = [Prompt(text=t) for t in ("w3 w4 w5", "w6", "w7 w8 w9 w2 w3", "w2 w2 w2", "")]


def setting(spec, max_tokens=8, seed=0):
    return Settings(decoding=Decoding.parse(spec), max_tokens=max_tokens, seed=seed)


def samples(engine, settings, *, num, prompts=PROMPTS, have=None):
    found = {}
    for drawn in engine.draw(prompts, settings, num=num, **({} if have is None else {"have": have})):
        for sample in drawn.samples:
            assert (drawn.settings.name, sample.prompt, sample.index) not in found
            found[drawn.settings.name, sample.prompt, sample.index] = sample
    return found


# Every method, as an independent function from float64 logits to probabilities.
def _top_k(z, k):
    return softmax(np.where(z >= np.sort(z)[-k], z, -np.inf))


def _top_p(z, p):
    order = np.argsort(-z)
    before = np.cumsum(softmax(z)[order]) - softmax(z)[order]
    keep = order[before < p]
    return softmax(np.where(np.isin(np.arange(len(z)), keep), z, -np.inf))


def _typical(z, mass):
    q = softmax(z)
    surprise = np.abs(-np.log(q) + (q * np.log(q)).sum())
    order = np.argsort(surprise)
    keep = order[: np.searchsorted(np.cumsum(q[order]), mass) + 1]
    return softmax(np.where(np.isin(np.arange(len(z)), keep), z, -np.inf))


def _floor(z, floor):
    q = softmax(z)
    return softmax(np.where((q >= floor) | (q == q.max()), z, -np.inf))


def _eta(z, epsilon):
    q = softmax(z)
    return _floor(z, min(epsilon, np.sqrt(epsilon) * np.exp((q * np.log(q)).sum())))


LAWS = {
    "t=1": softmax,
    "t=0.6": lambda z: softmax(z / 0.6),
    "t=1,top_k=3": lambda z: _top_k(z, 3),
    "t=1.5,top_p=0.7": lambda z: _top_p(z / 1.5, 0.7),
    "t=1.5,top_p=0.7,order=temperature_last": lambda z: softmax(np.log(np.maximum(_top_p(z, 0.7), 1e-300)) / 1.5),
    "t=1,min_p=0.2": lambda z: _floor(z, 0.2 * softmax(z).max()),
    "t=1,typical=0.5": lambda z: _typical(z, 0.5),
    "t=1,epsilon=0.1": lambda z: _floor(z, 0.1),
    "t=1,eta=0.3": lambda z: _eta(z, 0.3),
    "t=1,top_n_sigma=1": lambda z: softmax(np.where(z >= z.max() - z.std(), z, -np.inf)),
}


@pytest.mark.parametrize("spec", LAWS)
def test_samples_follow_the_exact_law(spec):
    """1,500 samples of up to 3 tokens against every continuation's probability, by chi-square at a fixed seed."""
    model = llama()
    engine = LocalEngine(model, Words(), batch=1500)
    drawn = samples(engine, [setting(spec, max_tokens=3)], num=1500, prompts=PROMPTS[:1])
    law = exact_law(model, [3, 4, 5], 3, LAWS[spec])
    law = {ids: p for ids, p in law.items() if p > 1e-200}
    assert sum(law.values()) == pytest.approx(1)
    assert chi_square(law, Counter(s.ids for s in drawn.values())) > 1e-3
    for sample in list(drawn.values())[:100]:
        assert sample.sampler == pytest.approx(np.log(law[sample.ids]), abs=1e-4)


def test_the_chi_square_test_sees_a_wrong_temperature():
    """The test of the test: samples at t = 1 are not those of t = 0.9."""
    model = llama()
    drawn = samples(
        LocalEngine(model, Words(), batch=3000), [setting("t=1", max_tokens=3)], num=3000, prompts=PROMPTS[:1]
    )
    wrong = exact_law(model, [3, 4, 5], 3, lambda z: softmax(z / 0.9))
    assert chi_square(wrong, Counter(s.ids for s in drawn.values())) < 1e-6


@pytest.mark.parametrize("spec", ["t=1", "t=1.3,top_k=4,order=temperature_last"])
def test_tokens_are_those_of_full_forward_passes_under_transformers_processors(spec):
    """Without cache, batch, padding or sharing, the same uniforms give the same tokens."""
    model, chosen = llama(), setting(spec)
    for (_, prompt, index), sample in samples(LocalEngine(model, Words(), batch=7), [chosen], num=2).items():
        ids = [int(w[1:]) for w in next(p.text for p in PROMPTS if p.id == prompt).split()] or [0]
        u = uniforms(np.array([key(0, prompt, chosen.decoding.temperature)], np.uint64), np.array([index]), 8)
        logq = 0.0
        for position, token in enumerate(sample.ids):
            logits = torch.from_numpy(next_logits(model, [ids + list(sample.ids[:position])])).float()
            scores = apply_steps(pipeline(chosen.decoding), logits, torch.tensor([chosen.decoding.temperature]))
            assert int(draw(scores, torch.from_numpy(u[:, position]), torch.tensor([0]))[0]) == token
            logq += float(logits.log_softmax(-1)[0, token])
        assert sample.logq == pytest.approx(logq, abs=1e-4)
        assert sample.finish == ("stop" if sample.ids[-1] == END else "length")
        assert sample.num_tokens == len(sample.ids) <= 8
        assert sample.prompt_tokens == len(ids)


ARCHITECTURES = {
    "gpt2": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "mistral": {"sliding_window": 6, "num_key_value_heads": 2, "head_dim": 8},
    "gemma2": {"sliding_window": 6, "num_key_value_heads": 2, "head_dim": 8},
    "bloom": {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
}
SIZES = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_greedy_is_generates_greedy_for_other_architectures(kind):
    """Learned, rotary and relative positions, sliding windows, own attention; prompts of unlike lengths in one batch."""
    sizes = ARCHITECTURES[kind] if "vocab_size" in ARCHITECTURES[kind] else SIZES | ARCHITECTURES[kind]
    model = of_kind(kind, **sizes, bos_token_id=0, eos_token_id=1, pad_token_id=1, initializer_range=0.3)
    before = model.config._attn_implementation
    rng = np.random.default_rng(0)
    prompts = [Prompt(id=str(n), ids=tuple(rng.integers(2, 99, n).tolist())) for n in (3, 11, 7)]
    found = samples(LocalEngine(model, Words(), batch=6), [setting("t=0", max_tokens=14)], num=2, prompts=prompts)
    for prompt in prompts:
        ids = torch.tensor([prompt.ids])
        with torch.inference_mode():
            theirs = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=14)
        for index in range(2):
            assert (
                list(found["greedy-" + setting("t=0", max_tokens=14).hash, prompt.id, index].ids)
                == theirs[0, len(prompt.ids) :].tolist()
            )
    assert model.config._attn_implementation == before


def test_each_prompt_is_read_once_for_all_its_samples_and_settings():
    model = llama()
    read = []
    model.register_forward_pre_hook(lambda _, args, kwargs: read.append(kwargs["input_ids"].shape), with_kwargs=True)
    engine = LocalEngine(model, Words(), batch=10)
    drawn = samples(engine, [setting("t=0.5", 4), setting("t=1,top_p=0.9", 4)], num=15)
    assert len(drawn) == 2 * 15 * len(PROMPTS)
    assert engine.prefilled == len(PROMPTS)
    long = [shape[0] for shape in read if shape[1] > 1]  # a pass over more than one token can only be a prompt's
    assert sum(long) == sum(len(p.text.split()) > 1 for p in PROMPTS)


def test_order_of_prompts_and_settings_changes_nothing():
    settings = [setting("t=0.7"), setting("t=1,top_p=0.9")]
    one = samples(LocalEngine(llama(), Words(), batch=12), settings, num=5)
    other = samples(LocalEngine(llama(), Words(), batch=12), settings[::-1], num=5, prompts=PROMPTS[::-1])
    assert one == other


def test_a_restart_gives_the_same_samples_to_the_last_bit():
    """Whatever is on disk already: a batch with a sample missing is drawn whole, with the same rows in the same places."""
    settings = [setting("t=0.7", 5), setting("t=1,top_p=0.9", 5)]
    whole = samples(LocalEngine(llama(), Words(), batch=12), settings, num=7)
    rng = np.random.default_rng(0)
    there = {at for at in whole if rng.random() < 0.6}
    again = samples(
        LocalEngine(llama(), Words(), batch=12), settings, num=7, have=lambda s, p, i: (s.name, p, i) in there
    )
    assert set(again) >= set(whole) - there
    assert all(again[at] == whole[at] for at in again)  # log-probabilities included
    idle = LocalEngine(llama(), Words(), batch=12)
    assert samples(idle, settings, num=7, have=lambda s, p, i: True) == {}
    assert idle.prefilled == 0


def test_more_samples_later_leave_the_first_ones_as_they_were():
    few = samples(LocalEngine(llama(), Words(), batch=64), [setting("t=1")], num=3)
    many = samples(LocalEngine(llama(), Words(), batch=64), [setting("t=1")], num=9)
    assert {at: s.ids for at, s in many.items() if at[2] < 3} == {at: s.ids for at, s in few.items()}


def test_across_batch_shapes_samples_differ_only_where_the_logits_do():
    """In float64 the rounding of a batch shape is far below any boundary: all equal. In bfloat16 some differ, and not before a near tie."""
    for dtype, most in ((torch.float64, 0.0), (torch.bfloat16, 0.5)):
        model = llama().to(dtype)
        one, other = (
            samples(LocalEngine(model, Words(), batch=batch), [setting("t=1", 12)], num=20) for batch in (100, 17)
        )
        share = np.mean([one[at].ids != other[at].ids for at in one])
        assert share <= most
        print(f"{dtype}: {share:.1%} of {len(one)} samples differ between batches of 100 and 17")


def test_rows_that_ended_leave_the_batch_and_change_nothing():
    """An end token that is drawn often: the batch shrinks many times, and every sample is what it is alone."""
    model = llama()
    sizes = forward_sizes(model)
    together = samples(LocalEngine(model, Words(), batch=500), [setting("t=3", 30)], num=60)
    assert min(sizes[1:]) < 100 < max(sizes)
    assert len({s.num_tokens for s in together.values()}) > 10
    alone = samples(LocalEngine(model, Words(), batch=1), [setting("t=3", 30)], num=2)
    assert {at: s.ids for at, s in alone.items()} == {at: together[at].ids for at in alone}
    assert all(alone[at].logq == pytest.approx(together[at].logq, abs=1e-4) for at in alone)


def forward_sizes(model):
    """Rows of every forward pass, as they come."""
    sizes = []
    model.register_forward_pre_hook(lambda _, a, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True)
    return sizes


def test_every_distinct_prefix_is_forwarded_once():
    """Rows of a forward pass are the distinct prefixes of the samples that are still going, over all prompts."""
    model = llama()
    sizes = forward_sizes(model)
    drawn = samples(LocalEngine(model, Words(), batch=500), [setting("t=0.5", 12)], num=50)
    distinct = [
        len({(s.prompt, s.ids[:n]) for s in drawn.values() if len(s.ids) > n}) for n in range(12)
    ]  # a sample of n tokens whose last is the end token is forwarded no more
    assert sizes[0] == distinct[0] == len(PROMPTS)
    assert sum(sizes) < 0.5 * sum(s.num_tokens for s in drawn.values())
    few = [rows for rows, least in zip(sizes, distinct, strict=False) if not least <= rows <= least / (1 - FEW) + 1]
    assert few == []


@pytest.mark.parametrize("spec", ["t=0.5,top_p=0.9", "t=0.7,kl_sigma=2"])
def test_shared_prefixes_give_the_samples_of_rows_that_share_nothing(spec):
    """With a batch of one sample nothing can be shared; in float64 both draw the same tokens."""
    model = llama().double()
    shared, alone = (
        samples(LocalEngine(model, Words(), batch=batch), [setting(spec, 8)], num=6, prompts=PROMPTS[:2])
        for batch in (12, 1)
    )
    assert len({s.ids for s in shared.values()}) > 3
    assert {at: s.ids for at, s in shared.items()} == {at: s.ids for at, s in alone.items()}
    for at, sample in shared.items():
        assert sample.logq == pytest.approx(alone[at].logq, abs=1e-5)
        assert sample.sampler == pytest.approx(alone[at].sampler, abs=1e-5)


def test_without_a_tokenizer_prompts_are_ids_and_texts_are_refused_before_the_first_forward_pass():
    model = llama()
    sizes = forward_sizes(model)
    engine = LocalEngine(model, None)
    for call in (engine.check, lambda s, p: list(engine.draw(p, s, num=1))):
        with pytest.raises(
            ValueError, match=r"tokenizer=None, but prompt .* is a text: give a tokenizer, or Prompt\(ids=...\)"
        ):
            call([setting("t=1")], PROMPTS[:1])
    assert sizes == []
    prompts = [Prompt(ids=(3, 4, 5), id=PROMPTS[0].id)]
    engine.check([setting("t=1")], prompts)
    found = samples(engine, [setting("t=1")], num=3, prompts=prompts)
    with_text = samples(LocalEngine(llama(), Words()), [setting("t=1")], num=3, prompts=PROMPTS[:1])
    assert {at: s.ids for at, s in found.items()} == {at: s.ids for at, s in with_text.items()}
    assert {s.text for s in found.values()} == {""}
    assert engine.identity().notes == ("no tokenizer: samples have token ids and no text",)


def test_seeds_indices_and_prompts_have_numbers_of_their_own():
    drawn = samples(LocalEngine(llama(), Words(), batch=99), [setting("t=5", 12), setting("t=5", 12, seed=1)], num=20)
    full = [s.ids for s in drawn.values() if s.num_tokens > 6]  # two of the short ones may well be equal
    assert len(set(full)) == len(full) > 50


def test_what_cannot_work_is_refused_before_the_first_sample():
    engine = LocalEngine(llama(), Words())
    with pytest.raises(ValueError, match="has 3 tokens; with max_tokens=126 that is 129, and the model takes 128"):
        engine.check([setting("t=1", 126)], PROMPTS[:1])
    with pytest.raises(ValueError, match="batch=0"):
        LocalEngine(llama(), Words(), batch=0)
    mamba = of_kind("mamba", vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(ValueError, match="keeps no key-value cache"):
        samples(LocalEngine(mamba, Words()), [setting("t=1")], num=1)


def test_another_checkpoint_has_another_fingerprint():
    model = llama()
    one = LocalEngine(model, Words()).identity()
    with torch.no_grad():
        model.lm_head.weight.mul_(1.001)
    assert LocalEngine(model, Words()).identity().model != one.model
    assert LocalEngine(llama(), Words(), batch=3).identity().model == one.model
    assert replace(one, details={}) == replace(one, details={})
