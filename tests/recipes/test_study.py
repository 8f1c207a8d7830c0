"""The study's tasks: the files they write, and their recipes at tiny size."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from widen.data.tasks.e2e import slots_of, wrong_slots
from widen.run import recipe, runner
from widen.run.folder import folder_of
from widen.run.runner import found_records
from widen_recipes.study.coverageqa import FEW, coverageqa, coverageqa_qwen, coverageqa_zero_shot, write_coverageqa
from widen_recipes.study.e2e import e2e, e2e_small, new_meanings, write_e2e
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
    parts = {(name, fold): lines(tmp_path / f"{name}-{fold}.jsonl") for name in ("train", "valid") for fold in (1, 2)}
    asked = {part: {one["prompt"][0]["content"] for one in rows} for part, rows in parts.items()}
    assert tests == [{"Name a gas.", "Name a liquid."}, {"Name a metal."}]
    assert [asked["train", fold] | asked["valid", fold] for fold in (1, 2)] == tests[::-1]
    assert asked["valid", 2] == {"Name a gas."}
    assert asked["train", 2] == {"Name a liquid."}
    gas = lines(tmp_path / "test-1.jsonl")[0]["answers"]
    assert gas == [["He", "He.", "helium", "helium.", "Helium", "Helium."], ["Neon", "Neon."]]
    assert [one["completion"][0]["content"] for one in parts["valid", 2]] == ["He", "Neon"]


def test_the_few_answers_of_coverageqa_are_right_ones_to_the_training_questions_and_the_rest_must_be_found(tmp_path):
    names = [f"metal {i}" for i in range(8)]
    questions = {f"Question {i}?": {"answers": [[f"{name} of {i}"] for name in names]} for i in range(14)}
    (tmp_path / "coverageqa.json").write_text(json.dumps(questions))
    write_coverageqa(tmp_path / "coverageqa.json", tmp_path)
    few, every, asked = (lines(tmp_path / f"{name}-1.jsonl") for name in ("few", "few-all", "few-questions"))
    assert len(asked) == 5  # seven questions in the other fold, two of them for validation
    assert Counter(row["prompt"] for row in few) == {one["prompt"]: FEW for one in asked}
    assert Counter(row["prompt"] for row in every) == {one["prompt"]: len(names) for one in asked}
    right = {one["prompt"]: {spelling for spellings in one["answers"] for spelling in spellings} for one in asked}
    assert all(row["completion"] in right[row["prompt"]] for row in (*few, *every))
    tested = {one["prompt"] + "\n" for one in lines(tmp_path / "test-1.jsonl")}
    assert not tested & {row["prompt"] for row in (*every, *lines(tmp_path / "few-valid-1.jsonl"))}


def test_coverageqa_gives_every_method_the_same_decodings_folds_and_seeds():
    models = coverageqa()
    assert len(models) == len(coverageqa_qwen()) == 2 * 3 * (len(METHODS) + 1)
    assert len({one.decoding for one in models}) == 1
    assert len({(one.name, one.seed, one.prompts.path) for one in models}) == len(models)


def test_zero_shot_compares_all_decodings_with_the_temperatures_among_them():
    alone, _, every, _ = coverageqa_zero_shot()
    assert (alone.name, every.name) == ("temperature alone", "all decodings")
    assert (len(alone.decoding), len(every.decoding)) == (14, 51)
    assert set(alone.decoding) < set(every.decoding)


def test_coverageqa_runs_at_tiny_size_and_drops_what_is_scored(tmp_path):
    experiments = recipe.find("widen_recipes", "study:tiny:coverageqa")[1:2]
    rows = runner.run("study:tiny:coverageqa", experiments, tmp_path, drop_checkpoints=True)
    assert {row.name for row in rows} == {"TruncR 0.1"}
    for one in experiments:
        folder = folder_of(tmp_path, one)
        assert not folder.checkpoint.exists()
        assert len(found_records(folder, one)[0].detail["by_problem"]) == 2
    assert (tmp_path / experiments[0].model.after.folder_name / "checkpoint").is_dir()


MEANING = (
    "name[Zizzi], eatType[pub], food[English], priceRange[less than £20], customer rating[1 out of 5], area[riverside], "
    "familyFriendly[no], near[Café Rouge]"
)
RIGHT = "Zizzi by Cafe Rouge is a cheap riverside pub with British food, rated one star. It is not for children."


def test_a_text_that_mentions_every_slot_in_other_words_is_right():
    assert wrong_slots(MEANING, RIGHT) == []


@pytest.mark.parametrize(
    ("said", "instead", "slot"),
    [
        ("Zizzi", "It", "name"),
        ("pub", "spot", "eatType"),
        ("British", "good", "food"),
        ("British", "British and Italian", "food"),
        ("cheap", "popular", "priceRange"),
        ("rated one star", "rated five stars", "customer rating"),
        ("riverside", "local", "area"),
        ("riverside", "riverside, city centre", "area"),
        ("not for", "for", "familyFriendly"),
        ("Cafe Rouge", "the hotel", "near"),
    ],
)
def test_a_text_that_leaves_out_or_contradicts_a_slot_is_wrong_in_that_slot(said, instead, slot):
    assert wrong_slots(MEANING, RIGHT.replace(said, instead)) == [slot]


def test_what_is_no_meaning_is_refused():
    with pytest.raises(ValueError, match="is not a meaning"):
        slots_of("The Mill, riverside")


def test_e2e_splits_by_meaning_and_leaves_out_training_meanings_that_differ_in_one_slot(tmp_path):
    said = {(name, near): [f"{name} is near {near}.", f"Go to {name}."] for name in "ABC" for near in "XYZ"}
    rows = [f'"name[{name}], near[{near}]",{text}\n' for (name, near), texts in said.items() for text in texts]
    (tmp_path / "devset.csv").write_text("mr,ref\n" + "".join(rows[1:]))
    (tmp_path / "testset_w_refs.csv").write_text("mr,ref\n" + rows[0])
    write_e2e(tmp_path, tmp_path / "out", num_test=1, num_valid=1)
    found = {name: lines(tmp_path / "out" / f"{name}.jsonl") for name in ("train", "valid", "test", "one")}
    slots = {name: {tuple(slots_of(row["mr"]).values()) for row in part} for name, part in found.items()}
    held_out = [*slots["test"], *slots["valid"]]
    assert len(held_out) == 2
    assert slots["train"] == {
        one for one in said if all(sum(x != y for x, y in zip(one, kept, strict=True)) == 2 for kept in held_out)
    }
    assert sorted(found["test"][0]["refs"]) == sorted(said[held_out[0]])
    assert len(found["train"]) == 2 * len(slots["train"])
    assert found["one"] == [row for row in found["train"] if "is near" in row["ref"]]
    assert [row["ref"] for row in found["valid"]] == [said[held_out[1]][0]]


def test_new_meanings_for_growth_recombine_known_values_and_are_two_slots_from_what_is_held_out():
    known = ["name[A], food[D]", "name[B], food[C]", "name[E], food[F]"]
    every = {f"name[{name}], food[{food}]" for name in "ABE" for food in "CDF"}
    found = new_meanings(known, ["name[A], food[C]"], num=9)
    assert sorted(found) == sorted(one for one in every - set(known) if "A" not in one and "C" not in one)
    assert new_meanings(known, [], num=2) == new_meanings(known, [], num=6)[:2]


@pytest.mark.parametrize("made", [e2e, e2e_small])
def test_e2e_gives_every_method_the_same_twelve_decodings_and_three_seeds(made):
    assert len(made()) == 3 * (len(METHODS) + 1)
    assert {len(one.decoding) for one in made()} == {12}


@pytest.mark.parametrize("made", [e2e, e2e_small])
def test_nll_2x_differs_from_nll_in_twice_the_length_alone(made):
    nll, twice = (next(one.model for one in made() if one.name == name) for name in ("NLL", "NLL 2x"))
    assert twice == replace(nll, **({"max_steps": 48} if made is e2e_small else {"epochs": 2 * nll.epochs}))


def test_e2e_runs_at_tiny_size_with_every_score_by_meaning(tmp_path):
    experiments = recipe.find("widen_recipes", "study:tiny:e2e")[:1]
    (row, _) = runner.run("study:tiny:e2e", experiments, tmp_path)
    assert "distinct_right" in runner.table_path(tmp_path, "study:tiny:e2e", "halves").read_text()
    names = {"precision", "slot_accuracy", "distinct_right", "recall", "knn_precision", "knn_coverage", "vendi"}
    assert row.values.keys() >= names
    records = [one for one in found_records(folder_of(tmp_path, experiments[0]), experiments[0]) if one.metric in names]
    assert {len(one.detail["by_problem"]) for one in records} == {4}
    without = replace(experiments[0], score=replace(experiments[0].score, embedder=""))
    (row, _) = runner.run("study:tiny:e2e", [without], tmp_path, stages=("score",))
    assert row.values.keys() & names == {"precision", "slot_accuracy", "distinct_right"}
