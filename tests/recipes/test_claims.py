"""README and docs against the kept tables of the integer task: a claim or a number that the tables do not carry fails here."""

import csv
import re
from pathlib import Path

import pytest

import widen_recipes
from widen.run.table import read_csv

RESULTS = Path(widen_recipes.__file__).parent / "results"
ROOT = Path(__file__).parents[2]
README, WHICH, LOG = (
    " ".join((ROOT / page).read_text(encoding="utf-8").replace("**", "").split())
    for page in ("README.md", "docs/which_method.md", "docs/log.md")
)


@pytest.fixture(scope="module")
def tables():
    found = [path for path in RESULTS.glob("mulmod_*.csv") if not path.stem.endswith("_best")]
    return {path.stem.removeprefix("mulmod_"): read_csv(path) for path in found}


@pytest.fixture(scope="module")
def best():
    """Best recall of the recipe `mulmod:joint`: {(loss, level, family): (recall, half width, decoding)}."""
    lines = [line for line in (RESULTS / "mulmod_joint_best.csv").read_text().splitlines() if not line.startswith("#")]
    return {
        (row["name"], float(row["level"]), row["family"]): (
            float(row["recall"]), float(row["recall_half_width"]), row["decoding"], int(row["settings"])
        )
        for row in csv.DictReader(lines)
    }  # fmt: skip


@pytest.mark.parametrize("name", ["NLL", "NLL, norm 1", "c-Div 1.25, norm 1", "c-Div 1.5, norm 1", "c-Div 2, norm 1"])
def test_truncating_before_heat_gains_recall_at_precision_90_for_every_loss_but_truncr(best, name):
    hot, joint = best[name, 0.9, "temperature alone"], best[name, 0.9, "any decoding"]
    assert joint[0] - joint[1] > hot[0] + hot[1]
    assert "min_p" in joint[2]
    assert joint[2].endswith("order=temperature_last")
    assert (hot[3], joint[3]) == (20, 77)  # every method has the same settings


def test_nll_with_a_decoding_beats_every_loss_at_temperature_alone_at_precision_90(best):
    nll = best["NLL", 0.9, "any decoding"]
    others = [value for (_, level, family), value in best.items() if level == 0.9 and family == "temperature alone"]
    assert nll[0] - nll[1] > max(value[0] for value in others)


def test_the_loss_adds_little_at_precision_90_and_more_at_95(best):
    """c-Div 2 against NLL with the same gradient norm, both under their best decoding."""
    for level, low, high in ((0.9, 0.0, 0.01), (0.95, 0.025, 0.04)):
        mine, theirs = (best[name, level, "any decoding"] for name in ("c-Div 2, norm 1", "NLL, norm 1"))
        assert low < mine[0] - theirs[0] < high
        assert mine[0] - mine[1] > theirs[0] + theirs[1]  # outside both intervals


def test_truncr_gains_nothing_from_truncation(best):
    for level in (0.9, 0.95, 0.98):
        assert best["TruncR 0.5", level, "any decoding"] == (*best["TruncR 0.5", level, "temperature alone"][:3], 77)


def best_recall(rows, *, precision):
    """The row of highest recall of each setting, among those of enough precision."""
    enough = sorted((row for row in rows if row.precision >= precision), key=lambda row: row.recall)
    return {row.name: row for row in enough}


def at(rows, name, temperature):
    (row,) = [row for row in rows if row.name == name and row.temperature == pytest.approx(temperature)]
    return row


@pytest.mark.parametrize("name", ["NLL, b = 0.05", "NLL, b = 0.1", "NLL", "NLL, b = 0.3", "NLL, b = 0.5"])
def test_recall_rises_with_temperature_and_then_falls(tables, name):
    """Fig. prmulmod."""
    rows = [row for row in tables["temperature"] if row.name == name]
    peak = max(rows, key=lambda row: row.recall)
    assert 1.2 < peak.temperature < 2.5
    assert peak.recall - at(rows, name, 1.0).recall > 2 * at(rows, name, 1.0).values["recall"].half_width
    assert at(rows, name, 5.0).recall < 0.5 * at(rows, name, 1.0).recall


