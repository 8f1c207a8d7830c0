"""README and docs against the kept table of the real model: a claim or a number that the table does not carry fails here."""

import csv
from pathlib import Path

import pytest

import widen_recipes

RESULTS = Path(widen_recipes.__file__).parent / "results"
PASSES = ("pass@1", "pass@10", "pass@100")


@pytest.fixture(scope="module")
def rows():
    lines = [line for line in (RESULTS / "mathqa_gain.csv").read_text().splitlines() if not line.startswith("#")]
    return {(row["name"], float(row["temperature"])): row for row in csv.DictReader(lines)}


def figure(rows, name, temperature, column):
    return float(rows[name, temperature][column])


def test_every_setting_has_three_seeds(rows):
    assert len(rows) == 9
    assert {row["seeds"] for row in rows.values()} == {"3"}


@pytest.mark.parametrize(("name", "temperature"), [("c-Div 1.4", 1.0), ("TruncR 0.1", 0.98)])
def test_near_t_1_precision_falls_and_the_papers_recall_rises(rows, name, temperature):
    assert figure(rows, name, temperature, "precision") < figure(rows, "NLL", 0.98, "precision") - 0.1
    assert figure(rows, name, temperature, "recall") > figure(rows, "NLL", 0.98, "recall")


@pytest.mark.parametrize("temperature", [0.4, 0.7, 1.0])
def test_at_the_matched_temperature_c_div_is_below_nll(rows, temperature):
    matched = round(1.4 * temperature, 6)
    for score in PASSES:
        gain = figure(rows, "c-Div 1.4", temperature, score) - figure(rows, "NLL", matched, score)
        assert gain == pytest.approx(figure(rows, "c-Div 1.4", temperature, f"gain_{score}"), abs=2e-6)
        assert figure(rows, "c-Div 1.4", temperature, f"gain_{score}_high") < 0
        outside = gain + figure(rows, "c-Div 1.4", temperature, f"gain_{score}_half_width") < 0
        assert outside == ((temperature, score) != (1.0, "pass@100"))


@pytest.mark.parametrize("temperature", [0.56, 0.98])
def test_truncr_finds_as_much_in_a_hundred_tries_and_is_less_precise(rows, temperature):
    low, high = (figure(rows, "TruncR 0.1", temperature, f"gain_pass@100_{end}") for end in ("low", "high"))
    assert low < 0 < high
    assert figure(rows, "TruncR 0.1", temperature, "gain_pass@1_high") < 0


def shown(row, name, temperature, scores):
    """A line of a table as the pages write it."""
    cells = [f"{float(row[s]):.3f} ± {float(row[s + '_half_width']):.3f}".replace("0.", ".") for s in scores]
    return f"| {name.replace('0.1', '.1')} | {f'{temperature:g}'.removeprefix('0')} | {' | '.join(cells)} |"


def page(path):
    return (Path(__file__).parents[2] / path).read_text(encoding="utf-8").replace("**", "")


def test_the_table_in_the_log_is_the_kept_one(rows):
    for (name, temperature), row in rows.items():
        assert shown(row, name, temperature, (*PASSES, "recall")) in page("docs/log.md")


@pytest.mark.parametrize(("name", "temperature"), [("NLL", 0.98), ("c-Div 1.4", 0.7), ("TruncR 0.1", 0.56)])
def test_the_table_on_the_page_is_part_of_the_kept_one(rows, name, temperature):
    assert shown(rows[name, temperature], name, temperature, PASSES) in page("docs/results/mathqa_python.md")


def test_the_readme_and_the_page_show_what_c_div_loses(rows):
    lost = {
        score: [f"{-figure(rows, 'c-Div 1.4', t, f'gain_{score}'):.3f}"[1:] for t in (0.4, 0.7, 1.0)]
        for score in PASSES
    }
    assert "pass@1 by {}, {} and {}".format(*lost["pass@1"]) in page("docs/results/mathqa_python.md")
    assert "pass@100 by {}, {} and {}".format(*lost["pass@100"]) in page("docs/results/mathqa_python.md")
    assert f"{min(lost['pass@1'])} to {max(lost['pass@1'])} of pass@1" in page("README.md")
