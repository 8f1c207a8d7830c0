"""Exact scores of a real model: the probability of every listed answer, under every decoding, without a sample."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from widen.data.tasks import spellings
from widen.run.experiment import Experiment
from widen.run.finetune import Source
from widen.run.folder import folder_of
from widen.run.record import read_records
from widen.run.runner import run
from widen.run.score_settings import ExactScore
from widen.run.scoring.score_files import score_name
from widen.sample.decoding import Decoding
from widen.theory.steps import decoded_log
from widen_recipes import tiny_texts
from widen_recipes.study.countdown import DATA, write_countdown

SPECS = ("t=1", "t=0.5", "min_p=0.6,t=2,order=temperature_last", "top_p=0.9,t=3,order=temperature_last")


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    root = tmp_path_factory.mktemp("exact")
    problems = [
        {"prompt": "2 1>2:", "answers": ["2*1=2", ["2/1=2", "2:1=2"]]},
        {"prompt": "1 1>2:", "answers": ["1+1=2"]},
    ]
    (root / "test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in problems))
    model = str(tiny_texts.folder() / "model")
    experiment = Experiment(
        name="as it is",
        model=model,
        prompts=Source(task="answers", path=str(root / "test.jsonl")),
        decoding=SPECS,
        dtype="float32",
        score=ExactScore(num_samples=5),
    )
    run("one", [experiment], root / "runs")
    return root, experiment, problems, read_records(folder_of(root / "runs", experiment), score_name(experiment))


def by_hand(model, tokenizer, prompt, answer, decoding):
    """log Q(answer, then the end | prompt), one token after the other, by the numpy definition of each decoding."""
    ids, total = tokenizer(prompt).input_ids, 0.0
    for token in [*tokenizer(answer, add_special_tokens=False).input_ids, tokenizer.eos_token_id]:
        logits = model(torch.tensor([ids])).logits[0, -1].double().numpy()
        total += float(decoded_log(logits[None], decoding.exact_steps)[0, token])
        ids = [*ids, token]
    return total


@pytest.mark.parametrize("spec", SPECS)
def test_precision_and_coverage_are_those_of_every_answer_counted_token_by_token(asked, spec):
    _, experiment, problems, records = asked
    tokenizer = AutoTokenizer.from_pretrained(experiment.model)
    model = AutoModelForCausalLM.from_pretrained(experiment.model).eval()
    decoding = Decoding.parse(spec)
    with torch.no_grad():
        q = [
            [
                sum(np.exp(by_hand(model, tokenizer, p["prompt"], s, decoding)) for s in spellings(a))
                for a in p["answers"]
            ]
            for p in problems
        ]
    found = {r.metric: r for r in records if r.decoding == decoding}
    precision = [sum(one) for one in q]
    coverage = [np.mean([1 - (1 - x) ** 5 for x in one]) for one in q]
    np.testing.assert_allclose(found["precision"].value, np.mean(precision), rtol=1e-4, atol=1e-30)
    np.testing.assert_allclose(found["recall"].value, np.mean(coverage), rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(found["precision"].detail["by_problem"], precision, atol=1e-6)


def test_a_second_run_opens_no_model(asked, monkeypatch):
    root, experiment, _, _ = asked
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    assert len(run("one", [experiment], root / "runs")) == len(SPECS)


def test_exact_scores_are_refused_for_prompts_without_a_list_of_answers(asked):
    _, experiment, _, _ = asked
    with pytest.raises(ValueError, match="the task must be 'answers'"):
        replace(experiment, prompts=Source(path="test.jsonl"))


def test_the_study_writes_problems_whose_numbers_were_not_trained_on(tmp_path):
    write_countdown(tmp_path, replace(DATA, numbers=3, high=6, fewest=2, num_test=10, num_samples=50), num_valid=5)
    files = {
        name: [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "new", "valid", "test", "problems", "all")
    }
    numbers = {name: {one["prompt"].partition(">")[0] for one in records} for name, records in files.items()}
    assert len(files["test"]) == len(numbers["test"]) == 10
    trained = numbers["train"] | numbers["new"] | numbers["problems"]
    assert not numbers["test"] & (trained | numbers["valid"])
    assert len(numbers["valid"]) == 5
    assert not numbers["valid"] & trained
    listed = {(one["prompt"], answer) for one in files["problems"] for answer in one["answers"]}
    assert listed == {(one["prompt"], one["completion"]) for one in files["all"]}
    assert {(one["prompt"], one["completion"]) for one in files["train"]} <= listed


@pytest.mark.slow
def test_models_made_side_by_side_are_those_made_one_after_the_other(tmp_path):
    from widen.run import recipe

    experiments, reported = recipe.find("widen_recipes", "study:tiny:countdown"), set()
    alone, beside = (
        run("study", experiments, tmp_path / str(jobs), jobs=jobs, progress=lambda what, *_: reported.add(what))
        for jobs in (1, 2)
    )
    assert [row.cells() for row in alone] == [row.cells() for row in beside]
    models = len({one.key for one in experiments})
    assert {what.split(":")[0] for what in reported if what.startswith("model ")} == {
        f"model {number} of {models}" for number in range(1, models + 1)
    }
