"""Countdown end to end at tiny size: trained, scored exactly, tabulated, on a page; and what the exact numbers are."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from widen.data.countdown import CHARACTERS
from widen.models.convert import load_pretrained
from widen.report.load import load
from widen.report.run_report import report
from widen.run import recipe, runner
from widen.run.experiment import experiment_from
from widen.run.folder import folder_of
from widen.run.train_small import train_small
from widen.run.value import to_json


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    experiments = recipe.find("widen_recipes", "countdown:tiny:losses")
    return root, experiments, runner.run("countdown:tiny:losses", experiments, root, command="a test")


def test_the_recipe_leaves_a_table_with_gains_over_nll_at_the_matched_temperature(made):
    root, experiments, rows = made
    assert {row.name for row in rows} == {one.name for one in experiments}
    assert all(0 <= row.precision <= 1 and 0 <= row.recall <= 1 for row in rows)
    cdiv = next(row for row in rows if row.name == "c-Div 1.25" and row.temperature == 1.0)
    assert (cdiv.versus, cdiv.task) == ("NLL, t=1.25", "countdown")
    assert (root / "countdown_tiny_losses.csv").exists()
    assert all(experiment_from(json.loads(json.dumps(to_json(one)))) == one for one in experiments)


def test_precision_and_recall_are_means_over_problems_of_what_each_answers_probability_says(made):
    """Every answer's probability as a product of softmax entries, one token at a time."""
    root, (nll, *_), rows = made
    model = load_pretrained(folder_of(root, nll).checkpoint).double()
    row = next(row for row in rows if row.name == "NLL" and row.temperature == 0.5)
    precision, recall = [], []
    for problem in nll.model.data.problems():
        mass = []
        for text in nll.model.data.text(problem.answers.tokens_BL):
            tokens = torch.tensor([[CHARACTERS.index(c) for c in f"^{text}"]])
            with torch.no_grad():
                law = (model.logits(tokens[:, :-1])[0] / 0.5).softmax(-1)
            first = len(problem.prompt)
            mass.append(float(torch.stack([law[i, tokens[0, i + 1]] for i in range(first, len(law))]).prod()))
        precision.append(sum(mass))
        recall.append(np.mean([1 - (1 - q) ** 20 for q in mass]))
    assert row.precision == pytest.approx(np.mean(precision), rel=1e-9)
    assert row.recall == pytest.approx(np.mean(recall), rel=1e-9)


def test_its_runs_have_a_page(made):
    root, experiments, _ = made
    html = report([load(folder_of(root, one).path) for one in experiments]).html()
    assert "The trade-off" in html
    assert "countdown, exact" in html
    assert "PR curves" in html


def test_a_second_run_makes_nothing_again(made, monkeypatch):
    root, experiments, rows = made
    monkeypatch.setattr("widen.run.train_small.train_models", lambda *a, **k: pytest.fail("trained again"))
    monkeypatch.setattr("widen.run.runner.score_exactly", lambda *a, **k: pytest.fail("scored again"))
    assert runner.run("countdown:tiny:losses", experiments, root, command="a test") == rows


def test_training_that_was_stopped_ends_with_the_same_bytes(made, tmp_path):
    root, (one, *_), _ = made

    def stop(what, done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_small([one], tmp_path, progress=stop, save_every=2)
    train_small([one], tmp_path, save_every=2)
    first, second = (folder_of(where, one).checkpoint / "model.safetensors" for where in (root, tmp_path))
    assert first.read_bytes() == second.read_bytes()


def test_a_model_without_the_tasks_tokens_and_a_decoding_without_an_exact_score_are_refused(made):
    _, (one, *_), _ = made
    with pytest.raises(ValueError, match=r"model\.vocab=13: the task countdown has 21 tokens"):
        replace(one, model=replace(one.model, model=replace(one.model.model, vocab=13)))
    with pytest.raises(ValueError, match="typical"):
        replace(one, decoding=("t=1,typical=0.9",))
    with pytest.raises(ValueError, match="a KL-guided decoding has no fixed steps to score exactly"):
        replace(one, decoding=("t=1,kl_sigma=3",))


def test_truncated_decodings_are_scored_exactly_too(made):
    """top_k = 1 is greedy: of each problem one sequence has all the mass."""
    root, (one, *_), _ = made
    cut = replace(one, decoding=("t=0", "t=1,top_k=1", "t=1,min_p=0.95,order=temperature_last", "t=1"))
    greedy, first, nucleus, plain = runner.run("cut", [cut], root, command="a test")
    assert (greedy.precision, greedy.recall) == (first.precision, first.recall)
    assert nucleus.values != plain.values
