"""``widen merge``: the average of models, tensor by tensor, in a folder that the other verbs take."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from widen.cli.__main__ import main
from widen.models.convert import load_pretrained, save_pretrained
from widen.models.tiny_llama import LlamaShape, TinyLlama

SHAPE = LlamaShape(vocab=12, layers=1, dim=8, heads=2, hidden=16)


def model(folder, seed, **changes):
    save_pretrained(TinyLlama(SHAPE, seed=seed), folder)
    (folder / "checksums.json").unlink()
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(f"{seed}")
    return str(folder)


def test_two_models_become_their_weighted_average_with_the_first_ones_tokenizer(tmp_path, capsys):
    a, b = model(tmp_path / "a", 1), model(tmp_path / "b", 2)
    (tmp_path / "a" / "README.md").write_text("a card of the first one alone")
    tensors = load_file(f"{a}/model.safetensors")
    save_file({k: x.bfloat16() for k, x in tensors.items()}, f"{a}/model.safetensors", metadata={"format": "pt"})
    assert main(["merge", a, b, "--weights", ".25", ".75", "--out", str(tmp_path / "out")]) == 0
    found, other = load_file(tmp_path / "out" / "model.safetensors"), load_file(f"{b}/model.safetensors")
    for name, x in found.items():
        mean = 0.25 * tensors[name].bfloat16().float() + 0.75 * other[name]  # in float32, then as the first one
        assert torch.equal(x, mean.bfloat16()), name
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "1"
    assert not (tmp_path / "out" / "README.md").exists()
    assert "model folder:" in capsys.readouterr().out


def test_a_tied_head_that_one_model_stores_twice_is_averaged_once(tmp_path):
    a, b = (model(tmp_path / name, seed, tie_word_embeddings=True) for name, seed in (("a", 1), ("b", 2)))
    tensors = load_file(f"{a}/model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, f"{a}/model.safetensors", metadata={"format": "pt"})
    for order, out in (([a, b], "ab"), ([b, a], "ba")):
        assert main(["merge", *order, "--out", str(tmp_path / out)]) == 0
        assert set(load_file(tmp_path / out / "model.safetensors")) == set(tensors)


def test_what_has_no_average_is_refused_with_a_sentence(tmp_path, capsys):
    a, b = model(tmp_path / "a", 1), model(tmp_path / "b", 2)

    def refused(*arguments):
        assert main(["merge", *arguments, "--out", str(tmp_path / "out")]) == 2
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err

    assert "add up to 0.9; they must add up to 1" in refused(a, b, "--weights", ".5", ".4")
    assert "1 weights for 2 models" in refused(a, b, "--weights", "1")
    assert "an average needs at least two" in refused(a)
    assert "there is no folder of that name here" in refused(a, str(tmp_path / "none"))
    assert "models of different num_local_experts have no average" in refused(
        a, model(tmp_path / "c", 3, num_local_experts=4)
    )
    for name, rank in (("r4", 4), ("r8", 8)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank}))
        save_file({"x": torch.zeros(rank)}, tmp_path / name / "adapter_model.safetensors")
    assert "adapters of different rank have no average" in refused(str(tmp_path / "r4"), str(tmp_path / "r8"))
    assert "is a model and" in refused(a, str(tmp_path / "r4"))
    tensors = load_file(f"{b}/model.safetensors")
    save_file(tensors | {"model.embed_tokens.weight": torch.zeros(3, 8)}, f"{b}/model.safetensors")
    assert "model.embed_tokens.weight has shape [12, 8]" in refused(a, b)
    save_file({k: x for k, x in tensors.items() if "norm" not in k}, f"{b}/model.safetensors")
    assert "b has no tensor model.layers.0.input_layernorm.weight" in refused(b, a)


def test_a_refused_average_of_runs_leaves_nothing(tmp_path, capsys):
    for name in ("a", "b"):
        model(tmp_path / name / "checkpoint", 1)
        (tmp_path / name / "config.json").write_text(json.dumps({"experiment": {"name": name}}))
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "new" / "out"
    assert main(["merge", str(tmp_path / "a"), str(tmp_path / "b"), "--weights", ".5", ".4", "--out", str(out)]) == 2
    assert "add up to 0.9" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def before_and_after(folder):
    """Two GPT-2 models with a tokenizer each, as transformers saves them."""
    config = GPT2Config(vocab_size=8, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1)
    words = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2}, unk_token="a"))
    both = []
    for seed, name in enumerate(("before", "after")):
        torch.manual_seed(seed)
        both.append(GPT2LMHeadModel(config))
        both[-1].save_pretrained(folder / name)
        PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>").save_pretrained(folder / name)
    return both


def old_names(folder):
    """As the hub has GPT-2: without the prefix, and with the mask of the attention."""
    tensors = {k.removeprefix("transformer."): x for k, x in load_file(folder / "model.safetensors").items()}
    save_file(tensors | {"h.0.attn.bias": torch.ones(1, 1, 8, 8)}, folder / "model.safetensors")


def on_the_hub(folder, cache, monkeypatch):
    """The cache that transformers fills when it downloads ``me/model``."""
    shutil.copytree(folder, cache / "models--me--model" / "snapshots" / "0")
    (cache / "models--me--model" / "refs").mkdir()
    (cache / "models--me--model" / "refs" / "main").write_text("0")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("stored", ["names of today", "old names", "pytorch_model.bin"])
@pytest.mark.parametrize("first", ["before", "after"])
@pytest.mark.parametrize("hub", [True, False])
def test_a_model_of_the_hub_or_with_other_files_is_averaged_with_its_fine_tuned_version(
    tmp_path, monkeypatch, stored, first, hub
):
    before, after = before_and_after(tmp_path)
    start = tmp_path / "before"
    if stored == "old names":
        old_names(start)
    elif stored == "pytorch_model.bin":
        (start / "model.safetensors").unlink()
        torch.save(before.state_dict(), start / "pytorch_model.bin")
    if hub:
        on_the_hub(start, tmp_path / "cache", monkeypatch)
    names = {"before": "me/model" if hub else str(start), "after": str(tmp_path / "after")}
    weights = {"before": "0.25", "after": "0.75"}
    order = [first, "after" if first == "before" else "before"]
    arguments = [*(names[one] for one in order), "--weights", *(weights[one] for one in order)]
    assert main(["merge", *arguments, "--out", str(tmp_path / "out")]) == 0
    found = GPT2LMHeadModel.from_pretrained(tmp_path / "out")
    for mine, a, b in zip(found.parameters(), before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(mine, 0.25 * a + 0.75 * b)
    assert not any(path.is_dir() for path in (tmp_path / "out").iterdir())
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_two_runs_become_a_run_that_widen_score_takes(tmp_path, capsys):
    settings = [
        "--steps",
        "1",
        "--set",
        "model.data.num_samples=64",
        "--set",
        "model.train.batch_size=8",
        "--out",
        str(tmp_path),
    ]
    small = [
        "--set",
        "model.data.modulus=7",
        "--set",
        "model.data.high=9",
        "--set",
        "model.data.under_representation=null",
    ]
    for loss in ("nll", "gem:beta=0.7"):
        assert main(["train", "--loss", loss, *settings, *small]) == 0
    a, b = sorted(str(path) for path in tmp_path.iterdir())
    out, soup = tmp_path / "half", tmp_path / "no run" / "soup"
    soup.parent.mkdir()
    assert main(["merge", str(tmp_path), "--out", str(soup)]) == 0  # a folder stands for the runs in it
    assert main(["merge", a, b, "--out", str(out)]) == 0
    merged, of_folder, *both = (load_pretrained(f"{run}/checkpoint").flat() for run in (out, soup, a, b))
    torch.testing.assert_close(merged, (both[0] + both[1]) / 2)
    assert torch.equal(of_folder, merged)
    assert main(["score", str(out), "--temperatures", "1"]) == 0
    assert "average of 2" in capsys.readouterr().out
    shutil.rmtree(out / "checkpoint")
