"""What the log says of decodings that reach far enough is in the kept tables."""

import numpy as np
from kept_tables import assert_shown, rows_of, three_digits

from widen.sample import Decoding


def scores(file, name, goal="recall", module="study"):
    """Precision and goal of one method by decoding, means over seeds and sets of problems."""
    found = {}
    for row in rows_of(file, module):
        if row["name"] == name:
            found.setdefault(Decoding.parse(row["decoding"]), []).append((float(row["precision"]), float(row[goal])))
    return {decoding: np.mean(values, axis=0) for decoding, values in found.items()}


def best(points):
    return max(points, key=lambda one: points[one][1]).in_words


def test_nll_is_best_at_a_decoding_inside_those_that_were_tried():
    countdown = scores("countdown_small_losses", "NLL")
    integers = scores("rivals", "NLL, norm 1", module="mulmod")
    assert best(countdown) == "top_p=0.95 then t=1.5"
    assert {Decoding.parse(spec) for spec in ("top_p=0.95 then t=2", "t=1.5")} <= countdown.keys()
    assert best(integers) == "min_p=0.05 then t=5"
    assert {Decoding.parse(spec) for spec in ("min_p=0.05 then t=10", "min_p=0.02 then t=5")} <= integers.keys()


def test_no_decoding_can_lift_nll_to_the_different_right_texts_of_the_grown_model():
    nll, grown = (scores("e2e_grow", name, "distinct_right") for name in ("NLL", "grown, plain"))
    highest = max(nll, key=lambda one: nll[one][0])
    coolest = min(one.temperature for one in nll)
    assert best(grown) == highest.in_words == f"t={coolest:g}" == "t=0.5"
    assert nll[highest][0] < grown[highest][1]
    right, different = three_digits(nll[highest][0]), three_digits(grown[highest][1])
    said = f"right in at most {right} of its texts, at the lowest temperature that we tried (.5). The grown model has {different}"
    assert_shown({"docs/log.md": [said]})


def test_the_best_decoding_of_qwen_is_the_hottest_with_top_p():
    points = scores("coverageqa_qwen_zero_shot", "all decodings")
    assert best(points) == "top_p=0.95 then t=2"
    assert max(one.temperature for one in points if one.top_p) == 2
