"""The page stands alone, and whatever it shows is data."""

import json
import math
import re

import pytest

from widen.report.page import Page, json_text, packed
from widen.report.parts import Figure, FigureChoice, Fold, Section, Table
from widen.report.pr_curve_plots import pr_curves
from widen.report.style import line_style
from widen.theory import ArtificialCase

EVIL = "</script><script>document.title='owned'</script>"


def page(text="plain", rows=((0.5, None),)):
    case = ArtificialCase(vocab=100, support=20, rho=0.5, a=0.725, epsilon=0.15)
    figure = pr_curves({f"t = 1 {text}": case.curve(1.0)}, title=text)
    parts = [Figure(figure=figure, caption=text), Table(headers=[text, "b"], rows=rows, caption=text)]
    return Page(title=text, lead=text, sections=[Section(title=text, text=[text], parts=parts)], made_by=text)


def outside_plotly(html):
    """The page without plotly's own script, which is compressed."""
    from plotly.offline import get_plotlyjs

    assert packed(get_plotlyjs()) in html
    return html.replace(packed(get_plotlyjs()), "")


def test_nothing_is_loaded_from_outside():
    html = page().html()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", outside_plotly(html))
    assert "@import" not in outside_plotly(html)
    assert len(html) < 2_100_000


def test_commands_between_backticks_are_set_as_code_and_nothing_else_is():
    html = outside_plotly(page("`widen score RUN` & <b>more</b>").html())
    assert "<code>widen score RUN</code> &amp; &lt;b&gt;more&lt;/b&gt;" in html


def test_text_from_a_run_cannot_become_script():
    html = outside_plotly(page(EVIL, rows=[[EVIL, EVIL]]).html())
    assert "<script>document" not in html
    assert "&lt;/script&gt;" in html


def test_the_policy_forbids_loading_anything_and_names_every_script_by_its_hash():
    html = page().html()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html).group(1)
    assert policy.startswith("default-src &#39;none&#39;;")
    assert policy.count("sha256-") == len(re.findall(r"<script>", html)) + 1 == 2  # and plotly, which the page unpacks
    assert "unsafe-eval" not in policy
    assert "script-src &#39;unsafe" not in policy


def test_no_script_of_ours_could_end_its_own_element():
    from importlib.resources import files

    scripts = [f for f in (files("widen.report") / "web").iterdir() if f.name.endswith(".js")]
    assert len(scripts) >= 8
    assert [
        f.name
        for f in scripts
        if "</script" in f.read_text() or "innerHTML" in f.read_text() or "eval(" in f.read_text()
    ] == []


def test_json_for_a_script_element_survives_what_json_cannot_hold():
    text = json_text({"evil": EVIL, "inf": math.inf, "nan": math.nan, "half a pair": "\ud800"})
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text) == {"evil": EVIL, "inf": "inf", "nan": None, "half a pair": "\ud800"}


def test_half_a_surrogate_pair_in_a_title_does_not_stop_the_page(tmp_path):
    path = page("broken \ud800 title").write(tmp_path / "page.html")
    assert "broken &#55296; title" in path.read_text(encoding="utf-8")


def test_folds_warnings_and_choices_are_escaped_too():
    figure = Figure(figure=pr_curves({}, title=EVIL), caption=EVIL)
    parts = [
        Fold(summary=EVIL, text=[EVIL], code=EVIL),
        FigureChoice(label=EVIL, figures={EVIL: figure}),
    ]
    html = Page(title="x", lead="x", sections=[Section(title="x", warnings=[EVIL], parts=parts)], made_by="x").html()
    assert "<script>document" not in outside_plotly(html)


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    path = page().write(tmp_path / "deep" / "page.html")
    assert path.read_text().rstrip().endswith("</html>")
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(("value", "shown"), [(0.12345, "0.1235"), (None, "–"), (3, "3"), ("x", "x")])
def test_a_cell_is_shown_as_people_read_it(value, shown):
    assert Table(headers=["a"], rows=[[value]], caption="").shown() == [[shown]]


def test_the_first_lines_of_a_figure_all_look_different():
    assert len({line_style(i)[:2] for i in range(32)}) == 32


def test_a_drawn_curve_lies_on_the_curve():
    curve = ArtificialCase(vocab=100, support=20, rho=0.5, a=0.725, epsilon=0.15).curve(2.0)
    (line,) = pr_curves({"t = 2": curve}, title="")["data"]
    for lam, recall, precision in zip(line["customdata"], line["x"], line["y"], strict=True):
        assert precision == pytest.approx(float(curve.precision(lam)), abs=1e-12)
        assert recall == pytest.approx(float(curve.recall(lam)), abs=1e-12)
