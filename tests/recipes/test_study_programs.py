"""The study's tasks on programs: the split by templates, the prompts in chat form, and both recipes at tiny size."""

import json
from itertools import product

import pytest

from widen.judge import judge_programs
from widen.run import recipe, runner
from widen.run.questions import questions_of
from widen.run.score_settings import ProgramScore
from widen.run.scoring.job import ScoreTools, limits_of
from widen.run.scoring.programs import judge_of, judged
from widen.sample.chat import cut_at
from widen_recipes.study.code import FAMILIES, code
from widen_recipes.study.mathqa import NOT_IN_PAPER
from widen_recipes.study.methods import METHODS
from widen_recipes.study.templates import DEV, FILES, TEST, by_templates, template, write_templates


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
    assert len({one.decoding for one in models}) == 1
    assert {*METHODS, "NLL, EMA", "soup of NLL and 0.1 base", "NLL on all answers"} < {one.name for one in models}
    assert {len(settings) for settings in FAMILIES.values()} == {3}
    assert len({spec for settings in FAMILIES.values() for spec in settings}) == 12


@pytest.mark.parametrize("most_lines", [None, 2])
def test_half_of_the_training_templates_have_programs_and_the_other_half_have_questions_and_answers(
    tmp_path, most_lines
):
    """The second question of each template has a longer program, which the small form leaves out."""
    words = list(map("".join, product("abcdefghi", repeat=3)))[: 2 * (TEST + DEV)]
    programs = ("answer = 1\nprint(answer)\n", "answer = 1\nanswer += 1\nprint(answer)")
    records = [
        {"question": f"{word} {n}", "program": program, "answer": n}
        for word in words
        for n, program in enumerate(programs)
    ]
    for name, some in zip(FILES, (records[::3], records[1::3], records[2::3]), strict=True):
        (tmp_path / name).write_text("".join(json.dumps(one) + "\n" for one in some))
    write_templates(tmp_path, tmp_path / "out", most_lines=most_lines)
    found = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in (tmp_path / "out").iterdir()
    }
    of = {name: {template(one["question"]) for one in some} for name, some in found.items()}
    half = (TEST + DEV) // 2
    assert {name: len(some) for name, some in of.items() if name != "test"} == {
        "train": half,
        "problems": half,
        "all": 2 * half,
        "dev": DEV,
    }
    assert of["train"] | of["problems"] == of["all"]
    assert not of["all"] & (of["dev"] | of["test"])
    assert not of["dev"] & of["test"]
    assert {tuple(one) for one in found["problems"]} == {("question", "answer")}
    assert len(found["all"]) == len(of["all"]) * (2 if most_lines is None else 1)
    assert {one["program"] for one in found["all"]} == set(programs if most_lines is None else programs[:1])
    assert len(of["test"]) == TEST if most_lines is None else of["test"]


def test_the_held_out_nll_of_the_start_is_only_logged():
    model = recipe.find("widen_recipes", "study:mathqa")[0].model
    assert (model.after.patience, model.after.loss, model.patience) == (None, "nll", None)
    assert model.after.evaluate.path.endswith("/dev.jsonl")
    assert "unused variables" in NOT_IN_PAPER["coverage"]


def test_an_answer_to_humaneval_goes_on_after_the_head_of_the_function_and_ends_with_its_block():
    one = next(one for one in code() if one.task == "humaneval")
    assert one.template.endswith("<|im_start|>assistant\n```python\n{prompt}")
    assert one.template.count("{prompt}") == 2
    (setting,) = one.settings
    assert cut_at("    return x + 1\n```\nDone.", setting.stop) == "    return x + 1"
    assert cut_at("    return x + 1\n\nprint(f(1))", setting.stop) == "    return x + 1\n"
    whole = "    def g(x):\n        return x + 1\n\n    if x:\n        return g(x)\n    return 1"
    assert cut_at(whole, setting.stop) is None


def test_a_program_for_mbpp_may_have_several_functions():
    setting = next(one for one in code() if one.task == "mbpp").settings[0]
    assert cut_at("import math\n\ndef g(x):\n    return x\n\ndef f(x):\n    return g(x)", setting.stop) is None
    assert cut_at("def f(x):\n    return x\n\nassert f(1) == 1", setting.stop) == "def f(x):\n    return x\n"


@pytest.mark.sandbox
def test_the_body_of_a_function_is_run_with_its_head(tmp_path):
    """A right body, a wrong one, and talk."""
    one = next(one for one in recipe.find("widen_recipes", "study:tiny:code") if one.task == "humaneval")
    asked = questions_of(one, tmp_path)[1]
    programs = [judged(asked, text) for text in ("    return x + 1", "    return x", "I add one.")]
    with ScoreTools(tmp_path) as tools:
        found = judge_programs(judge_of([asked]), programs, sandbox=tools.sandbox(limits_of(ProgramScore())))
    assert [verdict.passed for verdict in found] == [True, False, False]


@pytest.mark.sandbox
def test_both_recipes_run_at_tiny_size_count_distinct_programs_and_choose_on_halves(tmp_path):
    programs, mathqa = (recipe.find("widen_recipes", f"study:tiny:{name}") for name in ("code", "mathqa"))
    chosen = [*programs[:1], programs[-1], *(one for one in mathqa if one.name == "NLL")]
    rows = runner.run("study:both", chosen, tmp_path, command="a test")
    assert {row.name for row in rows} == {"HumanEval, temperature", "MBPP, top-p, then heat", "NLL"}
    assert all({"precision", "pass@2"} <= row.values.keys() for row in rows)
    assert ["coverage" in row.values for row in rows] == [row.name == "NLL" for row in rows]
    lines = (tmp_path / "study_both_halves.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[-12:]] == ["study:both"] * 12
