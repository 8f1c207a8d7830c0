"""The decoding of a method is chosen on one half of the problems and scored on the other."""

import numpy as np
import pytest

from widen.run.best_on_halves import best_on_halves
from widen.run.record import Record
from widen.run.score_settings import ExactScore, ProgramScore, SlotScore, goals_of, may_mix
from widen.run.table import to_csv
from widen.sample import Decoding


def records(points, *, loss="nll", seed=0):
    """``points``: {spec: right answers of four of each of the problems}."""
    found = []
    for spec, right in points.items():
        about = {"task": "mathqa_python", "model": "m", "loss": loss, "seed": seed, "decoding": Decoding.parse(spec)}
        detail = {"counts": {f"p{i}": [4, c] for i, c in enumerate(right)}}
        found += [
            Record(**about, metric=metric, value=0.0, detail=detail if metric == "precision" else {})
            for metric in ("precision", "pass@1", "pass@4")
        ]
    return found


def test_each_half_is_scored_under_the_decoding_that_the_other_half_chose():
    """Problems 0 and 2 solve more at t = 2, problems 1 and 3 at t = 1: each half gets the choice of the other."""
    (best,) = best_on_halves({"NLL": records({"t=1": [0, 4, 0, 4], "t=2": [4, 0, 4, 0]})}, goal="pass@4", shares=(0.0,))
    assert (best["decoding_1"], best["decoding_2"]) == ("t=2", "t=1")
    assert best["value"] == best["precision"] == 0.0
    assert "gain" not in best


def test_the_gain_over_the_first_method_is_paired_over_problems_and_has_an_interval_over_seeds():
    nll = [*records({"t=1": [1, 0, 1, 0]}), *records({"t=1": [1, 0, 1, 1]}, seed=1)]
    other = [
        *records({"t=1": [1, 1, 1, 1]}, loss="gem:beta=0.7"),
        *records({"t=1": [1, 1, 1, 1]}, loss="gem:beta=0.7", seed=1),
    ]
    first, second = best_on_halves({"NLL": nll, "GEM": other}, goal="pass@4", shares=(0.0,))
    assert (first["value"], second["value"], second["gain"]) == (0.625, 1.0, 0.375)
    assert second["gain_low"] < 0.375 < second["gain_high"]
    assert second["gain_half_width"] > 0
    assert [second[name] for name in ("loss", "seeds", "problems", "tried")] == ["gem:beta=0.7", 2, 4, 1]


def test_a_method_below_the_required_precision_has_no_values():
    methods = {"NLL": records({"t=1": [4, 4, 4, 4]}), "flat": records({"t=1": [1, 1, 1, 1]})}
    free, _, nll, flat = best_on_halves(methods, goal="pass@4", shares=(0.0, 0.8))
    assert free["decoding_2"] == nll["decoding_1"] == nll["decoding_2"] == "t=1"
    assert not {"decoding_1", "value"} & flat.keys()
    assert to_csv([nll, flat], command="c", env={}).splitlines()[-2].startswith("NLL,nll,1,4,pass@4,0.8,1,t=1,t=1,1,")


@pytest.mark.parametrize("drop", ["counts", "twice"])
def test_scores_that_are_not_known_by_problem_or_are_ambiguous_give_no_rows(drop):
    found = records({"t=1": [1, 2]})
    if drop == "counts":
        found = [Record(**{**vars(one), "detail": {}}) for one in found]
    else:
        found *= 2
    assert best_on_halves({"NLL": found}, goal="pass@4") == []


def test_the_folds_of_a_method_are_joined_and_a_method_without_one_fold_is_left_out():
    def fold(name, right):
        found = records({"t=1": right})
        return [Record(**{**vars(one), "detail": {**one.detail, "score": {"prompts": name}}}) for one in found]

    whole = [*fold("b", [4, 4]), *fold("a", [0, 0])]
    found = best_on_halves({"NLL": whole, "half": fold("a", [0, 0]), "again": whole}, goal="pass@4", shares=(0.0,))
    assert [(one["name"], one["problems"], one["value"]) for one in found] == [("NLL", 4, 0.5), ("again", 4, 0.5)]
    assert found[1]["gain"] == 0


