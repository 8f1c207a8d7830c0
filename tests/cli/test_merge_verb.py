"""``widen merge``: the average of models, tensor by tensor, in a folder that the other verbs take."""

import json
import shutil

import torch
from safetensors.torch import load_file, save_file

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
    tensors = load_file(f"{a}/model.safetensors")
    save_file({k: x.bfloat16() for k, x in tensors.items()}, f"{a}/model.safetensors", metadata={"format": "pt"})
    assert main(["merge", a, b, "--weights", ".25", ".75", "--out", str(tmp_path / "out")]) == 0
    found, other = load_file(tmp_path / "out" / "model.safetensors"), load_file(f"{b}/model.safetensors")
    for name, x in found.items():
        mean = 0.25 * tensors[name].bfloat16().float() + 0.75 * other[name]  # in float32, then as the first one
        assert torch.equal(x, mean.bfloat16()), name
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "1"
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
    assert "there is no such folder" in refused(a, str(tmp_path / "none"))
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
    assert "has a tensor model.layers.0.input_layernorm.weight" in refused(a, b)


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
