"""The small Llama against transformers' own, in both directions and through files."""

import json

import pytest
import torch

from widen.models.convert import from_transformers, load_pretrained, save_pretrained, shape_of, to_transformers
from widen.models.tiny_llama import LlamaShape, TinyLlama, fused_attention, plain_attention

SMALL = LlamaShape(layers=2, dim=16, heads=2, hidden=24, init_std=0.3)


def tokens(rows: int = 5, length: int = 8) -> torch.Tensor:
    return torch.randint(0, 13, (rows, length), generator=torch.Generator().manual_seed(0))


def test_the_papers_model_has_66656_parameters():
    assert sum(p.numel() for p in TinyLlama().parameters()) == LlamaShape().num_parameters == 66_656


@pytest.mark.parametrize(
    "shape", [LlamaShape(init_std=0.2), SMALL, LlamaShape(heads=2, rope_theta=500.0, norm_eps=1e-3)]
)
def test_transformers_gives_the_same_logits(shape):
    model = TinyLlama(shape, seed=1)
    with torch.no_grad():
        ours, theirs = model.logits(tokens()), to_transformers(model)(input_ids=tokens()).logits
    assert theirs.abs().max() > 0.01
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_folder_opens_in_transformers_and_here_with_the_same_numbers(tmp_path):
    from transformers import LlamaForCausalLM

    model = TinyLlama(SMALL, seed=2)
    save_pretrained(model, tmp_path)
    theirs = LlamaForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(model.logits(tokens()), theirs(input_ids=tokens()).logits, rtol=1e-5, atol=1e-5)
    back = load_pretrained(tmp_path)
    assert back.shape == SMALL
    assert torch.equal(back.flat(), model.flat())


def test_a_model_saved_by_transformers_opens_here(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=13, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
        initializer_range=0.3, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    theirs = LlamaForCausalLM(config)
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = theirs(input_ids=tokens()).logits
        torch.testing.assert_close(load_pretrained(tmp_path).logits(tokens()), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(from_transformers(theirs).logits(tokens()), expected, rtol=1e-5, atol=1e-5)


def test_files_hold_no_pickle(tmp_path):
    save_pretrained(TinyLlama(SMALL), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checksums.json", "config.json", "model.safetensors"]
    json.loads((tmp_path / "config.json").read_text())


@pytest.mark.parametrize(
    "change",
    [
        {"num_key_value_heads": 1},
        {"attention_bias": True},
        {"tie_word_embeddings": True},
        {"model_type": "mistral"},
        {"rope_parameters": {"rope_type": "llama3"}},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_a_llama_of_another_kind_is_refused_by_name(tmp_path, change):
    save_pretrained(TinyLlama(SMALL), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | change
    with pytest.raises(ValueError, match=next(iter(change))):
        shape_of(config)


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(0)
    first = TinyLlama(seed=7)
    state = torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(first.flat(), TinyLlama(seed=7).flat())
    assert not torch.equal(first.flat(), TinyLlama(seed=8).flat())
    torch.manual_seed(0)
    TinyLlama(seed=7)
    assert torch.equal(torch.get_rng_state(), state)
    assert float(first.embed.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert (first.norm == 1).all()


def test_a_later_token_changes_no_earlier_logit():
    model = TinyLlama(SMALL).double()
    changed = tokens().clone()
    changed[:, 5] = (changed[:, 5] + 1) % 13
    with torch.no_grad():
        before, after = model.logits(tokens()), model.logits(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


def test_flat_and_load_flat_are_inverse():
    model = TinyLlama(SMALL, seed=3)
    again = TinyLlama(SMALL).load_flat(model.flat())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    with pytest.raises(ValueError, match="flat_P"):
        again.load_flat(torch.zeros(3))


@pytest.mark.parametrize("fields", [{"dim": 30}, {"layers": 0}, {"heads": 3}])
def test_impossible_shapes_are_refused(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        LlamaShape(**fields)


def test_plain_attention_is_torchs():
    fused, plain = (TinyLlama(SMALL, seed=4, attend=attend).double() for attend in (fused_attention, plain_attention))
    with torch.no_grad():
        torch.testing.assert_close(plain.logits(tokens()), fused.logits(tokens()), rtol=1e-12, atol=1e-12)
