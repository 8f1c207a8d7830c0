"""Every metric has a page, and every page says when its number lies."""

from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "metrics"
METRICS = [
    "knn",
    "mauve",
    "prd",
    "distinct",
    "self_bleu",
    "vendi",
    "sparsity",
    "separation",
    "pass_at_k",
    "texts",
    "features",
]


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_has_a_page_that_says_when_its_number_lies(name):
    text = (PAGES / f"{name}.md").read_text()
    assert text.startswith("# ")
    lies = text.split("## When this number lies")[1]
    assert lies.count("\n- **") >= 3


def test_every_page_is_that_of_a_metric():
    """The code on the pages is run with all other pages."""
    assert {page.stem for page in PAGES.glob("*.md")} >= set(METRICS)
