"""Pages that recommend a loss carry the negative result, and no page claims more than the log."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/index.md", "docs/how_to/train.md", "docs/how_to/trl.md", "docs/how_to/recipes.md"]
PAGES += sorted(
    str(path.relative_to(ROOT))
    for room in ("losses", "rivals")
    for path in (ROOT / "docs/reference" / room).glob("*.md")
)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_recommends_a_loss_says_how_little_losses_gained_on_real_models(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert re.search(r"losses have gained little over NLL(\*\*)?: at most \.025 coverage, on one of three tasks", text)
    assert "log.md)" in text


def test_no_page_calls_truncr_the_safe_choice():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert not [str(page) for page in pages if "TruncR is the safe choice" in page.read_text(encoding="utf-8")]
