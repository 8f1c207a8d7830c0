"""Small random models for the tests of this room: made in memory, no file and no network."""

import itertools

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

VOCAB, END = 11, 1


class Words:
    """A tokenizer of the words w0, w1, ...; all that an engine asks of one."""

    bos_token_id, eos_token_id = 0, END

    def __call__(self, text):
        return type("Encoded", (), {"input_ids": [int(word[1:]) for word in text.split()]})

    def batch_decode(self, rows, skip_special_tokens=True):
        return [" ".join(f"w{i}" for i in row if i not in (0, END)) for row in rows]


def llama(vocab=VOCAB, **changes):
    """Two layers, grouped heads, logits far from uniform."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        vocab_size=vocab,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=0,
        eos_token_id=END,
        pad_token_id=END,
        initializer_range=0.35,
        **(sizes | changes),
    )
    return LlamaForCausalLM(config).eval()


def of_kind(kind, **settings):
    """Any architecture of transformers, tiny."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).eval()


@torch.inference_mode()
def next_logits(model, ids):
    """Logits after each of several prefixes of one length, by plain forward passes in float64."""
    return model(input_ids=torch.tensor(ids), use_cache=False).logits[:, -1].double().numpy()


def exact_law(model, prompt, length, next_law, end=END):
    """Probability of every continuation of at most `length` tokens: {ids: p}, from `next_law(logits) -> probabilities`."""
    law, going = {}, {(): 1.0}
    for _ in range(length):
        prefixes = list(going)
        logits = next_logits(model, [list(prompt) + list(p) for p in prefixes])
        fresh = {}
        for prefix, row in zip(prefixes, logits, strict=True):
            for token, p in enumerate(next_law(row)):
                if p > 0:
                    (law if token == end else fresh)[(*prefix, token)] = going[prefix] * p
        going = fresh
    return law | going


def chi_square(law, counts):
    """p-value of the counts under the law; cells with fewer than 5 expected are put together."""
    from scipy.stats import chi2

    n = sum(counts.values())
    assert set(counts) <= set(law), "a sample that has probability 0"
    rare_expected = rare_seen = 0.0
    statistic, cells = 0.0, 0
    for ids, p in law.items():
        if p * n < 5:
            rare_expected, rare_seen = rare_expected + p * n, rare_seen + counts.get(ids, 0)
        else:
            statistic, cells = statistic + (counts.get(ids, 0) - p * n) ** 2 / (p * n), cells + 1
    if rare_expected > 0:
        statistic, cells = statistic + (rare_seen - rare_expected) ** 2 / max(rare_expected, 1e-9), cells + 1
    return float(chi2.sf(statistic, max(1, cells - 1)))


def softmax(z):
    w = np.exp(z - z.max())
    return w / w.sum()


def all_ids(vocab, length):
    return list(itertools.product(range(vocab), repeat=length))
