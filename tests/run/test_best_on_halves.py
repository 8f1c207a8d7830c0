"""The decoding of a method is chosen on one half of the problems and scored on the other."""

import pytest

from widen.run.best_on_halves import best_on_halves, halves_csv
from widen.run.record import Record
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
    assert best.decodings == ("t=2", "t=1")
    assert best.value.value == best.precision.value == 0.0
    assert best.gain is None


def test_the_gain_over_the_first_method_is_paired_over_problems_and_has_an_interval_over_seeds():
    nll = [*records({"t=1": [1, 0, 1, 0]}), *records({"t=1": [1, 0, 1, 1]}, seed=1)]
    other = [
        *records({"t=1": [1, 1, 1, 1]}, loss="gem:beta=0.7"),
        *records({"t=1": [1, 1, 1, 1]}, loss="gem:beta=0.7", seed=1),
    ]
    first, second = best_on_halves({"NLL": nll, "GEM": other}, goal="pass@4", shares=(0.0,))
    assert (first.value.value, second.value.value, second.gain.value) == (0.625, 1.0, 0.375)
    assert second.gain.low < 0.375 < second.gain.high
    assert second.gain.half_width > 0
    assert (second.loss, second.seeds, second.problems, second.tried) == ("gem:beta=0.7", 2, 4, 1)


def test_a_method_below_the_required_precision_has_no_values():
    methods = {"NLL": records({"t=1": [4, 4, 4, 4]}), "flat": records({"t=1": [1, 1, 1, 1]})}
    free, _, nll, flat = best_on_halves(methods, goal="pass@4", shares=(0.0, 0.8))
    assert free.decodings == nll.decodings == ("t=1", "t=1")
    assert (flat.decodings, flat.value) == ((), None)
    text = halves_csv([nll, flat], recipe="r", command="c", env={})
    assert text.splitlines()[-2].startswith("r,NLL,nll,1,4,pass@4,0.8,1,t=1,t=1,1,")


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
    assert [(one.name, one.problems, one.value.value) for one in found] == [("NLL", 4, 0.5), ("again", 4, 0.5)]
    assert found[1].gain.value == 0
