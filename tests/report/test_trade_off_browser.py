"""Frontiers, the best setting for a target and the separation of tokens, in a real browser."""

import math

import numpy as np
import pytest
from made_runs import MODELS, TEMPERATURES, settings_of
from report_in_browser import overlapping_labels, plotted, scroll_through

from widen.run.against_nll import welch

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(open_page, report_page):
    opened = open_page(report_page)
    scroll_through(opened.page)
    return opened.page


def best_for(want, least, careful):
    """The best setting by brute force over the numbers that the fixture wrote."""
    best = None
    for name in MODELS:
        for decoding, (precisions, recalls) in settings_of(name).items():
            scores = {"precision": precisions, "recall": recalls}
            low = {}
            for score, values in scores.items():
                half = (
                    {1: 0.0, 3: 4.302652729911275}[len(values)]
                    * np.std(values, ddof=len(values) > 1)
                    / math.sqrt(len(values))
                )
                low[score] = np.mean(values) - careful * half
            given = low["precision" if want == "recall" else "recall"]
            if given >= least and (best is None or low[want] > best[0]):
                best = (low[want], name, decoding)
    return best


def target(page, want, least, careful=False):
    page.select_option("[data-pick=kind]", "mulmod, exact")
    page.check(f"input[name=target][value={want}]")
    page.set_checked("[data-pick=careful]", careful)
    page.locator("[data-pick=level]").fill(str(round(100 * least)))


@pytest.mark.parametrize(
    ("want", "least", "careful"),
    [("recall", 0.9, False), ("recall", 0.96, True), ("recall", 0.96, False), ("precision", 0.58, True)],
)
def test_a_target_is_answered_with_the_best_setting(page, want, least, careful):
    target(page, want, least, careful)
    _, name, decoding = best_for(want, least, careful)
    answer = page.text_content("[data-shown=answer]")
    assert answer.startswith(f"Most {want} with")
    assert f"{name} ({MODELS[name][0]}) at {decoding}," in answer
    assert page.text_content("[data-name=best-points] tbody tr.best td") == name


def test_being_careful_can_change_the_answer():
    """Else the test above could not tell the two apart."""
    assert best_for("recall", 0.96, True)[1:] != best_for("recall", 0.96, False)[1:]


def best_of(name, least, specs):
    """(recall, spec) of the best decoding among ``specs`` with enough precision."""
    found = {spec: settings_of(name)[spec] for spec in specs}
    reach = {spec: np.mean(recalls) for spec, (precisions, recalls) in found.items() if np.mean(precisions) >= least}
    return max((value, spec) for spec, value in reach.items())


def test_a_gain_is_split_into_what_the_decoding_and_what_the_loss_brought(page):
    target(page, "recall", 0.95)
    every = list(settings_of("NLL"))
    start, spec0 = best_of("NLL", 0.95, [spec for spec in every if "min_p" not in spec])
    decoded, spec1 = best_of("NLL", 0.95, every)
    for name in ("c-Div 1.4", "TruncR 0.1"):
        final, spec2 = best_of(name, 0.95, settings_of(name))
        row = page.locator("[data-name=best-points] tbody tr", has=page.get_by_text(name, exact=True))
        cells = row.locator("td").all_text_contents()
        assert cells[1] == spec2
        by_decoding, by_loss = (cell.replace("\u00a0", " ").split(" ± ") for cell in cells[4:6])
        assert float(by_decoding[0]) == pytest.approx(decoded - start, abs=6e-4)
        assert float(by_loss[0]) == pytest.approx(final - decoded, abs=6e-4)
        first, second = settings_of(name)[spec2][1], settings_of("NLL")[spec1][1]
        assert float(by_loss[1]) == pytest.approx(welch(first, second), abs=6e-4)
        paired = np.subtract(settings_of("NLL")[spec1][1], settings_of("NLL")[spec0][1])
        half = 4.302652729911275 * np.std(paired, ddof=1) / math.sqrt(3)
        assert float(by_decoding[1]) == pytest.approx(half, abs=6e-4)
        assert cells[6] == str(len(settings_of(name)))
    assert spec0 != spec1  # NLL itself gains from truncation, else the two gains could not be told apart


def test_different_grids_are_said_and_can_be_made_alike(page):
    target(page, "recall", 0.95)
    note = page.locator("[data-shown=grids]")
    assert "NLL: 27, TruncR 0.1: 21, c-Div 1.4: 21" in note.text_content()
    page.check("[data-pick=shared]")
    assert not note.is_visible()
    counts = page.locator("[data-name=best-points] tbody tr td:nth-child(7)").all_text_contents()
    assert set(counts) == {"21"}
    page.uncheck("[data-pick=shared]")


def shown_points(page):
    """{(line, decoding): (recall, precision)} of the frontier figure."""
    rows = page.evaluate(
        "document.querySelector('[data-name=frontier] .plot').data.flatMap(t => t.x.map((x, i) => [t.name, t.customdata[i], x, t.y[i]]))"
    )
    return {(name, decoding): (recall, precision) for name, decoding, recall, precision in rows if decoding}


def test_the_frontier_holds_the_best_of_all_decodings_and_temperature_alone_is_one_click_away(page):
    shown = shown_points(page)
    for name in MODELS:
        every = {spec: (np.mean(r), np.mean(p)) for spec, (p, r) in settings_of(name).items()}
        for spec, at in every.items():
            beaten = any(all(np.greater_equal(o, at)) and o != at for o in every.values())
            assert ((name, spec) in shown) == (not beaten or "min_p" not in spec), (name, spec)
            if (name, spec) in shown:
                assert shown[name, spec] == pytest.approx(at, abs=1e-12)
    page.check("input[name=decodings][value=temperature]")
    alone = shown_points(page)
    assert {spec for name, spec in alone if name == "TruncR 0.1"} == {f"t={t:g}" for t in TEMPERATURES}
    assert not any("min_p" in spec for _, spec in alone)
    page.check("input[name=decodings][value=all]")
    assert shown_points(page).keys() == shown.keys()


def test_the_frontier_opens_where_the_targets_are_and_goes_back_to_every_point(page):
    def axes():
        return page.evaluate(
            "(({ xaxis, yaxis }) => [xaxis.range, yaxis.range])(document.querySelector('[data-name=frontier] .plot').layout)"
        )

    near = axes()
    assert near[1][0] == pytest.approx(0.8, abs=0.02)
    page.check("input[name=range][value=whole]")
    (left, right), (low, high) = axes()
    assert all(left < x < right and low < y < high for x, y in shown_points(page).values())
    assert overlapping_labels(page) == []
    assert page.locator("[data-name=frontier] .textpoint").count() > 5
    page.check("input[name=range][value=zoom]")
    assert axes() == near


def test_separation_is_drawn_with_its_threshold_and_says_whether_decoding_can_help(page):
    text = page.inner_text("#separation")
    assert "NLL: a threshold at 0.02 separates." in text
    assert "lambda-PR 0.1: no threshold separates right from wrong tokens." in text
    assert "the loss or the data must change" in text
    figure = page.locator("#separation figure").first.get_attribute("data-name")
    names = [line["name"] for line in plotted(page, figure)]
    assert names == ["right tokens", "wrong tokens", "threshold 0.02"]


def test_a_target_that_nothing_reaches_says_so(page):
    page.check("input[name=target][value=precision]")
    page.locator("[data-pick=level]").fill("99")
    assert page.text_content("[data-shown=answer]") == "No model reaches recall 0.99 at any measured decoding."
