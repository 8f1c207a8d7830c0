"""PAPER.md is complete and true: every item of the paper has one row, and what a row names is there."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
KINDS = {
    *("section", "question", "definition", "equation", "theorem", "proposition", "lemma", "remark", "proof", "claim"),
    *("algorithm", "figure", "table", "setup"),
}
# Every \label of the paper's source. Kept here, so that an item cannot vanish from the list and the map together.
LABELS = """
q:temperature q:loss def:kynka eq:prsimon fig:PR_examples sec:rw fig:examplePQ sec:PRtemperature def:Pdirac
thm:PRcurveGeneral eqs:PRcurveGeneral1 eqs:PRcurveGeneral2 eq:assumptionsPtheta thm:PRcurveinformal sec:PRtrain fig:methods
eq:trunc eq:gold hyp:gamma eq:tailr subsec:PRtrain:trunc prop:trunc eq:truncdiv prop:truncdiv subsec:PRtrain:gold
theorem:tsallis fig:prcode fig:prmulmod subsec:PRtrain:tailr prop:tailr eq:prdiv theorem:prdiv sec:experiments fig:tsallis
tab:pr-wp fig:wp-truncPRCurves fig:wp-tsalisPRCurves fig:wp-prPRCurves fig:WPPRCurves tab:topp_supp fig:mulmod_losses
tab:pr-wp-mathqa tab:pr-tradeoff tab:best-pr-recall-mathqa tab:best-pr-precision-mathqa sec:App:PRtemperature
subsec:app:PRcurveGeneral sec:app:PRcurve thm:PRcurve app:fig:PRcurve1 app:fig:PRcurve2 eq:1 eq:3 eq:2 eq:4
app:alpha-high-lim app:alpha-intermediate-value app:lemma:rate eq:epsilon0 fig:ineq thm:rateofchange sec:App:PRtrain
subsec:App:PRtrain:trunc lemma:optimal-q-truncr app:rem-gamma eq:alpha-1 subsec:App:PRtrain:gold subsec:App:PRtrain:tailr
eq:expectationPR sec:App:algorithms:training sec:App:experiments sec:App:algorithms:eval histo
sec:App:additional_experiments tab:appendix-decoding
"""
NUM_ERRATA = 38
DOTTED = r"`((?:widen|widen_recipes)\.[\w.]+)`"
TEST = r"`(tests/[\w/]+\.py)(?:::(\w+))?`"


class Item(NamedTuple):
    kind: str
    name: str
    states: str


class Row(NamedTuple):
    name: str
    kind: str
    states: str
    function: str
    test: str


@cache
def items() -> list[Item]:
    lines = (ROOT / "tests" / "paper_items.txt").read_text().splitlines()
    return [Item(*re.split(r"\s{2,}", line.strip(), maxsplit=2)) for line in lines if line and not line.startswith("#")]


@cache
def parts() -> tuple[str, str]:
    """The map, and what follows it: the errata and the disagreements."""
    before, errata, after = (ROOT / "PAPER.md").read_text().partition("\n## Errata\n")
    assert errata, "PAPER.md has no heading '## Errata'"
    return before, after


@cache
def rows() -> list[Row]:
    lines = [line for line in parts()[0].splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert [c for c in cells if len(c) != 5 or any("|" in cell for cell in c)] == []  # a bare | would split the cell
    return [Row(c[0].strip("`"), *c[1:]) for c in cells]


def resolve(path: str) -> object:
    """The object behind a dotted path: the longest importable module, then attributes."""
    names = path.split(".")
    found: object = importlib.import_module(names[0])
    for i, name in enumerate(names[1:], start=2):
        if not hasattr(found, name):
            importlib.import_module(".".join(names[:i]))
        found = getattr(found, name)
    return found


def missing_functions(text: str) -> list[str]:
    missing = []
    for path in sorted(set(re.findall(DOTTED, text))):
        try:
            resolve(path)
        except (ImportError, AttributeError) as error:
            missing.append(f"{path}: {error}")
    return missing


@cache
def functions_of(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_item_is_listed_once_and_has_a_known_kind():
    names = [item.name for item in items()]
    assert sorted(names) == sorted(set(names))
    assert {item.kind for item in items()} <= KINDS


def test_the_list_has_every_label_of_the_paper_and_our_own_names_are_marked():
    labels = LABELS.split()
    assert len(labels) == len(set(labels)) == 75
    assert {item.name for item in items() if not item.name.startswith("widen:")} == set(labels)


def test_every_item_has_exactly_one_row_and_no_row_is_extra():
    listed = [(item.name, item.kind, item.states) for item in items() if item.kind != "section"]
    assert [(row.name, row.kind, row.states) for row in rows()] == listed  # the paper's order too


def test_the_headings_are_the_papers_sections_in_order():
    headings = re.findall(r"^## (.+) \(`([^`]+)`\)$", parts()[0], flags=re.M)
    assert headings == [(item.states, item.name) for item in items() if item.kind == "section"]


def test_every_row_names_a_function_and_a_test():
    for row in rows():
        assert re.fullmatch(rf"{DOTTED}(, {DOTTED})*", row.function), row
        assert re.fullmatch(rf"{TEST}(, {TEST})*", row.test), row


def test_every_function_named_exists():
    assert missing_functions((ROOT / "PAPER.md").read_text()) == []


def test_every_test_named_exists():
    for name, function in set(re.findall(TEST, (ROOT / "PAPER.md").read_text())):
        assert (ROOT / name).is_file(), name
        assert not function or function in functions_of(ROOT / name), f"{name}::{function}"


def test_a_test_named_beside_a_function_speaks_of_it():
    """At least one file of the row holds the last name of at least one of its functions, whatever the case."""
    for row in rows():
        last = [path.rsplit(".", 1)[1].lower() for path in re.findall(DOTTED, row.function)]
        texts = [(ROOT / name).read_text().lower() for name, _ in re.findall(TEST, row.test)]
        assert not last or any(name in text for name in last for text in texts), row


def test_the_errata_are_numbered_in_order_and_each_names_what_embodies_it():
    errata = parts()[1].partition("\n## ")[0]
    points = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^### |\Z)", errata, flags=re.M | re.S)
    assert [int(number) for number, _ in points] == list(range(1, NUM_ERRATA + 1))
    for number, text in points:
        reading = text.rpartition("→ ")[2]
        assert "→ " in text, number
        assert re.search(DOTTED, reading), number


def test_the_errata_and_the_disagreements_speak_of_items_of_the_paper():
    named = {name for name in re.findall(r"`([\w:-]+)`", parts()[1]) if ":" in name or name == "histo"}
    assert named
    assert named <= {item.name for item in items()}


def test_a_name_that_is_not_there_is_reported():
    assert missing_functions("`widen.losses.no_such_loss`") != []
    assert missing_functions("`widen.no_such_room.f`") != []
    assert missing_functions("`widen.losses.parse`") == []
