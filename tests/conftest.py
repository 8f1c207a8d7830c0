"""Shapes in signatures are checked while tests run; a test that needs a system part skips with the install command.

WIDEN_REQUIRE=sandbox,browser turns such a skip into a failure: a machine that is meant to have the part must not pass without it.
"""

import os
import shutil

import pytest
from jaxtyping import install_import_hook

install_import_hook("widen", "typecheck.checked")

PARTS = {
    "sandbox": ("bwrap", "apt-get install bubblewrap"),
    "browser": ("chromium", "apt-get install chromium"),
}


def pytest_runtest_setup(item):
    required = set(filter(None, os.environ.get("WIDEN_REQUIRE", "").split(",")))
    for marker, (program, install) in PARTS.items():
        if item.get_closest_marker(marker) and shutil.which(program) is None:
            message = f"needs {program}: {install}"
            if marker in required:
                pytest.fail(f"WIDEN_REQUIRE names {marker}, and this test {message}")
            pytest.skip(message)


def pytest_collection_modifyitems(items):
    """GPU tests are asked for by `-m gpu`; on a machine without one they say so instead of failing obscurely."""
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


BROWSER = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=BROWSER)
        yield running
        running.close()
