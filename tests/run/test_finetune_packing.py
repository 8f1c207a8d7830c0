"""Packing is refused where the model would read on from one sequence into the next."""

from dataclasses import replace

import pytest
import torch
from tiny_pretrained import make_tokenizer, save_model, save_sums

from widen.run.finetune import FineTune, Source, fine_tune
from widen.run.finetune.packing import leak
from widen.run.folder import folder_of

ENDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "vocab_size": 320}
MIXING = {
    "opt": {"ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "word_embed_proj_dim": 32},
    "bloom": {"n_layer": 2, "n_head": 2},
}


def save(folder, kind, **sizes):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, hidden_size=32, **sizes, **ENDS)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def config_of(model, data, **changes):
    plain = FineTune(model=model, train=Source(task="mathqa_python", path=data), warmup_steps=0, max_steps=1)
    return replace(plain, **({"precision": "fp32", "max_length": 80, "packing": True} | changes))


@pytest.mark.parametrize(("kind", "precision"), [("opt", "fp32"), ("bloom", "pure_bf16")])
def test_an_architecture_that_mixes_packed_sequences_is_refused_before_anything_is_written(tmp_path, kind, precision):
    model, data = save(tmp_path / "model", kind, **MIXING[kind]), save_sums(tmp_path / "sums.jsonl")
    config = config_of(model, data, precision=precision)
    with pytest.raises(ValueError, match=f"packing: {kind} does not keep packed sequences apart.*leave --packing out"):
        fine_tune(config, tmp_path / "runs", device="cpu")
    assert not folder_of(tmp_path / "runs", config).config.exists()


@pytest.mark.parametrize("precision", ["fp32", "pure_bf16"])
def test_a_llama_keeps_packed_sequences_apart_at_every_precision_and_depth(tmp_path, precision):
    model = save_model(tmp_path / "model", num_hidden_layers=12)
    config = config_of(model, save_sums(tmp_path / "sums.jsonl"), precision=precision)
    assert fine_tune(config, tmp_path / "runs", device="cpu").log.exists()


def test_the_leak_is_all_of_the_text_before_where_positions_are_ignored_and_rounding_where_they_count(tmp_path):
    from transformers import AutoModelForCausalLM

    bloom = AutoModelForCausalLM.from_pretrained(save(tmp_path / "bloom", "bloom", **MIXING["bloom"])).train()
    llama = AutoModelForCausalLM.from_pretrained(save_model(tmp_path / "llama"))
    first, second = list(range(3, 20)), list(range(40, 60))
    assert leak(bloom, first, second) == pytest.approx(1)
    assert bloom.training
    assert leak(llama, first, second) < 1e-4
