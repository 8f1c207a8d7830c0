"""The report in a real browser: it opens clean, moves to the right values, finds, sorts, exports, and runs nothing that a sample holds."""

import csv
import io
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from made_runs import EVIL, LAMS, MODELS, SEEDS, STRANGE, TEMPERATURES, case
from playwright.sync_api import expect
from report_in_browser import ARTIFACTS, overlapping_labels, plotted, scroll_through

pytestmark = pytest.mark.browser
expect.set_options(timeout=60_000)  # a busy machine is slow, not wrong


@pytest.fixture(scope="module")
def opened(open_page, report_page):
    one = open_page(report_page)
    scroll_through(one.page)
    return one


@pytest.fixture
def page(opened):
    return opened.page


def to_slider(page, selector, position):
    """By keyboard: Home, then arrows."""
    page.focus(selector)
    page.keyboard.press("Home")
    for _ in range(position):
        page.keyboard.press("ArrowRight")


def test_it_opens_without_a_complaint_and_asks_nothing_of_the_outside(opened):
    assert opened.errors == []
    assert [url[:60] for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert opened.page.evaluate("document.querySelectorAll('.js-plotly-plot').length") >= 5


def test_error_bars_of_the_frontier_stay_between_0_and_1(page):
    ends = page.evaluate("""() => [...document.querySelectorAll('[data-name^=frontier] .plot')].flatMap((plot) =>
      plot.data.flatMap((t) => [[t.x, t.error_x], [t.y, t.error_y]]).filter(([, bar]) => bar?.array)
        .flatMap(([at, bar]) => at.flatMap((v, i) => [v - bar.arrayminus[i], v + bar.array[i]])))""")
    assert len(ends) > 20
    assert -1e-9 <= min(ends) <= max(ends) <= 1 + 1e-9


@pytest.mark.parametrize("index", [0, 4, len(TEMPERATURES) - 1])
def test_the_slider_of_decodings_moves_every_curve_to_the_exact_one(page, index):
    to_slider(page, "[data-panel=curves] [data-pick=t]", index)
    assert page.text_content("[data-shown=t]") == f"t={TEMPERATURES[index]:g}"
    lines = {line["name"]: line for line in plotted(page, "pr-curves") if line["mode"] == "lines" and line["name"]}
    assert set(lines) == set(MODELS)
    for name, line in lines.items():
        curves = [case(name, seed).curve(TEMPERATURES[index]) for seed in range(SEEDS[name])]
        np.testing.assert_allclose(
            line["y"], np.mean([c.precision(LAMS) for c in curves], axis=0), rtol=6e-4, atol=1e-12
        )
        np.testing.assert_allclose(line["x"], np.mean([c.recall(LAMS) for c in curves], axis=0), rtol=6e-4, atol=1e-12)


def test_the_lambda_slider_marks_the_right_point_and_the_table_reads_it(page):
    to_slider(page, "[data-panel=curves] [data-pick=t]", 4)
    page.locator("[data-panel=curves] [data-pick=lam]").fill("36")
    lam = float(LAMS[36])
    cells = page.evaluate(
        "[...document.querySelectorAll('[data-name=pr-curves-at-lambda] tbody tr')]"
        ".map(r => [...r.cells].map(c => c.dataset.v ?? c.textContent))"
    )
    marks = {
        line["name"]: (line["x"][0], line["y"][0]) for line in plotted(page, "pr-curves") if line["mode"] == "markers"
    }
    for name, precision, recall, _ in cells:
        laws = [case(name, seed) for seed in range(SEEDS[name])]
        truth = [np.mean([c.recall(lam, 1.0) for c in laws]), np.mean([c.precision(lam, 1.0) for c in laws])]
        assert [float(recall), float(precision)] == pytest.approx(truth, rel=6e-4)
        assert marks[name] == pytest.approx(truth, rel=6e-4)


def column(page, table, header):
    """The values of one column, and a locator for its button."""
    headers = page.locator(f"{table} thead th button").all_text_contents()
    at = headers.index(header)
    cells = page.evaluate(
        "([t, i]) => [...document.querySelectorAll(`${t} tbody tr`)].map(r => r.cells[i].dataset.v ?? r.cells[i].textContent)",
        [table, at],
    )
    return cells, page.locator(f"{table} thead th button").nth(at)


def test_tables_sort_by_mouse_and_keyboard_and_what_is_missing_stays_last(page):
    table = "[data-name^=precision-and-recall-of-every-model]"
    _, button = column(page, table, "recall")
    button.click()
    up = [float(x) for x in column(page, table, "recall")[0]]
    assert up == sorted(up)
    button.focus()
    page.keyboard.press("Enter")
    down = [float(x) for x in column(page, table, "recall")[0]]
    assert down == sorted(down, reverse=True)
    assert page.locator(f"{table} th[aria-sort=descending]").count() == 1
    button.click()  # ascending again: the scores without an area, of low recall, now come first
    assert column(page, table, "area")[0][0] == "–"
    for _ in range(2):
        column(page, table, "area")[1].click()
        cells, _ = column(page, table, "area")
        missing = [cell == "–" for cell in cells]
        assert missing == sorted(missing)
        assert any(missing)
    column(page, table, "model")[1].click()
    names = column(page, table, "model")[0]
    assert names == sorted(names, key=str.lower)


def search(page, words):
    page.fill("[data-pick=needle]", words)
    expect(page.locator("[data-shown=count]")).to_contain_text("found")
    return page.text_content("[data-shown=count]")


def test_search_finds_in_all_kept_samples_and_marks_what_it_found(page):
    assert search(page, "NEEDLE-7431") == "2 found"
    assert page.locator("[data-shown=found] button").all_text_contents() == [
        "NLL, seed 0, t=0.5: 1",
        "NLL, seed 0, t=1: 1",
    ]
    page.locator("[data-shown=found] button").first.click()
    page.wait_for_selector(".column mark")
    assert page.text_content(".column h3") == "NLL, seed 0, t=0.5"
    assert page.locator(".column mark").all_text_contents() == ["Needle-7431"]
    assert search(page, "nowhere to be found") == "0 found"
    page.fill("[data-pick=needle]", "")
    expect(page.locator("[data-shown=count]")).to_have_text("")


def show_all_of(page, label):
    for kind, wanted in (("runs", label), ("labels", "t=1")):
        for box in page.locator(f"[data-pick={kind}] label").all():
            box.locator("input").set_checked(box.text_content() == wanted)
    expect(page.locator(".column h3")).to_have_text([f"{label}, t=1"])
    while page.locator(".column > button").count():
        page.locator(".column > button").click()


def test_whatever_a_model_writes_shows_as_text_and_runs_nothing(opened, page):
    show_all_of(page, "NLL, seed 0")
    texts = page.locator(".column .sample pre").all_text_contents()
    assert EVIL in texts
    assert STRANGE[1] in texts
    assert any("broken" in text for text in texts)
    long = page.locator(".sample button", has_text="all 100,000 characters")
    long.click()
    assert max(len(text) for text in page.locator(".column .sample pre").all_text_contents()) == 100_000
    assert page.title() != "owned"
    assert page.evaluate("document.querySelectorAll('img, iframe, object').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert opened.errors == []


def test_one_prompt_is_shown_side_by_side(page):
    page.evaluate(
        "document.querySelectorAll('[data-pick=runs] input, [data-pick=labels] input').forEach(box => { box.checked = true; })"
    )
    page.select_option("[data-pick=prompt]", index=2)
    expect(page.locator(".column")).to_have_count(8)
    assert set(page.locator(".sample .prompt").all_text_contents()) == {"Write one line of verse."}
    page.select_option("[data-pick=prompt]", index=0)


def test_lines_are_hidden_and_shown_by_keyboard_on_every_figure(page):
    button = page.locator("[data-name=frontier] .legend button", has_text="TruncR")
    button.focus()
    page.keyboard.press("Space")
    hidden = [
        line["name"] for name in ("frontier", "pr-curves") for line in plotted(page, name) if line["visible"] is False
    ]
    assert set(hidden) == {"TruncR 0.1"}
    assert len(hidden) == 4  # the frontier, its line of temperature alone, the curve and its mark
    assert button.get_attribute("aria-pressed") == "false"
    page.keyboard.press("Space")
    assert all(line["visible"] for line in plotted(page, "frontier"))


def test_a_figure_leaves_as_svg_and_csv(page):
    figure = page.locator("[data-name=frontier]")
    page.check("input[name=decodings][value=temperature]")
    with page.expect_download() as download:
        figure.locator("[data-save=csv]").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    at_one = [row for row in rows if row["line"] == "c-Div 1.4" and row["decoding"] == "t=1"]
    truth = np.mean([float(case("c-Div 1.4", seed).precision(math.inf, 1.0)) for seed in range(3)])
    assert float(at_one[0]["precision (quality)"]) == pytest.approx(truth, rel=6e-4)
    assert float(at_one[0]["precision (quality), half width of 95 % interval"]) > 0
    with page.expect_download() as download:
        figure.locator("[data-save=svg]").click()
    page.check("input[name=decodings][value=all]")
    root = ET.fromstring(download.value.path().read_text())
    words = "".join(root.itertext())
    assert root.tag.endswith("svg")
    assert all(name in words for name in MODELS)


def test_choices_show_one_figure_at_a_time(page):
    select = page.locator(".choice select").last
    select.select_option("weight_zero_share")
    shown = (
        select.locator("xpath=ancestor::*[contains(@class,'choice')]").locator("figure:visible h3").all_text_contents()
    )
    assert shown == ["weight_zero_share while training"]


def test_every_control_can_be_reached_by_keyboard(page):
    page.evaluate("scrollTo(0, 0)")
    page.mouse.click(2, 2)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    unreachable = (
        "[...document.querySelectorAll('button, select, input, summary, a')]"
        ".filter(e => e.checkVisibility() && e.tabIndex < 0).map(e => e.outerHTML.slice(0, 80))"
    )
    assert page.evaluate(unreachable) == []
    unnamed = "[...document.querySelectorAll('input, select')].filter(e => !e.labels.length).map(e => e.outerHTML.slice(0, 80))"
    assert page.evaluate(unnamed) == []


CONTRAST = """() => {
  const style = getComputedStyle(document.documentElement);
  const linear = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = (name) => {
    const [r, g, b] = style.getPropertyValue(name).trim().slice(1).match(/../g).map((hex) => linear(parseInt(hex, 16)));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pairs = "ink ground, soft ground, soft raised, accent ground, warn warn-ground, mark-ink mark".split(", ");
  return pairs.map((pair) => {
    const [x, y] = pair.split(" ").map((name) => light(`--${name}`)).sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  });
}"""


@pytest.mark.parametrize(("name", "width", "scheme"), [("phone", 390, "dark"), ("desktop", 1280, "light")])
def test_it_reads_well_on_a_phone_by_night_and_on_a_desk_by_day(page, name, width, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    page.wait_for_timeout(150)
    scroll_through(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert overlapping_labels(page) == []
    assert min(page.evaluate(CONTRAST)) >= 4.5
    ink = page.evaluate("getComputedStyle(document.querySelector('.xtick text')).fill")
    assert (
        sum(map(int, re.findall(r"\d+", ink)[:3])) > 600
        if scheme == "dark"
        else sum(map(int, re.findall(r"\d+", ink)[:3])) < 200
    )
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"report-{name}-{scheme}.png", full_page=True)
