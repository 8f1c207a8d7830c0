"""The best setting at a required precision: chosen on other seeds than it is reported on, from as many settings for every method."""

import numpy as np
import pytest

from widen.run.best_setting import best_of_methods, best_setting, what_helped
from widen.run.record import Record
from widen.sample import Decoding

HEATED = Decoding.truncate_then_heat()


def records(points, *, loss="nll", seed=0):
    """``points``: {spec: (precision, recall)}."""
    about = {"task": "mulmod", "model": "llama", "loss": loss, "seed": seed}
    return [
        Record(**about, decoding=Decoding.parse(spec), metric=metric, value=value)
        for spec, values in points.items()
        for metric, value in zip(("precision", "recall"), values, strict=True)
    ]


def test_each_seed_is_scored_under_the_decoding_that_the_other_seeds_choose():
    """Seed 2 alone likes t = 2; the other two choose t = 1 for it, and so the luck of t = 2 at seed 2 is not reported."""
    of_seed = [{"t=1": (0.95, 0.6), "t=2": (0.95, 0.5)}, {"t=1": (0.95, 0.6), "t=2": (0.95, 0.5)}]
    of_seed.append({"t=1": (0.95, 0.6), "t=2": (0.95, 0.9)})
    best = best_setting([r for seed, points in enumerate(of_seed) for r in records(points, seed=seed)])
    assert best.decoding == Decoding(temperature=2.0)  # the mean over all seeds: .633 against .6
    assert best.recall.value == pytest.approx((0.5 + 0.5 + 0.6) / 3)
    assert (best.recall.count, best.tried) == (3, 2)
    assert best.recall.half_width == pytest.approx(4.302653 * np.std([0.5, 0.5, 0.6], ddof=1) / np.sqrt(3), rel=1e-5)


def test_one_seed_is_scored_under_its_own_choice():
    best = best_setting(records({"t=1": (0.95, 0.6), "t=2": (0.89, 0.9)}))
    assert (best.decoding.spec, best.recall.value, best.recall.half_width) == ("t=1", 0.6, None)


def test_a_precision_that_is_never_reached_has_no_best_setting():
    assert best_setting(records({"t=1": (0.8, 0.6)})) is None
    low = records({"t=1": (0.85, 0.6)}, seed=0) + records(
        {"t=1": (0.99, 0.6)}, seed=1
    )  # .92 over both, .85 over seed 0
    assert best_setting(low) is None


def test_records_that_do_not_compare_are_refused():
    one = records({"t=1": (0.9, 0.5)})
    with pytest.raises(ValueError, match="give the records of one method"):
        best_setting([*one, *one])
    with pytest.raises(ValueError, match="seed 1 was not scored under the same decodings"):
        best_setting([*one, *records({"t=2": (0.9, 0.5)}, seed=1)])
    with pytest.raises(ValueError, match="none holds precision"):
        best_setting([])
    with pytest.raises(ValueError, match=r"precision=90"):
        best_setting(one, precision=90)


def test_methods_are_compared_over_the_decodings_that_all_have():
    nll, cdiv = records({"t=1": (0.9, 0.5)}), records({"t=1": (0.9, 0.5), "t=2": (0.9, 0.6)})
    rows = best_of_methods({"NLL": nll, "c-Div": cdiv}, levels=(0.9,))
    assert [(row.tried, row.any_decoding.decoding.spec) for row in rows] == [(1, "t=1")] * 2
    assert best_of_methods({"NLL": nll, "c-Div": records({"t=2": (0.9, 0.6)})}) == []


def test_the_sentence_splits_the_gain_between_decoding_data_and_loss():
    nll = records({"t=1": (0.95, 0.68), HEATED.spec: (0.91, 0.72)})
    cdiv = records({"t=1": (0.95, 0.70), HEATED.spec: (0.91, 0.73)}, loss="cdiv:alpha=1.5")
    rows = best_of_methods({"NLL": nll, "c-Div 1.5": cdiv}, levels=(0.9, 0.99))
    assert what_helped(rows) == (
        "At precision >= 0.9: NLL has recall 0.680 at temperature alone (t=1, best of 1 settings); +0.040 from the decoding "
        "(min_p=0.1 then t=2, best of 2); +0.010 from the loss (c-Div 1.5, min_p=0.1 then t=2)."
    )
    once = records({"t=1": (0.95, 0.74), HEATED.spec: (0.91, 0.73)})
    three = best_of_methods({"NLL": nll, "c-Div 1.5": cdiv, "NLL, each once": once}, other_data=["NLL, each once"])
    assert "; +0.020 from the data (NLL, each once, t=1); +0.010 from the loss" in what_helped(three)
    two = best_of_methods({"NLL": nll, "c-Div": cdiv, "c-Div 2": cdiv})
    assert "from the loss (c-Div, min_p=0.1 then t=2, best of 2 losses x 2)." in what_helped(two)
    assert what_helped(rows[:1]).endswith("best of 2); no other loss reaches that precision.")
    assert what_helped(rows, level=0.99) == "At precision >= 0.99: no NLL model reaches it."
    cells = rows[0].cells()
    assert [(c["family"], c["settings"], c["recall"]) for c in cells] == [
        ("temperature alone", 1, 0.68),
        ("any decoding", 2, 0.72),
    ]
    assert "recall" not in rows[2].cells()[0]  # not reached: no numbers
