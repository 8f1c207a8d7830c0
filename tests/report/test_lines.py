"""Seeds become lines, and c-Div meets NLL at alpha t."""

import math

import numpy as np
import pytest
from made_runs import TEMPERATURES, case, plain_run, point

from widen.report import matched
from widen.report.lines import baseline, group
from widen.report.pr_curve_plots import shared_decodings
from widen.report.run_data import RunData
from widen.run.against_nll import cdiv_order, mean_of

QUANTILES = {2: 12.706204736432095, 3: 4.302652729911275, 5: 2.7764451051977987, 10: 2.2621571627409915}


@pytest.mark.parametrize("count", QUANTILES)
def test_the_interval_over_seeds_is_students(count):
    values = np.random.default_rng(count).random(count).tolist()
    found = mean_of([point(1.0, value)[0] for value in values])
    spread = math.sqrt(sum((x - sum(values) / count) ** 2 for x in values) / (count - 1))
    assert found.value == pytest.approx(sum(values) / count, abs=1e-12)
    assert found.half_width == pytest.approx(QUANTILES[count] * spread / math.sqrt(count), rel=1e-9)


def test_runs_of_one_name_are_seeds_of_one_line(lines):
    assert {name: len(line.runs) for name, line in lines.items()} == {
        "NLL": 3,
        "TruncR 0.1": 3,
        "c-Div 1.4": 3,
        "lambda-PR 0.1": 1,
    }
    at_one = next(p for p in lines["c-Div 1.4"].points if p.kind == "mulmod, exact" and p.temperature == 1.0)
    values = [float(case("c-Div 1.4", seed).precision(math.inf, 1.0)) for seed in range(3)]
    assert at_one.precision.value == pytest.approx(np.mean(values), abs=1e-12)
    assert at_one.precision.count == 3
    single = next(p for p in lines["lambda-PR 0.1"].points if p.kind == "mulmod, exact")
    assert single.precision.half_width is None


def test_one_name_for_two_settings_is_told_apart_by_what_differs():
    rare, common = (plain_run(seed=s, data={"under_representation": b, "seed": s}) for s, b in ((0, 0.1), (1, 0.3)))
    assert [line.name for line in group([rare, common])] == [
        "NLL (under_representation=0.1)",
        "NLL (under_representation=0.3)",
    ]


def test_a_model_and_the_start_that_it_grew_from_are_told_apart_by_the_start():
    start = {"model": "smollm2", "epochs": 2.0, "batch_size": 64}
    grown = plain_run("nll", folder="grown", **start, after=start | {"loss": "nll", "after": None})
    names = [line.name for line in group([plain_run("nll", folder="start", **start, after=None), grown])]
    assert names == ["nll (from the start)", "nll (after nll)"]


def test_nll_comes_first_so_that_its_colour_is_the_same_on_every_page_and_static_figure():
    lines = group([plain_run("c-Div", loss="cdiv:alpha=2.0"), plain_run()])
    assert [(line.name, line.style) for line in lines] == [("NLL", 0), ("c-Div", 1)]


def test_the_papers_points_stand_beside_ours(lines):
    (published,) = lines["c-Div 1.4"].published
    assert (published.precision, published.recall) == (0.542, 0.619)
    assert lines["NLL"].published == []


@pytest.mark.parametrize(
    ("loss", "alpha"),
    [
        ("cdiv:alpha=1.4,cap=10000.0", 1.4),
        ("nll:steps=3000 then cdiv:alpha=2.0", 2.0),
        ("cdiv:cap=9,alpha=0.5", 0.5),
        ("gold", 0.5),
        ("nll", None),
        ("tailr:gamma=0.1 * cdiv:alpha=2", None),
    ],
)
def test_the_order_of_c_div_is_read_from_its_spec(loss, alpha):
    assert cdiv_order(loss) == alpha


def test_c_div_at_t_is_paired_with_nll_at_alpha_t(lines):
    nll = baseline(lines["c-Div 1.4"], list(lines.values()))
    assert nll.name == "NLL"
    found = matched.matches(lines["c-Div 1.4"], nll, kind="mulmod, exact")
    assert [one.temperature for one, _, _ in found] == list(TEMPERATURES)
    for one, at, match in found:
        assert at == pytest.approx(1.4 * one.temperature)
        assert match.source == "scored"
        truth = np.mean([float(case("NLL", seed).precision(math.inf, at)) for seed in range(3)])
        assert match.precision.value == pytest.approx(truth, abs=1e-9)


def test_between_scored_temperatures_nll_is_interpolated_in_log_t_and_beyond_them_it_is_named_as_not_scored():
    nll = group([plain_run(points=[point(1.0, 0.9, 0.4), point(4.0, 0.5, 0.6)])])[0]
    cdiv = group([plain_run("c-Div", loss="cdiv:alpha=2.0", points=[point(1.0), point(3.0)])])[0]
    (_, _, inside), (_, at, beyond) = matched.matches(cdiv, nll, kind="mulmod, exact")
    assert (inside.precision.value, inside.recall.value) == pytest.approx(
        (0.7, 0.5)
    )  # 2 lies half way from 1 to 4 in log t
    assert (inside.source, at, beyond) == ("interpolated", 6.0, None)
    (section,) = matched.matched_temperatures([nll, cdiv])
    assert [(row[2], row[-1]) for row in section.parts[1].rows] == [(2.0, "interpolated"), (6.0, "not scored")]


def test_there_is_no_baseline_on_other_data():
    cdiv = group([plain_run("c-Div", loss="cdiv:alpha=2.0", data={"b": 0.1})])[0]
    nll = group([plain_run(data={"b": 0.3})])[0]
    assert baseline(cdiv, [cdiv, nll]) is None


def test_a_fine_tuned_model_is_compared_with_nll_of_the_same_training_and_not_with_its_own_start():
    def run(name, loss, *, after, points):
        model = {"loss": loss, "seed": 0, "model": "lm", "train": {"path": "x"}, "epochs": 1, "after": after}
        records = [r for two in points for r in two]
        return RunData(name=name, experiment={"name": name, "model": model}, records=records)

    start = {"loss": "nll", "epochs": 3}
    lines = group(
        [
            run("start", "nll", after=None, points=[point(1.4)]),
            run("c-Div", "cdiv:alpha=1.4", after=start, points=[point(1.0)]),
            run("NLL", "nll", after=start, points=[point(1.4)]),
        ]
    )
    cdiv = next(line for line in lines if line.name == "c-Div")
    assert baseline(cdiv, lines).name == "NLL"
    assert baseline(cdiv, [line for line in lines if line.name != "NLL"]) is None


def test_the_baseline_is_the_nll_line_that_was_trained_alike():
    def run(name, loss, clip):
        return RunData(
            name=name, experiment={"name": name, "model": {"loss": loss, "data": {}, "model": {}, "clip": clip}}
        )

    lines = group([run("NLL", "nll", None), run("NLL, clipped", "nll", 1.0), run("c-Div", "cdiv:alpha=2.0", 1.0)])
    assert baseline(lines[2], lines).name == "NLL, clipped"
    assert baseline(lines[2], [lines[0], lines[2]]) is None


def test_the_slider_has_the_temperatures_that_most_lines_share(lines):
    assert [d.temperature for d in shared_decodings(list(lines.values()))] == list(TEMPERATURES)
