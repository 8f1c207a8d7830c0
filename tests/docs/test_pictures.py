"""The pictures of the docs are what their script draws, each is shown somewhere, and each has a light and a dark form."""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMG = ROOT / "docs" / "img"
DRAWN_HERE = ("countdown", "coverageqa", "frontier", "levers", "separation", "weight_cdiv")
"""Both kinds of figure, and those with measured numbers; the slow test draws the others too."""


@pytest.fixture(scope="module")
def pictures():
    pytest.importorskip("matplotlib")
    sys.path.insert(0, str(ROOT / "docs"))
    yield importlib.import_module("pictures")
    sys.path.remove(str(ROOT / "docs"))


def test_the_script_and_the_folder_name_the_same_pictures(pictures):
    assert sorted(path.stem for path in IMG.glob("*.svg")) == pictures.NAMES


def test_every_picture_is_shown_on_a_page():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"img/(\w+)\.svg", page.read_text(encoding="utf-8"))}
    assert shown == {path.stem for path in IMG.glob("*.svg")}


def test_every_picture_has_a_light_and_a_dark_form():
    for path in IMG.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        style, rest = text.split("</style>", 1)
        assert "prefers-color-scheme: dark" in style, path
        assert set(re.findall(r"(?:fill|stroke): ?(#[0-9a-f]{6})", rest)) == set(), (
            path
        )  # a fixed colour suits one page only


@pytest.mark.parametrize("name", DRAWN_HERE)
def test_a_picture_is_what_the_script_draws(pictures, name, tmp_path):
    assert pictures.draw(name, tmp_path).read_bytes() == (IMG / f"{name}.svg").read_bytes()


@pytest.mark.slow
def test_every_picture_is_what_the_script_draws(pictures, tmp_path):
    for name in pictures.NAMES:
        assert pictures.draw(name, tmp_path).read_bytes() == (IMG / f"{name}.svg").read_bytes(), name
