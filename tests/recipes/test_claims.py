"""README and docs against the kept tables of the integer task: a claim or a number that the tables do not carry fails here."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

import widen_recipes
from widen.data.mulmod import MulMod
from widen.run.table import read_csv
from widen.theory import expected_unique_recall

RESULTS = Path(widen_recipes.__file__).parent / "results"
ROOT = Path(__file__).parents[2]
WORDS = {
    path.relative_to(ROOT).as_posix(): " ".join(path.read_text(encoding="utf-8").replace("**", "").split())
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/results/*.md"))
}
README, LOG, PAGE = (WORDS[page] for page in ("README.md", "docs/log.md", "docs/results/integer_products.md"))


@pytest.fixture(scope="module")
def tables():
    found = [path for path in RESULTS.glob("mulmod_*.csv") if not path.stem.endswith("_best")]
    return {path.stem.removeprefix("mulmod_"): read_csv(path) for path in found}


def read_best(recipe):
    """Best recall of a recipe: {(training, level, family): (recall, half width, decoding, number of decodings)}."""
    text = (RESULTS / f"mulmod_{recipe}_best.csv").read_text(encoding="utf-8")
    return {
        (row["name"].removesuffix(", norm 1") if recipe == "rivals" else row["name"], float(row["level"]), row["family"]): (
            float(row["recall"]), float(row["recall_half_width"]), row["decoding"], int(row["settings"])
        )
        for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    }  # fmt: skip


@pytest.fixture(scope="module")
def best():
    return read_best("joint")


@pytest.fixture(scope="module")
def rivals():
    """All gradients of this recipe are clipped to norm 1, so its names leave that out."""
    return read_best("rivals")


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


LEVELS, ALONE, ANY = (0.9, 0.95, 0.98), "temperature alone", "any decoding"
TRAININGS = {  # as the pages name it: as the table names it
    "NLL": "NLL",
    "GEM": "gem",
    "entropy bonus": "entropy",
    "DCO": "dco",
    "c-Div 2": "c-Div 2",
    "EAFT": "eaft",
    "focal loss": "focal",
    "TOFU": "tofu",
    "label smoothing": "smooth",
    "NLL, each once": "NLL, each once",
}


def side(mine, theirs):
    """1 if the first interval lies above the second, -1 if below, 0 if they overlap."""
    if abs(mine[0] - theirs[0]) <= mine[1] + theirs[1]:
        return 0
    return 1 if mine[0] > theirs[0] else -1


@pytest.mark.parametrize("name", TRAININGS)
def test_the_page_tables_every_training_at_every_precision(rivals, name):
    cells = [shown(*rivals[TRAININGS[name], level, family][:2]) for family in (ALONE, ANY) for level in LEVELS]
    assert f"| {name} | {' | '.join(cells)} |" in re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", PAGE)


def test_the_gains_of_data_decoding_and_loss_are_those_of_the_table(rivals):
    gains = {
        "{} over NLL": (("NLL, each once", ALONE), ("NLL", ALONE)),
        "The decoding brings {}": (("NLL", ANY), ("NLL", ALONE)),
        "EAFT adds {}": (("eaft", ANY), ("NLL", ANY)),
    }
    for text, (mine, theirs) in gains.items():
        found = [
            f"+{shown(rivals[mine[0], level, mine[1]][0] - rivals[theirs[0], level, theirs[1]][0])}" for level in LEVELS
        ]
        assert text.format(f"{found[0]}, {found[1]} and {found[2]}") in PAGE
        assert f"{' / '.join(found)}" in LOG
        assert found[0] in README
        assert all(side(rivals[mine[0], at, mine[1]], rivals[theirs[0], at, theirs[1]]) == 1 for at in LEVELS)
    at_95 = f"+{shown(rivals['c-Div 2', 0.95, ANY][0] - rivals['NLL', 0.95, ANY][0])}"
    assert f"c-Div 2 adds {at_95} at .95" in PAGE


def test_nll_on_each_sequence_once_is_above_every_training_with_any_decoding(rivals):
    for level in LEVELS:
        once = rivals["NLL, each once", level, ALONE]
        assert all(side(once, rivals[name, level, ANY]) == 1 for name in TRAININGS.values() if name != "NLL, each once")
        assert side(rivals["NLL, each once", level, ANY], once) == 0


@pytest.mark.parametrize(
    ("family", "name", "sides"),
    [
        (ANY, "c-Div 2", (0, 1, 0)),
        (ANY, "focal", (-1, 0, 1)),
        (ANY, "tofu", (-1, 0, 1)),
        (ANY, "smooth", (-1, 0, -1)),
        (ANY, "gem", (0, 0, -1)),
        (ANY, "entropy", (0, 0, 0)),
        (ANY, "dco", (0, 0, 0)),
        (ALONE, "eaft", (-1, -1, 0)),
        (ALONE, "focal", (-1, -1, -1)),
        (ALONE, "tofu", (-1, -1, -1)),
        (ALONE, "smooth", (-1, -1, -1)),
        (ALONE, "gem", (0, -1, -1)),
        (ALONE, "entropy", (0, 0, 0)),
        (ALONE, "dco", (0, 0, 0)),
    ],
)
def test_the_pages_say_on_which_side_of_nll_a_rival_is(rivals, family, name, sides):
    assert tuple(side(rivals[name, level, family], rivals["NLL", level, family]) for level in LEVELS) == sides


def test_each_once_has_the_recall_of_a_uniform_law_over_its_training_sequences(tables):
    kept, repeated = [], []
    for seed in range(5):
        task = MulMod(seed=seed)
        _, count = np.unique(task.unique_index(task.train_tokens()), return_counts=True)
        kept.append(len(count))
        repeated.append(expected_unique_recall(np.log(count / count.sum()), 20_000) * len(count) / 9_801)
    even, hedged, whole = (
        np.mean([expected_unique_recall(np.full(k, np.log(right / k)), 20_000) * k / 9_801 for k in sizes])
        for sizes, right in ((kept, 1), (kept, 0.977), ([9_801], 1))
    )
    (once,), (nll,) = (
        [row for row in tables["rivals"] if row.name == name and row.decoding == "t=1"]
        for name in ("NLL, each once, norm 1", "NLL, norm 1")
    )
    assert shown(once.precision) == ".977"
    measured, usual = (shown(row.recall, row.values["recall"].half_width) for row in (once, nll))
    for text in (
        f"{min(kept):,} to {max(kept):,} different sequences, {np.mean(kept) / 9_801:.0%}".replace("%", " %"),
        f'has recall {shown(even)}. "Each once" has {measured} at t = 1',
        f"as it is has recall {shown(np.mean(repeated))}. NLL has {usual} at t = 1",
        f"all 9,801 the same probability has recall {shown(whole)}",
    ):
        assert text in PAGE
    assert f"{shown(even)} in 20,000 draws ({shown(hedged)} if .977" in LOG


def test_each_once_falls_behind_eaft_at_precision_995(tables):
    found = best_recall(tables["rivals"], precision=0.995)
    eaft, once = found["eaft, norm 1"], found["NLL, each once, norm 1"]
    assert f'EAFT has recall {shown(eaft.recall)} and "each once" {shown(once.recall)}' in PAGE


def test_the_page_names_the_best_decodings(rivals):
    for level in (0.9, 0.95):
        t, min_p = re.fullmatch(r"t=(.+),min_p=(.+),order=temperature_last", rivals["NLL", level, ANY][2]).groups()
        assert f"`min_p={min_p} then t={t}`" in PAGE
    assert [rivals[name, 0.98, ANY][2] for name in ("NLL", "eaft")] == [
        "t=1,min_p=0.2,order=temperature_last",
        "t=1.5,min_p=0.2",
    ]


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
def test_the_page_tables_the_losses_at_temperature_alone(tables, name):
    table, setting = SETTINGS[name]
    found, warm = best_recall(tables[table], precision=0.9).get(setting), at(tables[table], setting, 1.0)
    reached = (
        f"{shown(found.recall, found.values['recall'].half_width)} | {found.temperature:g} |" if found else "never | |"
    )
    assert f"| {name} | {reached} {shown(warm.precision)} / {shown(warm.recall)} |" in PAGE


def test_the_page_shows_the_separation_of_the_table(tables):
    rows = {row.name: row.values["separation"].value for row in tables["joint"] if "separation" in row.values}
    for name, text in (
        ("NLL, norm 1", "{} for NLL"),
        ("c-Div 2, norm 1", "{} for c-Div 2"),
        ("TruncR 0.5", "TruncR has {}"),
    ):
        assert text.format(shown(rows[name])) in PAGE


@pytest.mark.parametrize("page", [page for page in WORDS if page.startswith(("README", "docs/which", "docs/results"))])
def test_every_decimal_on_the_page_is_in_a_table_or_in_the_log(best, rivals, tables, page):
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
    known |= {shown(number) for value in (*best.values(), *rivals.values()) for number in value[:2]}
    for file in RESULTS.glob("study_*.csv"):
        lines = (line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
        cells = (row.get(name) for row in csv.DictReader(lines) for name in ("precision", "recall", "value"))
        known |= {shown(float(cell)) for cell in cells if cell}
    known |= {".90", ".95", ".98"}  # levels of precision
    assert set(re.findall(r"(?<![\d.])\.\d+", WORDS[page])) <= known
