"""The torch twin of the exact likelihood under decodings: the same numbers as numpy, and the law that the engine samples."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from widen.data.mulmod import BOS, MulMod
from widen.models import likelihood
from widen.models.likelihood import decoded_log_likelihood, decoded_log_probabilities, log_likelihood_from_logits
from widen.models.tiny_llama import LlamaShape, TinyLlama
from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.small import UNPROMPTED, MulModEngine
from widen.sample.processors import apply_steps, pipeline
from widen.theory import decoded_log, exact_log_likelihood

TINY = LlamaShape(vocab=4, layers=1, dim=8, heads=2, hidden=8, init_std=0.6)
SPECS = [
    "t=0",
    "t=0.5",
    "t=2,min_p=0.2,order=temperature_last",
    "t=2,min_p=0.2",
    "t=3,top_p=0.8,order=temperature_last",
    "t=0.7,top_p=0.8",
    "t=2,min_p=1",
    "t=1,epsilon=0.2",
    "t=2,top_k=2,top_n_sigma=1.5",
    "t=2,top_p=0.9,min_p=0.1,order=min_p>temperature>top_p",
]


def everything(length):
    return np.array([(3, *rest) for rest in itertools.product(range(4), repeat=length)])


def test_the_twin_gives_the_numbers_of_the_theory_in_every_chunk():
    model, tokens = TinyLlama(TINY).double(), everything(3)
    with torch.no_grad():
        logits = model.logits(torch.from_numpy(tokens[:, :-1])).numpy()
    decodings = [Decoding.parse(spec).exact_steps for spec in SPECS] + [float("inf")]
    expected = exact_log_likelihood(logits, tokens[:, 1:], decodings)
    for chunk in (7, 1024):
        found = decoded_log_likelihood(model.logits, tokens, decodings, chunk=chunk)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0, rtol=1e-10)
    mask = np.arange(3) < np.random.default_rng(0).integers(1, 4, size=(64, 1))
    np.testing.assert_allclose(
        decoded_log_likelihood(model.logits, tokens, decodings, mask=mask, chunk=10),
        exact_log_likelihood(logits, tokens[:, 1:], decodings, mask=mask),
        rtol=1e-11,
        atol=1e-11,
    )
    assert decoded_log_likelihood(model.logits, tokens, 1.0).shape == (64,)


STEPS = {
    "temperature": (0.0, 0.3, 2.0, 10.0, float("inf")),
    "top_p": (1e-17, 0.31, 0.913, 1.0),
    "min_p": (1e-6, 0.051, 0.4, 1.0),
    "epsilon": (1e-8, 0.013, 0.2),
    "top_k": (1, 3, 40, 2000),
    "top_n_sigma": (0.1, 1.3, 4.0),
}


def logits_of_prefixes(tokens, vocab, kind, seed):
    """Logits [S, L, V] that depend on the prefix alone."""
    rows = {}
    for row, at in np.ndindex(len(tokens), tokens.shape[1] - 1):
        prefix = tuple(tokens[row, : at + 1].tolist())
        if prefix not in rows:
            rng = np.random.default_rng([seed, *prefix])
            z = rng.normal(size=vocab) * rng.choice([0.3, 2.0, 8.0])
            ties = {"plain": z, "ties": np.round(z), "equal": np.zeros(vocab), "off": np.where(z < 0, -np.inf, z)}
            rows[prefix] = ties[kind]
            rows[prefix][0] = 0.0  # with "off", a row may have no other
        yield row, at, rows[prefix]


@pytest.mark.parametrize("kind", ["plain", "ties", "equal", "off"])
@pytest.mark.parametrize("vocab", [2, 5, 300])
def test_shared_prefixes_few_sorted_tokens_and_slices_change_no_number(vocab, kind, monkeypatch):
    """Many sequences with the same prefixes, ties at every cut-off, prompts and padding outside the mask, slices of few rows."""
    rng = np.random.default_rng(vocab)
    for seed in range(6):
        tokens = rng.integers(0, min(vocab, 3 if seed % 2 else vocab), size=(30, 5))
        tokens[:, :2] = tokens[0, :2]
        logits = np.empty((30, 4, vocab))
        for row, at, z in logits_of_prefixes(tokens, vocab, kind, seed):
            logits[row, at] = z
        length = rng.integers(0, 5, size=(30, 1))
        mask = (None, (np.arange(4) > 0) & (np.arange(4) < length), rng.random((30, 4)) < 0.6)[seed % 3]
        names = [rng.permutation(list(STEPS))[: rng.integers(0, 4)] for _ in range(12)]
        decodings = [tuple((str(name), float(rng.choice(STEPS[name]))) for name in some) for some in names]
        expected = exact_log_likelihood(logits, tokens[:, 1:], decodings, mask=mask)
        for rows in (1, 7, 1 << 24):
            monkeypatch.setattr(likelihood, "SLICE", rows * vocab)
            found = log_likelihood_from_logits(torch.from_numpy(logits), tokens, decodings, mask=mask)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("spec", SPECS[1:])
def test_steps_keep_the_tokens_that_the_sampler_keeps(spec):
    """Against the processors that samples are drawn through, ties included."""
    decoding = Decoding.parse(spec)
    rng = np.random.default_rng(5)
    z = np.concatenate([rng.normal(size=(200, 9)) * 2, rng.integers(-2, 3, size=(200, 9))])
    z[::7, 3] = -np.inf
    scores = torch.from_numpy(z)
    temperature = torch.full((len(z),), decoding.temperature, dtype=torch.float64)
    sampled = apply_steps(pipeline(decoding), scores, temperature).log_softmax(-1).numpy()
    np.testing.assert_allclose(decoded_log(z, decoding.exact_steps), sampled, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(decoded_log_probabilities(scores, decoding.exact_steps), sampled, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("spec", ["t=2,min_p=0.5,order=temperature_last", "t=0.7,top_p=0.7", "t=1,epsilon=0.05"])
def test_samples_of_the_engine_follow_the_exact_law(spec):
    model, decoding = (
        TinyLlama(LlamaShape(layers=1, dim=16, heads=2, hidden=16, init_std=0.5), seed=1),
        Decoding.parse(spec),
    )
    task, num = MulMod(modulus=7, low=1, high=9, under_representation=None), 5000
    settings = Settings(decoding=decoding, max_tokens=2)
    drawn = MulModEngine(model, task).draw([UNPROMPTED], [settings], num=num)
    counts = Counter(tuple(s.ids) for block in drawn for s in block.samples)
    pairs = list(itertools.product(range(13), repeat=2))
    tokens = np.array([(BOS, *pair) for pair in pairs])
    law = np.exp(decoded_log_likelihood(model.logits, tokens, [decoding.exact_steps])[0])
    assert law.sum() == pytest.approx(1.0, abs=1e-6)
    assert (law == 0).any()
    seen = np.array([counts[pair] for pair in pairs])
    assert (seen[law == 0] == 0).all()
    on = law > 0
    chi2 = ((seen[on] - num * law[on]) ** 2 / (num * law[on])).sum()
    freedom = on.sum() - 1
    assert chi2 < freedom + 5 * np.sqrt(2 * freedom)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_numbers():
    model, tokens = TinyLlama(TINY).double(), everything(3)
    decodings = [Decoding.parse(spec).exact_steps for spec in SPECS]
    expected = decoded_log_likelihood(model.logits, tokens, decodings)
    found = decoded_log_likelihood(model.cuda().logits, tokens, decodings, device="cuda")
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_guided_decodings_are_refused_and_greedy_is_temperature_zero():
    assert Decoding(temperature=0).exact_steps == (("temperature", 0.0),)
    with pytest.raises(ValueError, match="kl_sigma=2"):
        _ = Decoding(kl_sigma=2.0).exact_steps
    with pytest.raises(ValueError, match="tokens has shape"):
        decoded_log_likelihood(TinyLlama(TINY).logits, np.zeros((2, 1), int), 1.0)
    with pytest.raises(ValueError, match="mask has shape"):
        decoded_log_likelihood(TinyLlama(TINY).logits, everything(2), 1.0, mask=np.ones((1, 2), bool))
    for wrong in (-1, 4):
        with pytest.raises(ValueError, match=r"must be in 0\.\.3"):
            log_likelihood_from_logits(torch.zeros(1, 2, 4), np.array([[3, 0, wrong]]), [(("top_k", 1),)])
    for wrong in (torch.nan, -torch.inf):
        with pytest.raises(ValueError, match="free of nan and inf"):
            log_likelihood_from_logits(torch.full((1, 2, 4), wrong), np.array([[3, 0, 1]]), 1.0)
    with pytest.raises(ValueError, match="mask has shape"):
        log_likelihood_from_logits(torch.zeros(1, 2, 4), np.array([[3, 0, 1]]), 1.0, mask=np.ones((1, 1), bool))
    with pytest.raises(ValueError, match="chunk=0"):
        decoded_log_likelihood(TinyLlama(TINY).logits, everything(2), 1.0, chunk=0)
