"""The study's tasks on programs: the split by templates, the prompts in chat form, and both recipes at tiny size."""

import pytest

from widen.judge import judge_programs
from widen.run import recipe, runner
from widen.run.questions import questions_of
from widen.run.score_settings import ProgramScore
from widen.run.scoring.job import ScoreTools, limits_of
from widen.run.scoring.programs import judge_of, judged, program_in
from widen_recipes.study.code import FAMILIES
from widen_recipes.study.mathqa import DECODINGS, NOT_IN_PAPER
from widen_recipes.study.methods import METHODS
from widen_recipes.study.templates import by_templates, template


def rows():
    return [
        {"question": f"what is {n} {word} {word} ?", "program": f"answer = {n}.0", "answer": n}
        for word in ("plus", "minus", "times", "over")
        for n in range(5)
    ]


def test_no_template_of_one_split_is_in_another_and_the_test_has_each_once():
    found = by_templates(rows(), test=2, dev=1)
    names = {split: {template(one["question"]) for one in some} for split, some in found.items()}
    assert {split: len(some) for split, some in found.items()} == {"train": 5, "dev": 5, "test": 2}
    assert len(names["test"]) == 2
    assert not names["test"] & (names["train"] | names["dev"])
    assert not names["dev"] & names["train"]
    assert found == by_templates(rows(), test=2, dev=1)
    assert found != by_templates(rows(), test=2, dev=1, seed=1)


def test_a_split_that_leaves_no_training_data_is_refused():
    with pytest.raises(ValueError, match="test=3, dev=1: there are 4 templates"):
        by_templates(rows(), test=3, dev=1)


def test_every_method_and_every_family_has_as_many_decodings_as_the_others():
    models = recipe.find("widen_recipes", "study:mathqa")
    assert {one.decoding for one in models} == {DECODINGS}
    assert {one.name for one in models} == {*METHODS, "NLL 2x"}
    assert len(models) == 3 * (len(METHODS) + 1)
    assert {len(settings) for settings in FAMILIES.values()} == {3}
    assert len({spec for settings in FAMILIES.values() for spec in settings}) == 12


def test_the_start_trains_six_epochs_and_its_held_out_nll_is_only_logged():
    model = recipe.find("widen_recipes", "study:mathqa")[0].model
    assert (model.after.patience, model.after.epochs, model.after.loss, model.patience) == (None, 6, "nll", None)
    assert model.after.evaluate.path.endswith("/dev.jsonl")
    assert "unused variables" in NOT_IN_PAPER["coverage"]


@pytest.mark.sandbox
def test_a_chat_answer_passes_whether_it_holds_the_whole_function_or_its_body(tmp_path):
    """A function in a block, the body alone, a wrong function, and talk."""
    one = next(one for one in recipe.find("widen_recipes", "study:tiny:code") if one.task == "humaneval")
    asked = questions_of(one, tmp_path)[1]
    assert asked.example.prompt.startswith("Complete this Python function.")
    answers = [
        "Sure:\n```python\ndef f(x):\n    return x + 1\n```\nDone.",
        "```\n    return x + 1\n```",
        "```python\ndef f(x):\n    return x\n```",
        "I add one.",
    ]
    programs = [judged(asked, program_in(text, fenced=True)) for text in answers]
    with ScoreTools(tmp_path) as tools:
        found = judge_programs(judge_of([asked]), programs, sandbox=tools.sandbox(limits_of(ProgramScore())))
    assert [verdict.passed for verdict in found] == [True, True, False, False]


@pytest.mark.sandbox
def test_both_recipes_run_at_tiny_size_count_distinct_programs_and_choose_on_halves(tmp_path):
    code, mathqa = (recipe.find("widen_recipes", f"study:tiny:{name}") for name in ("code", "mathqa"))
    chosen = [*code[:1], code[-1], *(one for one in mathqa if one.name == "NLL")]
    rows = runner.run("study:both", chosen, tmp_path, command="a test")
    assert {row.name for row in rows} == {"HumanEval, temperature", "MBPP, top-p, then heat", "NLL"}
    assert all({"precision", "pass@2"} <= row.values.keys() for row in rows)
    assert ["coverage" in row.values for row in rows] == [row.name == "NLL" for row in rows]
    lines = (tmp_path / "study_both_halves.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[-12:]] == ["study:both"] * 12
