"""The joint frontier, the window it opens on, and what the separation of tokens says, without a browser."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.metrics import ratio_histogram, separation_scores
from widen.report.frontier_plot import Window, envelope, temperature_line, zoom
from widen.report.lines import LinePoint, ModelLine
from widen.report.run_data import RunData
from widen.report.separation_histograms import line_separation, separation_section
from widen.run.against_nll import Mean
from widen.run.record import Record
from widen.sample import Decoding


def point(precision, recall, spec="t=1"):
    return LinePoint(
        kind="exact",
        decoding=Decoding.parse(spec),
        precision=Mean(value=precision),
        recall=Mean(value=recall),
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_the_envelope_is_every_value_that_nothing_beats_in_recall_order(pairs):
    found = [(p.precision.value, p.recall.value) for p in envelope(point(*pair) for pair in pairs)]
    best = {a for a in pairs if not any(b != a and b[0] >= a[0] and b[1] >= a[1] for b in pairs)}
    assert found == sorted(best, key=lambda pair: pair[1])


def test_temperature_alone_leaves_every_other_decoding_out():
    points = [point(0.9, 0.5, spec) for spec in ("t=2", "t=1,min_p=0.1", "t=0.5", "t=1,top_p=0.9")]
    assert [p.decoding.spec for p in temperature_line(points)] == ["t=0.5", "t=2"]


def test_the_zoom_shows_the_targets_and_hides_both_tails():
    nll = [(0.999, 0.05), (0.99, 0.3), (0.98, 0.546), (0.95, 0.636), (0.9, 0.68), (0.5, 0.7), (0.02, 0.1)]
    cut = [(0.98, 0.566), (0.95, 0.666), (0.9, 0.716)]
    model = [point(*pair) for pair in nll] + [point(*pair, "t=2,min_p=0.1,order=temperature_last") for pair in cut]
    (left, right), (low, high) = zoom(model)
    assert all(left < r < right and low < p < high for p, r in (*nll[2:5], *cut))
    assert left > 0.3
    assert low > 0.7
    (left, right), (low, high) = Window.around(model)
    assert all(left < r < right and low < p < high for p, r in nll)


def test_there_is_no_zoom_where_it_would_hide_little_or_nothing_is_right():
    assert zoom([point(0.9, 0.5), point(0.85, 0.6), point(0.8, 0.7)]) is None
    assert zoom([point(0.0, 0.0), point(0.0, 0.1), point(0.0, 0.2)]) is None
    assert zoom([point(0.9, 0.5)]) is None


def line(*details, name="NLL"):
    runs = [
        RunData(
            name=f"run{seed}",
            experiment={"name": name},
            records=[
                Record(
                    task="mulmod",
                    model="m",
                    loss="nll",
                    decoding=None,
                    seed=seed,
                    metric="separation",
                    value=0.9 + 0.02 * seed,
                    detail=detail,
                )
            ],
        )
        for seed, detail in enumerate(details)
    ]
    return ModelLine(name=name, loss="nll", runs=runs, points=[])


def detail(valid, invalid, threshold=0.1, edges=(0.001, 0.01, 0.1, 1.0)):
    histogram = {"edges": list(edges), "valid": list(valid), "invalid": list(invalid)}
    return {"threshold": threshold, "valid_below_noise": 0.03, "histogram": histogram}


def test_seeds_are_averaged_as_shares_and_other_edges_are_left_out():
    found = line_separation(
        line(detail((0, 1, 9), (6, 2, 0)), detail((0, 0, 50), (2, 2, 0)), detail((1, 1), (1, 1), edges=(0, 0.5, 1)))
    )
    assert found.auc.count == 2
    assert found.right == pytest.approx((0, 0.05, 0.95))
    assert found.wrong == pytest.approx((0.625, 0.375, 0))
    assert found.kept == pytest.approx((0.95, 0))


def test_the_page_says_what_no_cut_off_can_reach_and_recommends_no_decoding():
    """Fifty of 5,000 tokens are wrong and above every right one: a threshold drops 99 % of the wrong tokens, and none can help."""
    q, right = -np.log(np.arange(1.0, 5001.0)), np.zeros((1, 5000))
    right[0, 50:60] = 0.1
    found, bins = separation_scores(right, q[None]), ratio_histogram(right, q[None])
    assert found.auc > 0.98
    (section,) = separation_section(
        [line(detail(bins.right, bins.wrong, found.threshold, bins.edges) | {"valid_below_noise": found.below_noise})]
    )
    assert section.text[1].startswith(
        "NLL: 100 % of the right tokens are no more probable than the most probable wrong"
    )
    assert section.text[1].endswith("of the right tokens and 1 % of the wrong ones.")
    assert "min_p" not in " ".join(section.text)
    assert "see 'Best setting for a target'" in section.text[-1]


def test_the_picture_starts_where_the_tokens_are():
    edges = [10.0**k for k in range(-8, 1)]
    (section,) = separation_section([line(detail([0] * 6 + [1, 9], [0] * 5 + [5, 4, 1], edges=edges))])
    (picture,) = section.parts[0].figures.values()
    axis = picture.figure["layout"]["xaxis"]
    assert axis["range"] == pytest.approx([-3, 0])
    assert axis["ticktext"] == ["0.001", "0.01", "0.1", "1"]


def test_there_is_no_separation_section_without_a_whole_record():
    broken = detail((1, 2), (1, 2, 3))
    empty = detail((0, 0, 0), (1, 2, 3))
    assert separation_section([line(broken), line(empty), line({"threshold": 0.1})]) == []
    (section,) = separation_section([line(detail((0, 1, 9), (6, 2, 0)))])
    assert section.short == "Separation"
