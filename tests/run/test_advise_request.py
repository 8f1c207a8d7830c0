"""What `widen advise` is asked: the wish, the budget, legal numbers, a checker that can judge, and data that can be split."""

import json

import pytest
from advising import PROMPTS, answers_file

from widen.data.tasks import read
from widen.judge import selftest
from widen.run.advise.request import EXACT_GRID, SAMPLED_GRID, AdviceRequest
from widen.run.advise.search import Search
from widen.run.advise.split import split
from widen.run.advise.wish import Wish, parse_budget


@pytest.mark.parametrize(
    "text", ["", "recall", "recall at precision", "f1 at precision >= 0.5", "recall at precision > 0.5"]
)
def test_a_wish_that_cannot_be_read_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"write METRIC at METRIC >= LEVEL, such as \"recall at precision >= 0.9\""):
        Wish.parse(text)


def test_a_wish_of_one_metric_or_of_an_impossible_level_is_refused():
    with pytest.raises(ValueError, match="recall is named twice"):
        Wish.parse("recall at recall >= 0.5")
    with pytest.raises(ValueError, match="between 0 and 1"):
        Wish.parse("recall at precision >= 90")
    assert Wish.parse("Recall at precision ≥ 90%").level == 0.9


@pytest.mark.parametrize("text", ["", "30", "-5m", "0s", "1.2.3h", "half an hour"])
def test_a_budget_that_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="budget="):
        parse_budget(text)


def test_a_wish_for_a_metric_that_the_score_lacks_is_refused(tmp_path):
    asked = {"model": "m", "data": answers_file(tmp_path / "a.jsonl"), "budget": 60.0}
    with pytest.raises(ValueError, match=r"this score has no pass@10; it has precision, recall"):
        AdviceRequest(**asked, task="answers", wish="pass@10 at precision >= 0.5")
    with pytest.raises(ValueError, match="losses: asft compares with a reference model, which advise does not have"):
        AdviceRequest(**asked, task="answers", wish="recall at precision >= 0.5", losses=("asft",))
    with pytest.raises(ValueError, match="nothing says which answers are right"):
        AdviceRequest(**asked, wish="recall at precision >= 0.5")
    with pytest.raises(ValueError, match="needs at least 10 samples"):
        AdviceRequest(**asked, task="mbpp", num=4, wish="pass@10 at pass@1 >= 0.3")
    assert AdviceRequest(**asked, task="answers", wish="coverage at precision >= 0.5").parsed.goal == "recall"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"num": 0}, "num=0: must be at least 1"),
        ({"max_tokens": 0}, "max_tokens=0: must be at least 1"),
        ({"batch_size": 0}, "batch_size=0: must be at least 1"),
        ({"lora": 0}, "lora=0: must be at least 1"),
        ({"lr": -1.0}, r"lr=-1\.0: must be above 0"),
        ({"seed": -1}, "seed=-1: must be at least 0"),
    ],
)
def test_a_number_that_is_not_legal_is_refused_before_the_data_is_read(more, sentence):
    with pytest.raises(ValueError, match=sentence):
        AdviceRequest(
            model="m", data="no.jsonl", budget=60.0, task="answers", wish="recall at precision >= 0.5", **more
        )


FAULTY = {  # what a checker returns -> how the refusal ends
    "open('/etc/passwd').read() == answer": r"it fails on every answer .* check\('.*a'\): error: .*/etc/passwd",
    "answer == 'b'": r"it calls wrong every answer of the data that was tried, such as check\('.*a'\)$",
}


@pytest.mark.sandbox
@pytest.mark.parametrize("returned", FAULTY)
def test_a_checker_that_cannot_judge_the_data_is_refused_before_anything_is_measured(tmp_path, monkeypatch, returned):
    monkeypatch.setattr(selftest, "ATTACKS", {})
    (tmp_path / "own.py").write_text(f"def check(prompt, answer):\n    return {returned}\n")
    rows = [{"prompt": f"{n}:", "completion": f"{n}a"} for n in range(12)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    request = AdviceRequest(
        model="no model",
        data=str(tmp_path / "all.jsonl"),
        checker=f"{tmp_path / 'own.py'}:check",
        wish="recall at precision >= 0.5",
        budget=60.0,
    )
    with pytest.raises(ValueError, match=FAULTY[returned]):
        Search(request, tmp_path / "out")


def test_no_prompt_is_in_two_splits_and_the_order_of_the_records_does_not_matter(tmp_path):
    def prompts_of(folder, order):
        made = split("answers", answers_file(tmp_path / "all.jsonl", order), tmp_path / folder, seed=0, once=True)
        sources = (made.train, made.validation, made.test)
        return [{one.prompt for one in read(source.task, source.path).examples} for source in sources]

    there, back = prompts_of("a", range(PROMPTS)), prompts_of("b", reversed(range(PROMPTS)))
    assert there == back
    assert [len(part) for part in there] == [30, 12, 18]
    assert len(set.union(*there)) == PROMPTS


def test_every_listed_answer_is_trained_on(tmp_path):
    made = split("answers", answers_file(tmp_path / "all.jsonl"), tmp_path, seed=0, once=True)
    rows = read(made.train.task, made.train.path).examples
    assert len(rows) == made.counts["train"] == 2 * 30
    assert {row.completion for row in rows} == {f"{row.prompt[:-1]}{x}" for row in rows for x in "ab"}


def test_bad_records_and_too_few_prompts_are_refused(tmp_path):
    file = tmp_path / "few.jsonl"
    with pytest.raises(ValueError, match="9 distinct prompts; at least 10"):
        split("answers", answers_file(file, range(9)), tmp_path, seed=0, once=True)
    with pytest.raises(ValueError, match="appears twice: list all its answers in one record"):
        split("answers", answers_file(file, [*range(12), 3]), tmp_path, seed=0, once=True)


@pytest.mark.parametrize(("grid", "hottest"), [(EXACT_GRID, 1.4), (SAMPLED_GRID, 1.0)])
def test_nll_is_tried_at_the_matched_temperatures_of_the_losses(grid, hottest):
    tried = [one.temperature for one in grid if one.temperature_alone]
    for factor in (1.4, 1 / 0.7):  # c-Div 1.4, GEM 0.7
        wanted = [factor * t for t in tried if t <= hottest]
        assert len(wanted) >= 4
        assert all(min(abs(t / one - 1) for t in tried) < 0.03 for one in wanted)


def test_nll_is_tried_at_about_the_cut_offs_that_match_those_of_the_losses():
    tried = {one.min_p for one in EXACT_GRID if one.min_p and one.order == "temperature_last"}
    for factor in (1.4, 1 / 0.7):
        for cut in (0.02, 0.05, 0.1, 0.2):
            assert cut in tried
            assert min(abs(other / cut**factor - 1) for other in tried) < 0.5