def exact_records(precision, recall):
    """One record of each metric for every row of values by problem; row i is the decoding at temperature i + 1."""
    found = []
    for number, rows in enumerate(zip(precision, recall, strict=True), start=1):
        about = {"task": "answers", "model": "m", "loss": "nll", "seed": 0, "decoding": Decoding(temperature=number)}
        for metric, values in zip(("precision", "recall"), rows, strict=True):
            detail = {"by_problem": np.asarray(values).tolist()}
            found.append(Record(**about, metric=metric, value=float(np.mean(values)), detail=detail))
    return found


def test_a_mixture_of_two_decodings_meets_the_required_precision_exactly():
    """Precision 1 and recall 0 at t = 1, .5 and 1 at t = 2. Half of the samples from each have precision .75."""
    found = exact_records([[1.0] * 6, [0.5] * 6], [[0.0] * 6, [1.0] * 6])
    free, some, most = best_on_halves({"NLL": found}, goal="recall", shares=(0.0, 0.75, 0.9))
    assert (free["decoding_1"], free["precision"], free["value"]) == ("t=2", 0.5, 1.0)
    assert some["decoding_1"] == some["decoding_2"] == "t=1 (0.50) or t=2 (0.50)"
    assert (some["precision"], some["value"]) == pytest.approx((0.75, 0.5))
    assert (most["precision"], most["value"]) == pytest.approx((0.9, 0.2))


def test_without_mixtures_a_single_decoding_with_enough_precision_is_chosen():
    """For k-NN recall, a mixture may have less than the weighted mean."""
    found = exact_records([[1.0] * 6, [0.5] * 6], [[0.0] * 6, [1.0] * 6])
    (row,) = best_on_halves({"NLL": found}, goal="recall", shares=(0.75,), mixtures=False)
    assert (row["decoding_1"], row["precision"], row["value"]) == ("t=1", 1.0, 0.0)


def test_only_k_nn_recall_is_compared_without_mixtures():
    found = {
        (type(score).__name__, goal): may_mix(score, goal)
        for score in (ExactScore(), ProgramScore(distinct=True), SlotScore(embedder="e"))
        for goal in goals_of(score)
    }
    assert [key for key, mixes in found.items() if not mixes] == [("SlotScore", "recall")]
    assert len(found) == 5


def test_the_coverage_of_a_mixture_is_at_least_the_weighted_mean_that_is_counted():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, share = rng.integers(1, 200), rng.random()
        one, other = rng.dirichlet(np.full(8, 0.2), size=2)
        seen = [(1 - (1 - q) ** n).sum() for q in (one, other, share * one + (1 - share) * other)]
        assert seen[2] >= share * seen[0] + (1 - share) * seen[1] - 1e-12


def exchangeable_methods(rng, temperatures=(0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5), problems=60, right=20, tokens=200):
    """Two models with the same logits but for noise, so that neither is better. Exact precision, and coverage in 100 samples."""
    logits = rng.normal(0, 2, (problems, tokens))
    logits[:, :right] += 3
    for _ in range(2):
        lead = logits + rng.normal(0, 0.05, logits.shape)
        lead -= lead.max(axis=1, keepdims=True)
        laws = [np.exp(lead / t) for t in temperatures]
        shares = [(law / law.sum(axis=1, keepdims=True))[:, :right] for law in laws]
        yield exact_records([q.sum(1) for q in shares], [(1 - (1 - q) ** 100).mean(1) for q in shares])


def test_of_two_methods_that_are_equally_good_few_intervals_exclude_no_gain():
    """Where precision must be high, intervals that took the chosen decoding as given were wrong in a third of the cases or more."""
    rng, wrong, worlds = np.random.default_rng(1), 0, 60
    for _ in range(worlds):
        one, other = exchangeable_methods(rng)
        row = best_on_halves({"NLL": one, "other": other}, goal="recall", shares=(0.95,))[1]
        wrong += not row["gain_low"] <= 0 <= row["gain_high"]
    assert wrong <= 0.15 * worlds
