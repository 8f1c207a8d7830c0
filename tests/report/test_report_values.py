"""What the page says: warnings, training curves, the verdict, and what is missing."""

import math

import numpy as np
import pytest
from made_runs import MODELS, plain_run, point

from widen.report import warn
from widen.report.lines import group
from widen.report.run_data import SampleCell
from widen.report.run_report import report
from widen.report.training_curves import _thinned, training
from widen.run.against_nll import Mean


def words_of(found):
    return "\n".join(one for said in found.values() for one in said)


def test_every_trap_in_the_runs_is_said(runs):
    said = words_of(warn.warnings(group(runs)))
    assert "Single runs, without an interval over seeds: lambda-PR 0.1." in said
    assert "different versions: torch 2.12.0 and 2.13.0" in said
    assert "delta is 3e-05 for 8 target tokens" in said


def test_duplicates_ceilings_repeats_starvation_and_lost_losses_are_said():
    cells = [SampleCell(label="t=0.1", temperature=0.1, drawn=1000, distinct=3, samples=(), cut=600)]
    log = [
        {"step": 7, "loss": math.nan},
        {"step": 8, "loss": 1.0, "weight_zero_share": 0.999, "warning": "only 0.1 % count"},
    ]
    run = plain_run(points=[point(1.0, recall=0.899, ceiling=0.9, n=500)], cells=cells, log=log)
    other = plain_run("other", seed=1, points=[point(1.0, ceiling=0.9, n=20_000)])
    kept, said = warn.without_duplicates([run, plain_run(folder="again"), other])
    assert (len(kept), said) == (2, ["again is the same model and seed as run: counted once."])
    text = words_of(warn.warnings(group(kept)))
    for words in (
        "at its ceiling of 0.900",
        "only 3 of 1000 samples are different",
        "max-tokens cut 600 of 1000 samples",
        "the loss was nan at step 7",
        "99.90% of the target tokens",
        "different numbers of samples (500, 20000)",
    ):
        assert words in text
    assert "ceiling" not in words_of(warn.warnings(group([other])))


def test_thinning_a_log_keeps_every_spike():
    rows = [{"step": float(i), "loss": 1.0 + (i in (137, 2222)) * 9} for i in range(5000)]
    kept = _thinned(rows, 200)
    assert len(kept) <= 200
    assert {row["step"] for row in kept if row["loss"] > 5} == {137, 2222}


def test_every_logged_number_has_a_figure_with_one_line_a_run(lines):
    (section,) = training(list(lines.values()))
    (choice,) = section.parts
    assert list(choice.figures)[:3] == ["loss", "nll", "grad_norm"]
    assert {"weight_mean", "weight_max", "weight_ess", "weight_zero_share"} <= set(choice.figures)
    assert len(choice.figures["nll"].figure["data"]) == 10


def test_the_page_opens_with_a_verdict_that_says_what_the_scores_mean(report_page):
    html = report_page.read_text()
    first = html[html.index("<section") : html.index("</section>")]
    assert '<h2 id="verdict-title">Verdict</h2>' in first
    assert "Most recall with precision at least 0.90" in first
    assert "Precision is the probability that a sample is right" in first


def test_there_is_no_winner_where_every_score_is_zero():
    nothing = [
        plain_run(name, loss=loss, points=[point(1.0, 0.0, 0.0)]) for name, loss in (("a", "nll"), ("b", "gold"))
    ]
    assert report(nothing).sections[0].text[0].startswith("No winner: every model has recall 0")


def test_a_page_of_a_run_without_anything_says_what_is_missing():
    html = report([plain_run()]).html()
    for words in (
        "No run has a score",
        "No run has a training log",
        "No run has samples",
        "without an interval over seeds",
    ):
        assert words.lower() in html.lower()


def test_no_runs_are_refused():
    with pytest.raises(ValueError, match="no runs to report on"):
        report([])


def test_every_model_of_the_fixture_has_its_own_setting():
    assert len({loss for loss, *_ in MODELS.values()}) == len(MODELS)


def test_error_bars_of_the_static_figure_end_at_0_and_1():
    from widen.report.paper_figures.look import _arms

    means = [Mean(value=value, half_width=bar) for value, bar in ((0.02, 0.1), (0.5, 0.1), (0.97, 0.1), (1.0, None))]
    np.testing.assert_allclose(_arms(means), [[0.02, 0.1, 0.1, 0.0], [0.1, 0.1, 0.03, 0.0]])
    assert _arms(means[3:]) is None
