"""A reference model reads the data once; its numbers lie in the run folder. A running average lies beside the trained model."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from tiny_pretrained import tiny_training

from widen.run.finetune import Lora
from widen.run.finetune.stage import fine_tune

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    return folder, tiny_training(folder, count=8)


def lines(folder):
    return [json.loads(line) for line in folder.log.read_text().splitlines()]


def test_a_model_anchored_to_itself_starts_as_nll_does_and_the_reference_reads_once(base, monkeypatch):
    from widen.run.finetune import reference_column as reference

    monkeypatch.setattr(reference, "PART", 3)  # three files
    place, config = base
    plain = lines(fine_tune(config, place / "runs", device="cpu"))[0]
    anchored = replace(config, loss="anchor:kl=0.5", reference=config.model)
    folder = fine_tune(anchored, place / "runs", device="cpu")
    first = lines(folder)[0]
    assert first["loss"] == pytest.approx(plain["loss"], rel=1e-4)  # q = r: every weight is 1
    assert first["weight_mean"] == pytest.approx(1.0, abs=1e-4)
    assert lines(folder)[1]["weight_mean"] != pytest.approx(1.0, abs=1e-4)
    files = sorted((folder.path / "reference").rglob("*.safetensors"))
    assert len(files) == 3
    # What is there is read and not computed again, and what is missing is computed: as after a kill.

    weights = (folder.checkpoint / "model.safetensors").read_bytes()
    for name in ("checkpoint", "log.jsonl", "summary.json"):
        path = folder.path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    files[1].unlink()
    monkeypatch.setattr(reference, "_compute", watched := Watched(reference._compute))
    again = fine_tune(replace(anchored, packing=False), place / "runs", device="cpu")
    assert watched.parts == [[1]]
    assert (again.checkpoint / "model.safetensors").read_bytes() == weights


class Watched:
    def __init__(self, call):
        self.call, self.parts = call, []

    def __call__(self, config, data, place, parts, device):
        self.parts.append(parts)
        self.call(config, data, place, parts, device)


def test_a_reference_without_a_loss_that_reads_it_is_refused_and_the_other_way_round(base):
    _, config = base
    with pytest.raises(ValueError, match=r"loss='asft:kl=0.2' compares with a reference model, and none is named"):
        replace(config, loss="asft:kl=0.2")
    with pytest.raises(ValueError, match=r"loss='nll' does not read it"):
        replace(config, reference="m")
    with pytest.raises(ValueError, match=r"ema=1.5 \(--ema\)"):
        replace(config, ema=1.5)


@pytest.mark.parametrize("lora", [None, Lora(rank=2)], ids=["all weights", "adapter"])
def test_the_running_average_is_a_model_beside_the_trained_one(base, lora):
    from safetensors.torch import load_file

    place, config = base
    folder = fine_tune(replace(config, ema=0.999, lora=lora), place / "runs", device="cpu")
    start = load_file(f"{config.model}/model.safetensors")
    end, average = (load_file(folder.checkpoint / name) for name in ("model.safetensors", "average/model.safetensors"))
    moved = {name for name in end if not torch.equal(end[name], start[name])}
    assert moved
    for name in moved:  # decay .1, then .18: two steps
        between = (average[name] - start[name]).norm() / (end[name] - start[name]).norm()
        assert 0.5 < between < 1.1, name
        assert not torch.equal(average[name], end[name])
