"""The study's tasks: the files they write, and their recipes at tiny size."""

import json

from widen.run import recipe, runner
from widen.run.folder import folder_of
from widen.run.runner import found_records
from widen_recipes.study.coverageqa import coverageqa, coverageqa_qwen, write_coverageqa
from widen_recipes.study.methods import METHODS

QUESTIONS = {
    "Name a gas.": {"answers": [["He", "helium"], ["Neon "], ["Helium"]]},
    "Name a metal.": {"answers": [["iron"], ["gold", "Au"]]},
    "Name a liquid.": {"answers": [["water"]]},
}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_coverageqa_tests_every_question_once_on_a_model_that_did_not_learn_it(tmp_path):
    (tmp_path / "coverageqa.json").write_text(json.dumps(QUESTIONS))
    write_coverageqa(tmp_path / "coverageqa.json", tmp_path)
    tests = [{one["prompt"] for one in lines(tmp_path / f"test-{fold}.jsonl")} for fold in (1, 2)]
    trained = [{one["prompt"][0]["content"] for one in lines(tmp_path / f"train-{fold}.jsonl")} for fold in (1, 2)]
    assert tests == [{"Name a gas.", "Name a liquid."}, {"Name a metal."}]
    assert trained == tests[::-1]
    gas = lines(tmp_path / "all.jsonl")[0]["answers"]
    assert gas == [["He", "He.", "helium", "helium.", "Helium", "Helium."], ["Neon", "Neon."]]
    taught = [one["completion"][0]["content"] for one in lines(tmp_path / "train-2.jsonl")]
    assert taught == ["He", "Neon", "water"]


def test_coverageqa_gives_every_method_the_same_decodings_folds_and_seeds():
    for models in (coverageqa()[2:], coverageqa_qwen()):
        assert len(models) == 2 * 3 * (len(METHODS) + 1)
        assert len({one.decoding for one in models}) == 1
        assert len({one.folder_name for one in models}) == len(models)


def test_coverageqa_runs_at_tiny_size_and_drops_what_is_scored(tmp_path):
    experiments = recipe.find("widen_recipes", "study:tiny:coverageqa")
    rows = runner.run("study:tiny:coverageqa", experiments, tmp_path, drop_checkpoints=True)
    assert {row.name for row in rows} == {"NLL, fold 1", "TruncR 0.1, fold 1", "TOFU 1, fold 1"}
    for one in experiments:
        folder = folder_of(tmp_path, one)
        assert not folder.checkpoint.exists()
        assert len(found_records(folder, one)[0].detail["by_problem"]) == 2
    assert (folder_of(tmp_path, experiments[0]).path.parent / experiments[0].model.after.folder_name).is_dir()