def test_lower_temperature_raises_precision_and_costs_recall(tables):
    for name in ("NLL", "Trunc 0.1", "TruncR 0.5", "c-Div 0.5"):
        cold, warm = at(tables["losses"], name, 0.5), at(tables["losses"], name, 1.0)
        assert cold.precision > warm.precision
        assert cold.recall < warm.recall


@pytest.mark.parametrize(
    "name", ["Trunc 0.05", "Trunc 0.1", "Trunc 0.25", "Trunc 0.5", "c-Div 0.5", "c-Div 0.25", "TaiLr 0.1"]
)
def test_the_baselines_favour_precision_at_t_1(tables, name):
    """Fig. mulmod_losses; GOLD is c-Div 0.5."""
    nll, row = at(tables["losses"], "NLL", 1.0), at(tables["losses"], name, 1.0)
    assert row.precision - row.values["precision"].half_width > nll.precision
    assert row.recall + row.values["recall"].half_width < nll.recall


@pytest.mark.parametrize("drop", ["0.05", "0.1", "0.25", "0.5"])
def test_truncr_raises_recall_and_its_frontier_lies_above_that_of_nll(tables, drop):
    rows = tables["losses"]
    nll, row = at(rows, "NLL", 1.0), at(rows, f"TruncR {drop}", 1.0)
    assert row.recall - row.values["recall"].half_width > nll.recall + nll.values["recall"].half_width
    best = best_recall(rows, precision=0.9)
    mine, theirs = best[f"TruncR {drop}"], best["NLL"]
    assert mine.recall - mine.values["recall"].half_width > theirs.recall + theirs.values["recall"].half_width


def test_plain_cdiv_from_alpha_1_5_on_loses_the_product(tables):
    assert all(at(tables["tsallis"], f"c-Div {alpha}", 1.0).precision < 0.4 for alpha in ("1.5", "1.75", "2"))


@pytest.mark.parametrize("alpha", ["1.25", "1.5", "1.75", "2"])
def test_cdiv_with_shortened_gradients_is_above_nll_with_the_same(tables, alpha):
    best = best_recall(tables["tsallis_stable"], precision=0.9)
    mine, theirs = best[f"c-Div {alpha}, norm 1"], best["NLL, norm 1"]
    assert mine.recall - mine.values["recall"].half_width > theirs.recall + theirs.values["recall"].half_width


@pytest.mark.parametrize("alpha", [1.5, 1.75, 2.0])
def test_cdiv_at_t_1_beats_nll_at_its_matched_temperature(tables, alpha):
    """c-Div(alpha) at 1 and NLL at alpha have one population optimum; what differs is training."""
    cdiv = at(tables["tsallis_stable"], f"c-Div {alpha:g}, norm 1", 1.0)
    nll = at(tables["tsallis_stable"], "NLL, norm 1", alpha)
    assert cdiv.precision - cdiv.values["precision"].half_width > nll.precision + nll.values["precision"].half_width
    assert cdiv.recall > nll.recall


def test_the_loss_scale_alone_does_not_explain_the_gain(tables):
    best = best_recall(tables["tsallis"], precision=0.9)
    assert abs(best["NLL x 4"].recall - best["NLL"].recall) < 0.008


def test_lambda_pr_lies_below_nll_here(tables):
    best = best_recall(tables["losses"], precision=0.9)
    assert all(row.recall < best["NLL"].recall for name, row in best.items() if name.startswith("lambda-PR") and row)


def test_the_literal_settings_do_not_learn(tables):
    assert max(row.precision for row in tables["literal"] if row.temperature == 1.0) < 0.02


def shown(value, half_width=None):
    """A number as the pages write it: .688, or .688 ± .002."""
    text = f"{value:.3f}".replace("0.", ".", 1)
    return text if half_width is None else f"{text} ± {shown(half_width)}"


