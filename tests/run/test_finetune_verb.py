"""`widen train` on a tiny real model, then `widen sample`: one command after the other."""

import itertools
import json

import pytest
from tiny_pretrained import save_model, save_sums

from widen.cli.__main__ import main
from widen.sample import read_samples


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model("tiny-model")
    save_sums("sums.jsonl")
    flags = {"--model": "tiny-model", "--task": "mathqa_python", "--precision": "fp32", "--max-length": "80"}
    return [*itertools.chain(*flags.items()), "--device", "cpu", "--steps", "2", "--lr", "1e-3"]


def test_train_says_what_it_learns_from_and_leaves_a_model_that_sample_takes(tiny, tmp_path, capsys):
    with (tmp_path / "sums.jsonl").open("a") as file:
        file.write('{"question": "what is 1 ?"}\n')
    assert main(["train", *tiny, "--data", "sums.jsonl", "--loss", "cdiv:alpha=1.4", "--name", "wide"]) == 2
    assert "line 25: there is no completion to learn" in capsys.readouterr().err
    command = ["train", *tiny, "--data", "sums.jsonl", "--loss", "cdiv:alpha=1.4", "--name", "wide", "--skip-bad"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "24 examples, 900 target tokens of 1,140, the longest 61; 1 bad record left out" in said
    assert "2/2" in said
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"next: widen sample runs/{folder.name} --prompts FILE, widen score --checker FILE.py:check runs/" in said
    assert json.loads((folder / "config.json").read_text())["experiment"]["name"] == "wide"
    assert main(command) == 0
    assert "trained before: nothing is left to do" in capsys.readouterr().out
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "# what is 1 + 1 ?\\n"}\n')
    options = {"--prompts": "prompts.jsonl", "--num": "3", "--max-tokens": "4", "--device": "cpu", "--out": "drawn"}
    assert main(["sample", f"runs/{folder.name}/checkpoint", *itertools.chain(*options.items())]) == 0
    (file,) = (tmp_path / "drawn").rglob("*.jsonl")
    assert len(read_samples(file)) == 3


def test_a_loss_that_is_no_number_ends_with_a_sentence_and_status_1(tiny, capsys):
    assert (
        main(["train", *tiny, "--data", "sums.jsonl", "--lr", "1e30", "--set", "max_grad_norm=0", "--steps", "5"]) == 1
    )
    assert "is not finite" in capsys.readouterr().err


def test_fsdp_spreads_what_comes_before_as_well(tiny, tmp_path, capsys):
    """A file may name what comes first, and that is as large a model."""
    assert main(["train", *tiny, "--data", "sums.jsonl", "--after-nll-epochs", "1", "--print"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert not whole["fsdp"]
    (tmp_path / "config.json").write_text(json.dumps(whole))
    assert main(["train", "config.json", "--fsdp", "--print"]) == 0
    spread = json.loads(capsys.readouterr().out)
    assert spread["fsdp"]
    assert spread["after"]["fsdp"]
    assert main(["train", "config.json", "--fsdp", "--device", "cpu"]) == 2
    assert "torchrun --nproc-per-node GPUS -m widen.cli train ... --fsdp" in capsys.readouterr().err
