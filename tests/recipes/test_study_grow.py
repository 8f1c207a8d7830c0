"""The study's comparison of growth: what it compares, and a whole one at tiny size, from the NLL start to the table."""

import json
import sys
from collections import Counter
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from widen.run import recipe, runner
from widen.run.finetune import FineTune, Source
from widen.run.folder import folder_of
from widen.run.grow import WEIGHTS, Growth
from widen.run.record import Record
from widen.run.score_settings import SlotScore
from widen.run.table import summarise
from widen.sample.decoding import Decoding
from widen_recipes import tiny_texts
from widen_recipes.study.coverageqa import FOLDS
from widen_recipes.study.e2e import e2e, experiment_of
from widen_recipes.study.grow_small import coverageqa_small_losses
from widen_recipes.study.growth_study import ALL_ANSWERS, BASE, EMA, KNOWN, LOSS, LOWEST, SOUPS, GrowthStudy
from widen_recipes.study.make_grown import STUDIES, make_grown
from widen_recipes.study.mathqa import mathqa_small_losses
from widen_recipes.study.methods import METHODS, matched_decodings

TEXTS = ("ab", "aab", "abb", "bab")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", STUDIES)
def test_every_method_goes_on_from_one_start_for_as_many_steps(name):
    study = STUDIES[name]()
    experiments = study.experiments()
    models = [one.model for one in experiments if isinstance(one.model, FineTune) and one.name != "NLL start"]
    assert {model.after.key for model in models} == {study.start.key}
    assert {model.max_steps for model in models} == {study.steps}
    known = {
        "mathqa": (None, 3),
        "mathqa_small": (2, 3),
        "countdown_small": (1, 3),
        "coverageqa_small_1": (2, 12),
        "coverageqa_small_2": (2, 12),
    }
    assert (study.start.patience, study.start.epochs) == known.get(name, (2, 8))
    counts = Counter(one.name for one in experiments)
    assert counts.pop("NLL start") == 1
    assert set(counts.values()) == {3}
    assert len(counts) == 1 + len(study.losses) + len(study.others) + len(study.kinds) + len(study.soups)
    assert (ALL_ANSWERS in study.others) == (study.all_answers is not None)
    assert experiments[0].name == "NLL"
    assert len({one.decoding for one in experiments}) == 1


def test_growth_on_e2e_has_the_decodings_and_test_meanings_of_the_other_methods():
    ours, theirs = STUDIES["e2e"]().experiments()[0], e2e()[0]
    assert (ours.decoding, ours.prompts, ours.num_samples) == (theirs.decoding, theirs.prompts, theirs.num_samples)


def test_other_losses_train_on_the_data_of_nll_and_their_names_do_not_say_grown():
    study = STUDIES["countdown_small"]()
    by_name = {one.name: one.model for one in study.experiments()}
    assert set(study.losses) == {"TruncR 0.1", "c-Div 1.4"}
    for name, loss in study.losses.items():
        assert by_name[name] == replace(by_name["NLL"], loss=loss)


def test_the_losses_on_coverageqa_differ_from_the_nll_of_its_growth_in_the_loss_alone():
    grown = [STUDIES[f"coverageqa_small_{fold}"]() for fold in FOLDS]
    nll = [study.model("NLL", 0).key for study in grown]
    experiments = coverageqa_small_losses()
    assert {one.model.key for one in experiments if one.name == "NLL start"} == {study.start.key for study in grown}
    trained = [one.model for one in experiments if one.name not in ("NLL start", LOWEST)]
    assert Counter(replace(model, loss="nll", seed=0).key for model in trained) == dict.fromkeys(nll, len(METHODS) * 3)
    assert {one.decoding for one in experiments} == {matched_decodings()}


def test_the_losses_on_mathqa_differ_from_the_nll_of_its_growth_in_the_loss_alone():
    nll = STUDIES["mathqa_small"]().model("NLL", 0)
    trained = [one.model for one in mathqa_small_losses() if one.name != "NLL start"]
    assert {replace(model, loss="nll", seed=0) for model in trained} == {nll}
    assert {model.loss for model in trained} == {one.model.loss for one in e2e()}


def test_nll_is_tried_at_about_the_cut_off_and_the_heat_that_match_those_of_gem():
    tried = [Decoding.parse(spec) for spec in matched_decodings()]
    for one in (Decoding.truncate_then_heat(min_p=0.02, temperature=t) for t in (1.25, 1.5, 2.0)):
        assert one in tried
        cut, heat = one.min_p ** (1 / 0.7), one.temperature / 0.7
        near = [other for other in tried if other.min_p and abs(other.min_p / cut - 1) < 0.1]
        assert any(abs(other.temperature / heat - 1) < 0.2 for other in near)


@pytest.mark.parametrize("name", STUDIES)
def test_the_seeds_of_a_soup_are_one_setting_as_those_of_every_method_are(name):
    """So the table has their mean, and `widen run --seeds 1` leaves out the others."""
    experiments = STUDIES[name]().experiments()
    assert len({one.setting for one in experiments}) == len({one.name for one in experiments})
    assert len({one.folder_name for one in experiments}) == len(experiments)
    assert {one.model_seed for one in runner.first_seeds(name, experiments, 1)} == {0}


def test_a_table_has_one_row_for_all_seeds_of_a_soup_and_its_model_has_no_seed():
    soups = [one for one in STUDIES["countdown_small"]().experiments() if one.name == "soup of NLL and 0.5 plain"]
    about = {"task": "answers", "loss": "", "metric": "precision", "decoding": Decoding()}
    scored = [(one, [Record(**about, value=0.1 * one.seed, model=one.base, seed=one.seed)]) for one in soups]
    (row,) = summarise("study:grow", scored)
    assert (row.seeds, row.model, row.values["precision"].value) == (3, "soup-plain-0.5", pytest.approx(0.1))


