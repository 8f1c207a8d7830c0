"""WiSE-FT in the study: the averages are what they say, and the recipes score them under the decodings of the fine-tuned model."""

import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from widen.run import recipe
from widen.run.finetune import FineTune
from widen.run.folder import folder_of
from widen_recipes.study.wise import SHARES, make_wise


def write_model(folder, value):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    save_file({"w": torch.full((2,), value)}, folder / "model.safetensors")


def test_an_average_has_its_share_of_the_fine_tuned_model_and_the_rest_of_the_model_before(tmp_path, monkeypatch):
    """The trainings are stand-ins: every weight is 0 before and 1 after."""
    write_model(tmp_path / "base", 0.0)
    monkeypatch.setenv("WIDEN_SMOLLM2", str(tmp_path / "base"))
    monkeypatch.setenv("WIDEN_AVERAGES", str(tmp_path / "averages"))

    def train(config, root, **_):
        write_model(folder_of(root, config).checkpoint, 1.0)
        return folder_of(root, config)

    monkeypatch.setattr(sys.modules["widen_recipes.study.wise"], "fine_tune", train)
    make_wise(str(tmp_path / "runs"))
    for name in ("countdown_wise", "coverageqa_wise"):
        averages = [one for one in recipe.find("widen_recipes", f"study:{name}") if isinstance(one.model, str)]
        for share in SHARES:
            mine = [one.model for one in averages if one.name == f"WiSE-FT {share:g}"]
            assert len(mine) == {"countdown_wise": 1, "coverageqa_wise": 2}[name]
            for folder in mine:
                assert load_file(f"{folder}/model.safetensors")["w"].tolist() == pytest.approx([share] * 2)


@pytest.mark.parametrize("name", ["countdown_wise", "coverageqa_wise"])
def test_all_models_have_the_same_decodings_and_nll_is_what_they_are_compared_with(name):
    experiments = recipe.find("widen_recipes", f"study:{name}")
    assert experiments[0].name == "NLL"
    assert isinstance(experiments[0].model, FineTune)
    assert len({one.decoding for one in experiments}) == 1
