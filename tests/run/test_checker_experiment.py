"""A checker of the user's own as the score of an experiment: run in the sandbox, on the prompts of the experiment alone."""

from dataclasses import replace

import pytest
from text_runs import answer_with, experiment, run

from widen.disk.digest import file_digest
from widen.judge import selftest
from widen.run.against_nll import values_by_problem
from widen.run.folder import folder_of
from widen.run.questions import questions_of
from widen.run.runner import found_records
from widen.run.score_settings import CheckerScore
from widen_recipes import tiny_texts

pytestmark = pytest.mark.sandbox


@pytest.fixture
def checked(tmp_path, monkeypatch):
    monkeypatch.setattr(selftest, "ATTACKS", {})
    file = tmp_path / "own.py"
    file.write_text("def check(prompt, answer):\n    return answer.startswith('yes')\n")
    score = CheckerScore(checker=f"{file}:check", digest=file_digest(file), ks=(1, 2))
    return file, experiment(tiny_texts.folder(), score=score, decoding=("t=1",))


def test_precision_pass_at_k_and_coverage_count_the_prompts_of_the_experiment_alone(tmp_path, checked):
    _, two = checked
    six = replace(two, num_prompts=6)
    first = questions_of(six, tmp_path)[0].example.prompt
    answers = {True: ("yes", "yes, too"), False: ("no", "yes")}
    answer_with(tmp_path, six, lambda example, index, t: answers[example.prompt == first][index])
    run(tmp_path, two, stages=("score",))
    found = {record.metric: record for record in found_records(folder_of(tmp_path, two), two)}
    assert list(found["precision"].detail["counts"].values()) == [[2, 2], [2, 1]]
    assert found["precision"].value == 0.75
    assert found["pass@2"].value == 1.0
    both = ({"precision": found["precision"], "coverage": found["coverage"], "pass@1": found["pass@1"]},)
    right, distinct = (values_by_problem(*both, metric).tolist() for metric in ("precision", "coverage"))
    assert sorted(zip(right, distinct, strict=True)) == [(0.5, 1), (1, 2)]  # in one order of the problems
    assert found["coverage"].value == 1.5


def test_an_edited_checker_is_refused(tmp_path, checked):
    file, one = checked
    answer_with(tmp_path, one, lambda example, index, t: "yes")
    file.write_text("def check(prompt, answer):\n    return True\n")
    with pytest.raises(ValueError, match=r"own.py has changed since this score was defined"):
        run(tmp_path, one, stages=("score",))