@pytest.mark.parametrize("level", [0.9, 0.95, 0.98])
def test_which_method_tables_the_joint_frontier(best, level):
    cells = [
        shown(*best[name, level, family][:2])
        for name in ("NLL, norm 1", "c-Div 2, norm 1")
        for family in ("temperature alone", "any decoding")
    ]
    assert f"| ≥ {f'{level:.2f}'[1:]} | {' | '.join(cells)} |" in WHICH


@pytest.mark.parametrize("page", [README, WHICH], ids=["README", "which_method"])
def test_the_gains_of_decoding_and_loss_are_those_of_the_table(best, page):
    for level in (0.9, 0.95):
        alone, joint, loss = (
            round(best[name, level, family][0], 3)
            for name, family in (
                ("NLL, norm 1", "temperature alone"),
                ("NLL, norm 1", "any decoding"),
                ("c-Div 2, norm 1", "any decoding"),
            )
        )
        for gain in (
            joint - alone,
            best["c-Div 2, norm 1", level, "any decoding"][0] - best["NLL, norm 1", level, "any decoding"][0],
        ):
            assert f"+{shown(gain)}" in page
        assert loss > joint > alone


def test_which_method_names_the_best_decodings(best):
    for name in ("NLL, norm 1", "c-Div 2, norm 1"):
        t, min_p = re.fullmatch(
            r"t=(.+),min_p=(.+),order=temperature_last", best[name, 0.9, "any decoding"][2]
        ).groups()
        assert f"`min_p={min_p} then t={t}`" in WHICH


SETTINGS = {  # as the page names it: table, setting
    "NLL": ("losses", "NLL"),
    "NLL, gradients clipped to norm 1": ("tsallis_stable", "NLL, norm 1"),
    "Trunc 0.25": ("losses", "Trunc 0.25"),
    "GOLD": ("losses", "c-Div 0.5"),
    "TaiLr 0.01": ("losses", "TaiLr 0.01"),
    "TruncR 0.5": ("losses", "TruncR 0.5"),
    "c-Div 1.75, norm 1": ("tsallis_stable", "c-Div 1.75, norm 1"),
    "c-Div 1.75, plain Adam": ("tsallis", "c-Div 1.75"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_which_method_tables_the_losses_at_temperature_alone(tables, name):
    table, setting = SETTINGS[name]
    found, warm = best_recall(tables[table], precision=0.9).get(setting), at(tables[table], setting, 1.0)
    reached = (
        f"{shown(found.recall, found.values['recall'].half_width)} | {found.temperature:g} |" if found else "never | |"
    )
    assert f"| {name} | {reached} {shown(warm.precision)} / {shown(warm.recall)} |" in WHICH


def test_which_method_shows_the_separation_of_the_table(tables):
    rows = {row.name: row.values["separation"].value for row in tables["joint"] if "separation" in row.values}
    for name, text in (
        ("NLL, norm 1", "{} for NLL"),
        ("c-Div 2, norm 1", "{} for c-Div 2"),
        ("TruncR 0.5", "TruncR has {}"),
    ):
        assert text.format(shown(rows[name])) in WHICH


@pytest.mark.parametrize("page", [README, WHICH], ids=["README", "which_method"])
def test_every_decimal_on_the_page_is_in_a_table_or_in_the_log(best, tables, page):
    """A number that nobody can look up does not belong on these pages."""
    known = set(re.findall(r"(?<![\d.])\.\d+", LOG))
    for row in (row for rows in tables.values() for row in rows):
        for name in ("precision", "recall", "separation"):
            if name in row.values:
                known |= {
                    shown(number)
                    for number in (row.values[name].value, row.values[name].half_width)
                    if number is not None
                }
    known |= {shown(number) for value in best.values() for number in value[:2]}
    known |= {".90", ".95", ".98"}  # levels of precision
    assert set(re.findall(r"(?<![\d.])\.\d+", page)) <= known
