"""The kept tables of the study, and sentences of the pages, for the tests that compare them."""

import csv
import re
from pathlib import Path

import widen_recipes

ROOT = Path(__file__).parents[2]
RESULTS = Path(widen_recipes.__file__).parent / "results"
SHARES = {0: "none", 0.65: "≥ 65 %", 0.8: "≥ 80 %", 0.95: "≥ 95 %"}


def three_digits(value):
    return f"{value:.3f}".replace("0.", ".")


def rows_of(name, module="study"):
    """Rows of a kept table: by default one of the study."""
    lines = (RESULTS / f"{module}_{name}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def cells_of(row, *names):
    return [three_digits(float(row[name])) for name in names]


def assert_shown(pages):
    """Every page has its sentences; line breaks do not matter."""
    for name, sentences in pages.items():
        page = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        for sentence in sentences:
            assert sentence in page, f"{name}: {sentence}"


def signed(value):
    return f"{float(value):+.3f}".replace("0.", ".").replace("-", "−")


def gain_between(row):
    if not row["gain"]:
        return "never"
    gain, low, high = (signed(row[key]) for key in ("gain", "gain_low", "gain_high"))
    return f"{gain} ({low} to {high})"


def section_of(title):
    """A section of the pages with results. The heading may be that of its page."""
    pages = [f"\n{path.read_text(encoding='utf-8')}" for path in (ROOT / "docs/results").glob("*.md")]
    found = [part for page in pages for part in re.split(r"\n##? ", page) if part.startswith(f"{title}\n")]
    assert len(found) == 1, title
    return found[0]


def halves_of(name, goal="recall"):
    """The best decodings of a kept table, by method and share of NLL's highest precision."""
    return {(row["name"], float(row["share"])): row for row in rows_of(f"{name}_halves") if row["goal"] == goal}
