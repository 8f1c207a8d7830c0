"""Reference pages follow the code: verbs, decodings, the API, and formulas of docstrings as plain text."""

import ast
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from widen.sample import Decoding
from widen.sample.decoding import FILTERS, ORDERS
from widen.sample.engines.completions import plugin_arguments, unsupported
from widen.theory.steps import LEGAL

ROOT = Path(__file__).parents[2]
DECODINGS = (ROOT / "docs" / "reference" / "decodings.md").read_text(encoding="utf-8")
ROOMS = ["losses", "head", "sample", "metrics", "judge", "theory", "data", "models", "train"]


def module_at(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_verbs_is_their_own_help():
    """Written by `python docs/verbs.py`."""
    verbs = module_at(ROOT / "docs" / "verbs.py")
    assert verbs.PAGE.read_text(encoding="utf-8") == verbs.page()


def test_the_page_of_decodings_names_every_step_and_order():
    rows = re.findall(r"^\| `(\w+)` \|", DECODINGS.split("## Order")[0], flags=re.M)
    assert sorted(rows) == sorted(["t", *FILTERS, "kl_sigma"])
    for name, steps in ORDERS.items():
        assert re.search(rf"^\| `{name}`.*\| {', '.join(steps)} \|", DECODINGS, flags=re.M)


def ability(dialect, decoding):
    """What the table says of a server: yes, no, or with our plug-in."""
    if unsupported(dialect, decoding):
        return "no"
    return "plug-in" if dialect == "vllm" and plugin_arguments(decoding) else "yes"


def test_the_table_of_engines_is_what_the_engines_accept():
    part = DECODINGS.split("## Which engine can do what")[1]
    rows = {
        cells[0].strip("`"): cells[1:]
        for cells in re.findall(
            r"^\| (\S.*?) \| (\w+) \| (\w+) \| (\S+) \| (\w+) \| (\w+) \| (\w+) \|$", part, flags=re.M
        )
    }
    value = {"t": "t=0.7", "top_k": "top_k=5", "top_n_sigma": "top_n_sigma=1"}
    for name in ("t", *FILTERS, "kl_sigma"):
        decoding = Decoding.parse(value.get(name, f"{name}=0.5"))
        exact = "yes" if name == "t" or name in LEGAL else "no"
        assert list(rows[name]) == [
            "yes",
            exact,
            *(ability(one, decoding) for one in ("vllm", "transformers", "llama.cpp", "openai")),
        ], name
    for name, spec in (
        ("min-p before the temperature", "t=2,min_p=0.1,order=temperature_last"),
        ("any other order", "t=2,top_p=0.9,order=temperature_last"),
    ):
        decoding = Decoding.parse(spec)
        assert list(rows[name]) == [
            "yes",
            "yes",
            *(ability(one, decoding) for one in ("vllm", "transformers", "llama.cpp", "openai")),
        ], name


@pytest.mark.parametrize("room", ROOMS)
def test_the_api_page_of_a_room_has_every_public_name(site, room):
    names = importlib.import_module(f"widen.{room}").__all__
    page = (site / "reference" / "api" / f"{room}.html").read_text(encoding="utf-8")
    missing = {name for name in names if f'id="widen.{room}.{name}' not in page}
    assert missing == set()  # a module among the names has its members on the page


def test_no_docstring_shows_latex_or_roles_on_the_site():
    readable = module_at(ROOT / "docs" / "site" / "docstrings.py").readable
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src" / "widen").rglob("*.py")}
    for path, source in texts.items():
        tree = ast.parse(source if re.search(r"math:|:\w+:`", source) else "")
        kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
        for text in filter(None, (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))):
            if "math:" in text or re.search(r":\w+:`", text):
                assert not re.search(r":(math|func|class|meth|mod):|\\[a-zA-Z]{2}", readable(inspect.cleandoc(text))), (
                    path
                )


FORM = ["What it converges to", "When to use it", "What goes wrong", "Matched temperature", "Spec string", "Example"]
LOSS_PAGES = sorted(
    page
    for room in ("losses", "rivals")
    for page in (ROOT / "docs/reference" / room).glob("*.md")
    if page.stem != "index"
)


@pytest.mark.parametrize("page", LOSS_PAGES, ids=lambda page: page.stem)
def test_every_page_of_a_loss_has_the_same_form(page):
    text = page.read_text(encoding="utf-8")
    head = text.split("\n## ")[0]
    assert re.findall(r"^## (.+)$", text, flags=re.M) == FORM
    assert re.search(
        r"^# .+\n\n[^\n]+.*?^```text\n.*?^```\n.*?^!\[", head, flags=re.M | re.S
    )  # sentence, equation, picture


def test_no_page_says_matching_temperature():
    pages = [ROOT / "README.md", ROOT / "PAPER.md", *(ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if "matching temperature" in page.read_text(encoding="utf-8")] == []