@pytest.mark.parametrize("name", ["grow", "e2e_grow", "mathqa"])
def test_the_tiny_form_has_a_grown_model_and_a_soup(name):
    names = [one.name for one in recipe.find("widen_recipes", f"study:tiny:{name}")]
    assert [one for one in names if one not in METHODS] == ["grown, uniform", "soup of NLL and 0.5 plain"]
    assert names[0] == "NLL"


def tiny_study(place):
    """Texts of the letters a and b. The model learns in seconds to write some that are right."""
    near = ("a", "b", "aa", "bb")
    rows = [{"mr": f"name[ab], near[{one}]", "ref": text} for one in near for text in TEXTS if one in text]
    valid = [{"mr": f"name[ab], near[{one}]", "ref": "aba"} for one in ("ba", "aba")]
    given = rows[:1] + rows[4:5] + rows[8:9]
    meanings = [{"mr": row["mr"]} for row in given] + [{"mr": "name[ab]"}]
    for name, records in (("all", rows), ("one", given), ("valid", valid), ("meanings", meanings)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    names = ("one", "all", "valid", "meanings")
    one, every, held_out, meanings = (Source(task="e2e", path=str(place / f"{name}.jsonl")) for name in names)
    model = str(tiny_texts.folder() / "model")
    start = FineTune(
        model=model,
        train=every,
        evaluate=held_out,
        patience=2,
        epochs=8,
        batch_size=4,
        micro_batch=4,
        lr=0.03,
        precision="fp32",
        max_length=64,
        warmup_steps=0,
    )

    def experiment(name, model, seed):
        found = experiment_of(name, model, seed, not_in_paper={})
        about = {"num_prompts": None, "num_samples": 2, "decoding": ("t=1", "t=0.5"), "max_tokens": 8}
        return replace(found, prompts=held_out, dtype="float32", score=SlotScore(embedder=""), **about)

    return GrowthStudy(
        start=start,
        steps=4,
        all_answers=every,
        growth=Growth(
            model=model,
            prompts=meanings,
            data=one,
            held_out=held_out,
            num=16,
            held_out_num=4,
            max_tokens=8,
            decoding="t=1",
        ),
        experiment=experiment,
        folder=str(place / "grown"),
        others=(LOSS, KNOWN, LOWEST, ALL_ANSWERS),
        seeds=range(1),
    )


def write_weights(folder, value):
    (folder / "config.json").write_text('{"model_type": "llama"}')
    save_file({"w": torch.full((2,), value)}, folder / "model.safetensors")


def test_a_soup_has_its_share_of_the_grown_model_and_the_rest_of_nll_with_the_same_seed(tmp_path, monkeypatch):
    """The trainings are stand-ins: every weight of a model is its number in the list of models."""
    module, soups = sys.modules["widen_recipes.study.make_grown"], (*SOUPS, (BASE, 0.25), (EMA, 1.0))
    (tmp_path / "base").mkdir()
    write_weights(tmp_path / "base", -1.0)
    study = replace(tiny_study(tmp_path), seeds=range(2), soups=soups)
    study = replace(study, start=replace(study.start, model=str(tmp_path / "base")))
    models = [one.model for one in study.experiments() if isinstance(one.model, FineTune)]
    values = {model.key: float(number) for number, model in enumerate(models)}

    def train(config, root, **_):
        folder = folder_of(root, config)
        folder.checkpoint.mkdir(parents=True, exist_ok=True)
        write_weights(folder.checkpoint, values[config.key])
        if config.ema:
            (folder.checkpoint / "average").mkdir(exist_ok=True)
            write_weights(folder.checkpoint / "average", -2.0)
        return folder

    monkeypatch.setattr(module, "fine_tune", train)
    monkeypatch.setattr(module, "grow", lambda config, out, **_: None)
    found = [{"prompt": "data", "origin": {"round": 0}}, {"prompt": "data", "origin": {"round": 1}}]
    found += [{"prompt": "new", "origin": {"round": 1}}]
    monkeypatch.setattr(module, "reweighed", lambda out, kind: [{**row, "completion": kind} for row in found])
    monkeypatch.setattr(module.runner, "run", lambda name, found, root, **_: [train(one.model, root) for one in found])
    make_grown(study, tmp_path / "runs")
    for kind, share in soups:
        nll = values[study.model("NLL", 1).key]
        grown = {BASE: -1.0, EMA: -2.0}.get(kind) or values[study.model(kind, 1).key]
        (weight, _) = load_file(f"{study.soup(kind, share, 1)}/model.safetensors")["w"].tolist()
        assert weight == pytest.approx((1 - share) * nll + share * grown)
    assert lines(tmp_path / "grown" / "sampled.jsonl")[0]["completion"] == "sampled"
    assert [row["prompt"] for row in lines(tmp_path / "grown" / "known prompts.jsonl")] == ["data", "data"]


@pytest.mark.slow
def test_one_command_trains_grows_weighs_and_averages_and_repeats_nothing(tmp_path):
    study = tiny_study(tmp_path)
    make_grown(study, tmp_path / "runs")
    grown = {kind: lines(tmp_path / "grown" / f"{kind}.jsonl") for kind in WEIGHTS}
    assert len({tuple(row["completion"] for row in rows) for rows in grown.values()}) == 1
    assert len(grown["plain"]) > 3
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    make_grown(study, tmp_path / "runs")
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    rows = runner.run("growth", study.experiments(), tmp_path / "runs", command="a test")
    assert {row.name for row in rows} == {one.name for one in study.experiments()}
    halves = runner.table_path(tmp_path / "runs", "growth", "halves").read_text()
    assert all(f"growth,{one.name}," in halves.replace('"', "") for one in study.experiments())
