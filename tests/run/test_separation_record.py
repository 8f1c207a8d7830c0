"""The separation record of exact scores: one per run, of the model's own law, with histograms for a picture."""

from collections import Counter

import numpy as np
import pytest
import torch

from widen.metrics import separation_scores
from widen.models.convert import load_pretrained
from widen.models.likelihood import next_logits
from widen.run import recipe
from widen.run.folder import folder_of
from widen.run.runner import score_one
from widen.run.scoring import listed_answers
from widen.run.scoring.job import ScoreJob, ScoreTools
from widen.run.table import summarise
from widen.run.train_small import train_small
from widen.theory import valid_continuations


@pytest.fixture(scope="module", params=["mulmod:tiny:temperature", "countdown:tiny:losses"])
def scored(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    experiment = recipe.find("widen_recipes", request.param)[0]
    train_small([experiment], root)
    return root, experiment, score_one(ScoreJob(folder_of(root, experiment), experiment, (), ScoreTools(root)))


def test_a_run_has_one_separation_record_with_two_histograms_that_sum_to_one(scored):
    (record,) = [r for r in scored[2] if r.metric == "separation"]
    assert record.decoding is None
    assert 0 <= record.value <= 1
    assert 0 < record.detail["threshold"] <= 1
    assert 0 <= record.detail["valid_below_noise"] <= 1
    histogram = record.detail["histogram"]
    assert len(histogram["edges"]) == 41
    for side in ("valid", "invalid"):
        assert len(histogram[side]) == 40
        assert sum(histogram[side]) == pytest.approx(1.0)


def test_the_record_is_the_metric_over_the_prefixes_of_every_problem(scored):
    root, experiment, records = scored
    model = load_pretrained(folder_of(root, experiment).checkpoint)
    parts = []
    for problem in experiment.model.data.problems():
        tokens, mask = problem.answers.tokens_BL.numpy(), problem.answers.target_mask.numpy()
        for row in mask:
            assert row[np.flatnonzero(row)[0] : np.flatnonzero(row)[-1] + 1].all()
        first = np.flatnonzero(mask[0])[0]
        found = valid_continuations(np.where(mask, tokens[:, 1:], -1)[:, first:])
        logits = next_logits(model, tokens).numpy()[found.sequence, found.position + first]
        parts.append((found.dense(model.shape.vocab), logits, found.mass / len(experiment.model.data.problems())))
    reference, logits, weights = (np.concatenate(each) for each in zip(*parts, strict=True))
    wanted = separation_scores(reference, logits, weights=weights)
    (record,) = [r for r in records if r.metric == "separation"]
    assert (record.value, record.n) == (pytest.approx(wanted.auc), wanted.contexts)
    assert record.detail["valid_below_noise"] == pytest.approx(wanted.below_noise)


def test_with_too_many_prefixes_every_problem_draws_as_many(scored, monkeypatch):
    root, experiment, records = scored
    problems = len(experiment.model.data.problems())
    monkeypatch.setattr(listed_answers, "CONTEXT_LOGITS", 3 * problems * experiment.model.model.vocab)
    fewer = listed_answers.score_exactly(ScoreJob(folder_of(root, experiment), experiment, (), ScoreTools(root)))
    (all_of_them,), (drawn,) = ([r for r in some if r.metric == "separation"] for some in (records, fewer))
    assert drawn.n == 3 * problems < all_of_them.n


@pytest.mark.parametrize("most", [3])
def test_drawn_prefixes_weigh_on_average_what_all_weigh(most):
    """With one context per problem too, later positions count as much as the first."""
    tokens = np.array([[0, *map(int, f"{number:03d}"), 9] for number in range(50)])
    answers = listed_answers.Listed(tokens, np.ones((50, 4), bool), np.arange(50))
    logits = torch.zeros(50, 4, 10)
    logits[:, :, 0] = torch.arange(200).reshape(50, 4)  # says which prefix this is
    logits[:, 0, 0] = 0
    _, every, mass = listed_answers._contexts(logits, answers, 1000, 0.0)
    weight = Counter()
    for start in (np.arange(2000) + 0.5) / 2000:
        right, found, drawn = listed_answers._contexts(logits, answers, most, start)
        assert len(right) == len(found) == len(drawn) <= most
        assert drawn.sum() == pytest.approx(mass.sum())
        weight.update(dict(zip(found[:, 0], drawn / 2000, strict=True)))
    np.testing.assert_allclose([weight[name] for name in every[:, 0]], mass, atol=0.01)


def test_the_table_shows_the_separation_in_the_row_of_t_1_and_nowhere_else(scored):
    rows = summarise("x", [(scored[1], scored[2])])
    assert [row.decoding for row in rows if "separation" in row.values] == ["t=1"]
    assert all("precision" in row.values for row in rows)
