"""The site as a reader sees it: every link leads somewhere, and a real browser shows every page from a folder, without a network."""

import html
import json
import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from widen.theory import ArtificialCase, TruncatedCase

ROOT = Path(__file__).parents[2]
PHONE = {"width": 390, "height": 844}
NO_INDEX = 'var __index = {"config": {"lang": ["en"], "separator": "[ -]+"}, "docs": []}'
WIDE = """() => ({ width: document.documentElement.scrollWidth,
  broken: [...document.images].filter((image) => !image.complete || !image.naturalWidth).map((image) => image.src) })"""

NARROW = """() => [...document.querySelectorAll("article[data-page]")]
  .filter((article) => article.getBoundingClientRect().left + article.scrollWidth > innerWidth).map((article) => article.dataset.page)"""


def pages(site):
    """Every page but the explorer, which has tests of its own, and the page of a server for missing pages."""
    return sorted(page for page in site.rglob("*.html") if page.name not in ("404.html", "explore.html"))


def test_every_link_image_and_anchor_of_the_site_exists(site):
    text = {page.resolve(): page.read_text(encoding="utf-8") for page in pages(site)}
    names = {page: set(re.findall(r'\b(?:id|name)="?([^"\s>]+)', found)) for page, found in text.items()}
    missing = []
    for page, found in text.items():
        for link in set(re.findall(r'\b(?:href|src)="?([^"\s>]+)', found)):
            path, anchor = urldefrag(html.unescape(link))
            if re.match(r"(https?|mailto|data|javascript):", path):
                continue
            target = (page.parent / unquote(path)).resolve() if path else page
            known = target in names or target.is_file()
            if not known or (anchor and target in names and unquote(anchor) not in names[target]):
                missing.append(f"{page.relative_to(site.resolve())}: {link}")
    assert missing == []


def test_nothing_of_the_site_is_loaded_from_outside(site):
    loads = r'<(?:script|img|iframe|link rel="?stylesheet"?)[^>]*(?:src|href)="?(https?://[^"\s>]+)'
    assert [
        (page.name, re.findall(loads, page.read_text())) for page in pages(site) if re.search(loads, page.read_text())
    ] == []


class Watched:
    """A browser page that keeps what it complains about and what it asks the network for."""

    def __init__(self, browser, **context):
        self.context = browser.new_context(offline=True, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(100_000)  # a busy machine is no failure
        self.errors, self.outside = [], []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda r: self.outside.append(r.url) if r.url.startswith("http") else None)


@pytest.fixture
def watched(browser):
    opened = []

    def open_one(**context):
        opened.append(Watched(browser, **context))
        return opened[-1]

    yield open_one
    for one in opened:
        one.context.close()


def wrong_pages(site, found, chosen):
    """Pages that are wider than a phone, lack an image, complain, or ask the network for something."""
    wrong = []
    for page in chosen:
        found.page.goto(page.as_uri())
        seen = found.page.evaluate(WIDE)
        if seen["width"] > PHONE["width"] or seen["broken"] or found.errors or found.outside:
            wrong.append((str(page.relative_to(site)), seen, found.errors.copy(), found.outside.copy()))
        found.errors.clear()
    return wrong


def replace(page, name, content, kind):
    """Give the browser this content instead of a large file."""
    page.route(f"**/{name}", lambda route: route.fulfill(body=content, content_type=kind))


def absolute(page, article):
    """The article with images by their whole address, and without the explorer's frame."""
    article = re.sub(r"<iframe.*?</iframe>", "", article, flags=re.S)
    return re.sub(r'\bsrc="?([^"\s>]+)"?', lambda m: f'src="{urljoin(page.as_uri(), m[1])}"', article)


@pytest.mark.browser
def test_every_page_fits_a_phone_and_shows_its_pictures(site, watched):
    """The articles of all pages under one head: a browser takes half a second to open a page, and there are many."""
    found = watched(viewport=PHONE, color_scheme="dark", java_script_enabled=False)
    shell = (site / "index.html").read_text(encoding="utf-8")
    pattern = r'<article class="md-content__inner md-typeset">(.*)</article>'
    articles = {
        str(page.relative_to(site)): absolute(page, re.search(pattern, page.read_text(encoding="utf-8"), flags=re.S)[1])
        for page in pages(site)
    }
    parts = [
        f'<article class="md-content__inner md-typeset" data-page="{name}">{text}</article>'
        for name, text in articles.items()
    ]
    found.page.goto((site / "index.html").as_uri())
    base = f'<head><base href="{(site / "index.html").as_uri()}">'
    found.page.set_content(re.sub(pattern, lambda _: "".join(parts), shell, flags=re.S).replace("<head>", base, 1))
    found.page.wait_for_function("[...document.images].every((image) => image.complete)")
    assert found.page.evaluate(NARROW) == []
    assert found.page.evaluate(WIDE) == {"width": PHONE["width"], "broken": []}
    assert found.errors == found.outside == []


@pytest.mark.browser
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_pages_with_their_scripts_fit_a_phone_and_nothing_fails(site, watched, every):
    """One page of each kind; in the slow tests every page. The search index is left out: each page would read all of it."""
    found = watched(viewport=PHONE)
    replace(found.page, "search_index.js", NO_INDEX, "text/javascript")
    kinds = [
        "index.html",
        "why/truncate.html",
        "reference/api/head.html",
        "reference/losses/cdiv.html",
        "benchmarks.html",
    ]
    assert wrong_pages(site, found, pages(site) if every else [site / name for name in kinds]) == []


@pytest.mark.browser
def test_search_finds_a_word_without_a_network(site, watched):
    found = watched(viewport={"width": 1300, "height": 900})
    found.page.goto((site / "why" / "heat.html").as_uri())
    found.page.locator(".md-search__input").press_sequentially("separation")  # the page listens to keys
    found.page.wait_for_selector(".md-search-result__link")
    links = found.page.eval_on_selector_all(".md-search-result__link", "all => all.map((one) => one.href)")
    assert any("reference/metrics/separation.html" in link for link in links)
    assert found.errors == found.outside == []


@pytest.mark.browser
def test_the_explorer_works_inside_the_site(site, watched):
    found = watched(viewport={"width": 1300, "height": 900})
    found.page.goto((site / "why" / "explorer.html").as_uri())
    found.page.locator("iframe.explorer").scroll_into_view_if_needed()
    frame = found.page.frame_locator("iframe.explorer")
    frame.get_by_role("button", name="Half of the tokens right").click()
    slider = frame.locator("[data-panel=artificial] [data-key=min_p]")
    slider.focus()
    for key in ("Home", "PageUp", "PageUp", "PageUp"):
        slider.press(key)
    frame.locator("[data-panel=artificial] [data-key=t]").press("End")
    inside = next(one for one in found.page.frames if one.url.endswith("explore.html"))
    inside.evaluate("new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame))")
    state = json.loads(frame.locator("[data-panel=artificial]").get_attribute("data-state"))
    shown = float(frame.locator("[data-panel=artificial] [data-key=recall]").first.get_attribute("data-v"))
    case = ArtificialCase(**{name: state[key] for name, key in zip(
        ("vocab", "support", "rho", "a", "epsilon"), ("V", "K", "rho", "a", "epsilon"), strict=True
    )})  # fmt: skip
    decoded = TruncatedCase(case=case, steps=(("min_p", state["minP"]), ("temperature", state["t"])))
    assert state["minP"] > 0.18
    assert shown == pytest.approx(decoded.recall(state["lam"]), rel=1e-9)
    assert found.errors == found.outside == []
