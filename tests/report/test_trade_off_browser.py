"""Frontiers, the best setting for a target and the separation of tokens, in a real browser."""

import numpy as np
import pytest
from made_runs import MODELS, TEMPERATURES, settings_of
from report_in_browser import overlapping_labels, plotted, scroll_through

from widen.report.best_settings import methods, target
from widen.report.lines import group
from widen.report.load import find_runs, load

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(open_page, report_page):
    opened = open_page(report_page)
    scroll_through(opened.page)
    return opened.page


def choose(page, want, position, *, shared=False):
    """Set the target; returns the answer that the page shows and the level of its slider."""
    page.select_option("[data-pick=kind]", "mulmod, exact")
    page.check(f"input[name=target][value={want}]")
    page.set_checked("[data-pick=shared]", shared)
    page.locator("[data-pick=level]").fill(str(position))
    rows = page.evaluate(
        "[...document.querySelectorAll('[data-name=best-points] tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    said = page.locator("[data-shown=answer] p").all_text_contents()
    return said, rows, float(page.text_content("[data-shown=level]").split()[1])


@pytest.mark.parametrize(("want", "position"), [("recall", 9), ("precision", 5)])
def test_a_target_is_answered_by_the_choice_that_is_held_out_over_seeds(page, run_folders, want, position):
    said, rows, least = choose(page, want, position)
    lines = sorted(group([load(path) for path in find_runs([run_folders])]), key=lambda line: line.loss != "nll")
    answer = target(methods(lines, "mulmod, exact", want=want), want=want, least=least)
    assert said == [sentence.replace("`", "") for sentence in answer.sentences]
    assert rows == answer.rows
    assert len(rows) == len(MODELS)


def test_one_grid_for_all_models_is_one_click_away(page):
    choose(page, "recall", 10)
    note = page.locator("[data-shown=grids]")
    assert "NLL: 27, TruncR 0.1: 21, c-Div 1.4: 21" in note.text_content()
    _, rows, _ = choose(page, "recall", 10, shared=True)
    assert not note.is_visible()
    assert {row[7] for row in rows} == {"21"}
    choose(page, "recall", 10)


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
                assert shown[name, spec] == pytest.approx(at, rel=6e-4)
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


def test_separation_is_drawn_with_its_threshold_and_says_what_no_cut_off_reaches(page):
    text = page.inner_text("#separation")
    assert "NLL: 3 % of the right tokens are no more probable than the most probable wrong token" in text
    assert "A threshold at 0.02 keeps" in text
    figure = page.locator("#separation figure").first.get_attribute("data-name")
    names = [line["name"] for line in plotted(page, figure)]
    assert names == ["right tokens", "wrong tokens", "threshold 0.02"]
