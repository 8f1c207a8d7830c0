"""A recipe whose model folder is not there is refused before anything is made, and the message names the folder and the command."""

import json
from dataclasses import replace

import pytest
from text_runs import experiment, run

from widen.cli.__main__ import main
from widen.run import recipe
from widen.run.finetune import Source
from widen.run.finetune.model_files import may_be_on_hub
from widen.run.folder import folder_of
from widen.run.score_settings import ExactScore, SlotScore
from widen_recipes import tiny_texts
from widen_recipes.study.make_grown import STUDIES, made_by


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        ("gpt2", True),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", True),
        ("allenai/OLMo_1.B-hf", True),
        ("/models/gpt2", False),
        ("./gpt2", False),
        ("~/models/gpt2", False),
        ("runs/grown/soup-seed0", False),
        ("$WIDEN_GROWN/soup", False),
        ("my models/gpt2", False),
    ],
)
def test_a_name_of_one_or_two_plain_words_may_be_on_the_hub_and_anything_else_is_a_path(name, may_be):
    assert may_be_on_hub(name) == may_be


def test_a_folder_that_is_missing_is_named_before_any_other_model_is_made(tmp_path):
    there, soup = experiment(tiny_texts.folder()), str(tmp_path / "grown" / "soup-seed0")
    lacking = experiment(tiny_texts.folder(), name="a soup", model=soup)
    with pytest.raises(FileNotFoundError, match=f"^a soup, seed 0: there is no folder {soup}$"):
        run(tmp_path / "runs", there, lacking)
    assert not folder_of(tmp_path / "runs", there).path.exists()


@pytest.mark.parametrize("stages", [("train", "sample", "score"), ("train", "sample")])
def test_an_embedder_that_is_not_whole_is_refused_before_anything_is_drawn_unless_nothing_is_scored(tmp_path, stages):
    embedder = tmp_path / "mpnet"
    embedder.mkdir()
    parts = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling")]
    named = [{"idx": int(n), "path": path, "type": f"sentence_transformers.models.{kind}"} for n, path, kind in parts]
    (embedder / "modules.json").write_text(json.dumps(named))
    meanings = tmp_path / "test.jsonl"
    meanings.write_text(json.dumps({"mr": "name[A], food[Thai]", "refs": ["A serves Thai food."]}) + "\n")
    about = {"prompts": Source(task="e2e", path=str(meanings)), "num_prompts": None}
    one = experiment(tiny_texts.folder(), score=SlotScore(embedder=str(embedder)), **about)
    if "score" in stages:
        with pytest.raises(
            FileNotFoundError, match=r"1_Pooling/config\.json: there is no such file, though .*modules\.json names"
        ):
            run(tmp_path / "runs", one, stages=stages)
    else:
        run(tmp_path / "runs", one, stages=stages)
    assert folder_of(tmp_path / "runs", one).path.exists() == ("score" not in stages)


def test_a_table_of_what_is_finished_needs_no_embedder(tmp_path):
    """A run that was stopped is tabulated on a machine without the embedder."""
    meanings = tmp_path / "test.jsonl"
    meanings.write_text(json.dumps({"mr": "name[A], food[Thai]", "refs": ["A serves Thai food."]}) + "\n")
    about = {"prompts": Source(task="e2e", path=str(meanings)), "num_prompts": None}
    done = experiment(tiny_texts.folder(), score=SlotScore(embedder=""), **about)
    run(tmp_path / "runs", done)
    left, said = replace(done, seed=1, score=SlotScore(embedder=str(tmp_path / "no"))), []
    assert run(tmp_path / "runs", done, left, stages=("score",), notice=said.append)
    assert said[0].startswith(f"{left.name}, seed 1: not all samples are in")


def test_a_server_may_have_a_folder_that_is_not_here(tmp_path, monkeypatch):
    monkeypatch.setattr("widen.run.sampling.served", lambda url: {"another model"})
    lacking = experiment(tiny_texts.folder(), model=str(tmp_path / "there"))
    said = []
    assert run(tmp_path, lacking, stages=("sample",), servers=("http://there",), notice=said.append) == []
    assert "none of the servers serves" in said[0]


def test_exact_scores_of_a_missing_folder_are_left_out_of_the_table_of_what_is_finished(tmp_path):
    (tmp_path / "test.jsonl").write_text(json.dumps({"prompt": "1 1>2:", "answers": ["1+1=2"]}) + "\n")
    asked = Source(task="answers", path=str(tmp_path / "test.jsonl"))
    there = experiment(tiny_texts.folder(), prompts=asked, num_prompts=None, score=ExactScore(num_samples=2))
    lacking = replace(there, name="a soup", model=str(tmp_path / "soup"))
    said = []
    rows = run(tmp_path / "runs", there, lacking, stages=("score",), notice=said.append)
    assert {row.name for row in rows} == {there.name}
    assert said == [f"a soup, seed 0: there is no folder {tmp_path / 'soup'}; not in the table"]


def test_every_folder_that_a_recipe_takes_as_a_model_names_the_command_that_makes_it(monkeypatch):
    for variable in ("WIDEN_GROWN", "WIDEN_AVERAGES"):
        monkeypatch.setenv(variable, f"/{variable}")
    taken = {}
    for name in [one for one in recipe.summaries("widen_recipes") if one.startswith("study:")]:
        models = {one.model for one in recipe.find("widen_recipes", name) if isinstance(one.model, str)}
        if commands := {made_by(model, "my runs") for model in models if model.startswith("/")}:
            taken[name] = {command.removeprefix("python -m widen_recipes.study ") for command in commands}
    grown = {task: {f"grow {task} 'my runs'"} for task in STUDIES}
    assert taken == {
        "study:grow": grown["countdown"],
        "study:mathqa": grown["mathqa"],
        **{f"study:{task}_grow": grown[task] for task in ("e2e", "countdown_small", "mathqa_small")},
        "study:coverageqa_small_grow": grown["coverageqa_small_1"] | grown["coverageqa_small_2"],
        **{f"study:{task}_wise": {"wise 'my runs'"} for task in ("countdown", "coverageqa")},
    }


def test_the_verb_names_the_missing_folder_of_a_study_and_the_command_that_makes_it(capsys, tmp_path, monkeypatch):
    """The folder could be a name on the hub by its form. It is none, because a command makes the models of this recipe."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIDEN_AVERAGES", "averages")
    monkeypatch.setenv("WIDEN_SMOLLM2", str(tiny_texts.folder() / "model"))
    monkeypatch.setenv("WIDEN_COUNTDOWN_SMALL", "data")
    (tmp_path / "data").mkdir()
    for name in ("test", "train", "valid"):
        (tmp_path / "data" / f"{name}.jsonl").write_text(
            json.dumps({"prompt": "1 1>2:", "answers": ["1+1=2"], "completion": "1+1=2"}) + "\n"
        )
    assert main(["run", "study:countdown_wise", "--out", "my runs"]) == 2
    err = capsys.readouterr().err
    assert "WiSE-FT 0.9, seed 0: there is no folder averages/0.9-" in err
    assert "make it with `python -m widen_recipes.study wise 'my runs'`" in err
