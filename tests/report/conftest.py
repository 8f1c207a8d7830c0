"""The pages of some made runs, each opened once."""

import json

import pytest
from made_runs import MODELS, SEEDS, make_run

from widen.report import load
from widen.report.explorer import explorer
from widen.report.lines import group
from widen.report.run_report import write_report


@pytest.fixture(scope="session")
def run_folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for name in MODELS:
        for seed in range(SEEDS[name]):
            make_run(root / f"{name.replace(' ', '_')}-seed{seed}", name, seed, samples=(0.5, 1.0) if seed == 0 else ())
    return root


@pytest.fixture(scope="session")
def runs(run_folders):
    return [load.load(path) for path in load.find_runs([run_folders])]


@pytest.fixture(scope="session")
def lines(runs):
    return {line.name: line for line in group(runs)}


@pytest.fixture(scope="session")
def report_page(run_folders):
    return write_report([run_folders], run_folders / "report.html", figures=False)[0]


@pytest.fixture(scope="session")
def explorer_page(tmp_path_factory):
    return explorer().write(tmp_path_factory.mktemp("explore") / "explore.html")


class Opened:
    """A page in the browser, and everything it complained about or asked for."""

    def __init__(self, browser, path, **context):
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "accept_downloads": True, **context}
        )
        self.page = self.context.new_page()
        self.errors, self.requests = [], []
        self.page.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]")


@pytest.fixture(scope="session")
def open_page(browser):
    """Open a file; the same file and settings are opened once."""
    opened = {}

    def opener(path, **context):
        key = (path, json.dumps(context, sort_keys=True))
        if key not in opened:
            opened[key] = Opened(browser, path, **context)
        return opened[key]

    yield opener
    for one in opened.values():
        one.context.close()
