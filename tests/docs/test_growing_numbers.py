"""What the pages say of growing, and of losses on Countdown and CoverageQA, is in the kept tables."""

import numpy as np
import pytest
from kept_tables import assert_shown, cells_of, gain_between, halves_of, rows_of, section_of, signed, three_digits

from widen.sample import Decoding
from widen_recipes.study.growth_study import ALL_ANSWERS, LOWEST
from widen_recipes.study.methods import LOSSES, few_decodings, matched_decodings

LISTED = {"none": 0, "≥ 65 %": 0.65, "≥ 80 %": 0.8, "≥ 95 %": 0.95}
E2E = (("distinct_right", 0), ("distinct_right", 0.95), ("recall", 0.8), ("recall", 0.95))
SECTIONS = {
    "Growing on E2E NLG": ("e2e_grow", E2E),
    "Growing on CoverageQA": ("coverageqa_small_grow", [("recall", share) for share in LISTED.values()]),
    "Losses on CoverageQA": ("coverageqa_small_losses", [("recall", share) for share in LISTED.values()]),
    "Losses on Countdown": ("countdown_small_losses", [("recall", share) for share in LISTED.values()]),
}
QUIZ, GROWN = halves_of("coverageqa_small_grow"), ("grown, plain", "grown, uniform", "grown, known prompts")


@pytest.mark.parametrize("title", SECTIONS)
def test_the_table_of_a_section_is_the_kept_one(title):
    name, columns = SECTIONS[title]
    page, tables = section_of(title), {goal: halves_of(name, goal) for goal, _ in columns}
    rows = {method: [tables[goal][method, share] for goal, share in columns] for method, _ in tables["recall"]}
    nll = " | ".join(", ".join(cells_of(row, "precision", "value")) for row in rows.pop("NLL"))
    assert f"| NLL: precision, value | {nll} |" in page
    for method, own in rows.items():
        assert f"| {method} | {' | '.join(map(gain_between, own))} |" in page


def means(name):
    """Precision and recall of each method and decoding, means over the sets of problems."""
    found = {}
    for row in rows_of(name):
        at = (float(row["precision"]), float(row.get("distinct_right") or row["recall"]), float(row["recall"]))
        found.setdefault((row["name"], row["decoding"]), []).append(at)
    return {key: np.mean(values, axis=0) for key, values in found.items()}


def test_the_sentences_on_e2e_are_those_of_the_kept_table():
    points, best = means("e2e_grow"), halves_of("e2e_grow", "distinct_right")
    grown, nll = (cells_of(best[name, 0], "value")[0] for name in ("grown, plain", "NLL"))
    cool = [three_digits(points[name, "t=0.5"][0]) for name in ("grown, plain", "NLL")]
    hot = points["NLL", "t=1.5"]
    assert float(best["grown, plain", 0]["value"]) / float(best["NLL", 0]["value"]) == pytest.approx(4 / 3, abs=0.02)
    assert {best["grown, plain", 0][f"decoding_{half}"] for half in (1, 2)} == {"t=0.5"}
    assert all(float(best[name, share]["gain_low"]) > 0 for name in GROWN for share in (0, 0.95))
    seeds = {row["name"]: row["seeds"] for row in rows_of("e2e_grow")}
    assert seeds == {"NLL": "3", "NLL start": "1"} | dict(zip(GROWN, "323", strict=True))
    start = three_digits(max(at[1] for (name, _), at in points.items() if name == "NLL start"))
    at_most = [three_digits(points[name, "t=1.5"][2]) for name in ("NLL", "grown, plain")]
    reach = halves_of("e2e_grow")
    over_seeds = [
        f"{signed(row['gain'])} ± {three_digits(float(row['gain_half_width']))}"
        for row in (best["grown, plain", 0], reach["grown, plain", 0.95])
    ]
    first = max(own[1] for (name, _), own in points.items() if name == "NLL")
    assert float(best["grown, plain", 0]["value"]) / first == pytest.approx(4 / 3, abs=0.02)
    assert min(float(spec[2:]) for _, spec in points if "," not in spec) == 0.5
    pages = {
        "docs/results/e2e_nlg.md": [
            f"it is worse: at most {start} of its samples are right and different.",
            f"{grown} of the samples are right and different, {nll} with NLL.",
            f"If we choose the decoding of NLL on all test sets, it has {three_digits(first)}.",
            f"There NLL repeats texts: {three_digits(points['NLL', 't=0.5'][1])} of its samples",
            f"the gain of *grown, plain* at ≥ 95 % is {over_seeds[1]}",
            f"the gain of *grown, plain* in different right texts is {over_seeds[0]}",
            f"the gain at ≥ 50 % is {gain_between(reach['grown, plain', 0.5])}",
            f"There {cool[0]} of its texts are right. NLL has {cool[1]} at the same temperature.",
            f"where NLL is right in {three_digits(hot[0])} of its texts, it reaches {at_most[0]} of the human texts, and the grown "
            f"model {at_most[1]}",
        ],
        "docs/log.md": [
            f"{grown} of the samples are right and different from each other, {nll} with NLL",
            f"(each with the decoding that is best on the other half of the test sets; the best decoding of NLL on all test sets has "
            f"{three_digits(first)})",
            f"is {over_seeds[0]}. In k-NN recall at ≥ 95 % of the highest precision it is {over_seeds[1]}",
        ],
    }
    assert_shown(pages)


def precisions(name):
    """Precision of one method of the growth on CoverageQA by decoding: in the first and in the second half of the questions."""
    found = {}
    for row in rows_of("coverageqa_small_grow"):
        if row["name"] == name:
            found.setdefault(row["decoding"], []).append(float(row["precision"]))
    return found


def test_the_sentences_on_growing_on_coverageqa_are_those_of_the_kept_table():
    grown, soup, overfit, listed = "grown, plain", "soup of NLL and 0.5 plain", LOWEST, ALL_ANSWERS
    value = {key: cells_of(row, "value")[0] for key, row in QUIZ.items() if row["value"]}
    right = {key: cells_of(row, "precision")[0] for key, row in QUIZ.items() if row["value"]}
    gain = {key: gain_between(row).split()[0] for key, row in QUIZ.items()}
    assert all(float(QUIZ[name, share]["gain_low"]) > 0 for name in (grown, soup, listed) for share in (0, 0.65, 0.8))
    assert all(float(QUIZ[grown, share]["gain"]) > float(QUIZ[overfit, share]["gain"]) for share in (0, 0.65, 0.8))
    assert all(float(right[grown, share]) >= float(right["NLL", share]) for share in (0, 0.65, 0.8))
    assert float(QUIZ[overfit, 0]["gain_low"]) > 0
    assert all(
        float(QUIZ[overfit, share]["gain_low"]) < 0 < float(QUIZ[overfit, share]["gain_high"]) for share in (0.65, 0.8)
    )
    assert not any(row["value"] for (name, share), row in QUIZ.items() if share == 0.95 and name != "NLL")
    points = means("coverageqa_small_grow")
    tried = {spec for _, spec in points}
    assert tried == set(matched_decodings())
    assert len(tried) == 42
    highest, reached = (
        max((at[0], spec) for (name, spec), at in points.items() if name == one) for one in ("NLL", grown)
    )
    most = {name: max((at[2], spec) for (one, spec), at in points.items() if one == name) for name in ("NLL", grown)}
    assert {name: Decoding.parse(spec).in_words for name, (_, spec) in most.items()} == {
        "NLL": "min_p=0.004 then t=4",
        grown: "min_p=0.02 then t=2",
    }
    cooler = points["NLL", Decoding.parse("min_p=0.004 then t=2.8").spec][2]
    gains = {share: gain_between(QUIZ[grown, share]) for share in (0, 0.65, 0.8)}
    first, second = (
        {name: three_digits(max(own[fold] for own in precisions(name).values())) for name in ("NLL", grown)}
        for fold in (0, 1)
    )
    pages = {
        "docs/results/coverageqa.md": [
            f"coverage {value[grown, 0]} instead of {value['NLL', 0]} without a required precision, "
            f"{value[grown, 0.8]} instead of {value['NLL', 0.8]} at ≥ 80 %",
            f"precision {right[grown, 0]} (NLL {right['NLL', 0]}) and {right[grown, 0.8]} (NLL {right['NLL', 0.8]})",
            f"It gains {gain[overfit, 0]} without a required precision, and nothing clear at ≥ 65 % and ≥ 80 %",
            f"NLL has {three_digits(highest[0])} at t = {highest[1][2:].lstrip('0')}, the grown model at most "
            f"{three_digits(reached[0])}. The two halves of the data differ: on one, NLL has {first['NLL']} and the grown model "
            f"{first[grown]}; on the other, {second['NLL']} and {second[grown]}.",
            f"gains {gain[listed, 0]} without a required precision, and {gain[listed, 0.8]} at ≥ 80 %",
        ],
        "docs/which_method.md": [
            f"{', '.join(gain[soup, share] for share in (0, 0.65, 0.8))}, but it does not reach 95 % of NLL's highest precision",
            f"{value[grown, 0.8]} instead of {value['NLL', 0.8]} at the same precision, but its highest precision is lower",
        ],
        "docs/log.md": [
            f"{gains[0]} coverage without a required precision; with 24 decodings it was +.135. At ≥ 65 % it is {gain[grown, 0.65]} "
            f"(before: +.133), at ≥ 80 % {gain[grown, 0.8]} (+.117)",
            f"gains {gain[overfit, 0]} without a required precision; before, +.089",
            f"`min_p=0.004 then t=4`, {three_digits(most['NLL'][0])}. This is the hottest temperature, but with `t=2.8` it has "
            f"{three_digits(cooler)}",
        ],
    }
    assert_shown(pages)


def test_growing_on_mathqa_python_differs_from_nll_in_nothing_and_the_table_is_the_kept_one():
    solved, distinct = (halves_of("mathqa_small_grow", goal) for goal in ("pass@8", "coverage"))
    at_half = {row["name"]: row for row in rows_of("mathqa_small_grow") if row["decoding"] == "t=0.5"}
    page, most = section_of("Growing on MathQA-Python"), []
    for name, row in at_half.items():
        (first,), wide = cells_of(row, "pass@1"), row["pass@1_half_width"]
        right = f"{first} ± {three_digits(float(wide))}" if wide else first
        gains = (solved[name, 0], distinct[name, 0])
        if name == "NLL":
            assert f"| NLL: value | {right} | {' | '.join(cells_of(one, 'value')[0] for one in gains)} |" in page
            continue
        assert f"| {name} | {right} | {' | '.join(map(gain_between, gains))} |" in page
        assert all(float(one["gain_low"]) < 0 < float(one["gain_high"]) for one in gains)
        most.append([float(one["gain_high"]) for one in gains])
    highest = [three_digits(value) for value in np.max(most, axis=0)]
    assert f"A gain of more than {highest[0]} in pass@8, or of more than {highest[1]} different right programs" in page
    assert max(float(row["pass@1"]) for row in rows_of("mathqa_small_grow")) < 0.1
    assert {row["name"]: row["seeds"] for row in at_half.values()} == dict.fromkeys(at_half, "3") | {"NLL start": "1"}


def test_the_gains_of_growing_on_readme_are_those_of_the_kept_tables():
    tasks = {
        "Coverage on [Countdown](docs/results/countdown.md#growing-on-countdown)": halves_of("countdown_small_grow"),
        "Coverage on [CoverageQA](docs/results/coverageqa.md#growing-on-coverageqa)": QUIZ,
        "Different right texts per sample on [E2E NLG](docs/results/e2e_nlg.md)": halves_of(
            "e2e_grow", "distinct_right"
        ),
    }
    for task, rows in tasks.items():
        gains = [gain_between(rows["grown, plain", share]).replace("never", "never reached") for share in (0.8, 0.95)]
        assert_shown({"README.md": [f"{task}: {', '.join(gains)}"]})


def test_no_loss_beats_nll_on_countdown_and_gem_is_a_temperature():
    rows, points = halves_of("countdown_small_losses"), means("countdown_small_losses")
    losses = {name for name, _ in rows} - {"NLL", "NLL 2x"}
    assert len(losses) == 9
    assert not any(row["gain"] and float(row["gain_low"]) > 0 for (name, _), row in rows.items() if name in losses)
    never = {name for (name, share), row in rows.items() if share == 0.95 and not row["value"]}
    assert never == {"c-Div 1.4", "GEM 0.7", "TOFU 1", "focal 1"}
    assert [share for share in LISTED.values() if float(rows["NLL 2x", share]["gain_low"]) > 0] == [0.65]
    assert all(float(rows["c-Div 1.4", share]["gain_high"]) < 0 for share in (0, 0.5, 0.65, 0.8))
    assert {name for name in losses if float(rows[name, 0]["gain_high"]) < 0} == {"c-Div 1.4", "EAFT"}
    others = [rows[name, 0] for name in losses - {"c-Div 1.4", "EAFT"}]
    assert min(float(row["gain_low"]) for row in others) > -0.0255
    assert max(float(row["gain_high"]) for row in others) < 0.0125
    seeds = {row["name"]: int(row["seeds"]) for row in rows_of("countdown_small_losses")}
    assert seeds == dict.fromkeys(losses, 2) | {"NLL": 3, "c-Div 1.4": 3, "NLL 2x": 1}

    own = {spec: at for (name, spec), at in points.items() if name == "NLL" and "," not in spec}
    heats = sorted(float(spec[2:]) for spec in own)
    line = np.array([own[f"t={heat:g}"][[0, 2]] for heat in heats])

    def nll_at(heat):
        return np.array([np.interp(heat, heats, line[:, column]) for column in (0, 1)])

    for heat in (one for one in heats if one <= 0.9):
        apart = np.abs(points["GEM 0.7", f"t={heat:g}"][[0, 2]] - nll_at(heat / 0.7))
        assert all(apart < (0.0115, 0.0095)), heat
    for name in losses:
        precision, _, coverage = points[name, "t=1"]
        same = np.interp(-precision, -line[:, 0], line[:, 1])  # precision falls with the temperature
        assert abs(coverage - same) < 0.0105, name


def test_on_coverageqa_cdiv_gains_a_little_and_gem_only_seemed_to_where_nll_had_no_low_cut_offs():
    rows, points = halves_of("coverageqa_small_losses"), means("coverageqa_small_losses")
    clear = {key for key, row in rows.items() if key[0] in LOSSES and row["gain"] and float(row["gain_low"]) > 0}
    assert clear == {("c-Div 1.4", 0), ("c-Div 1.4", 0.5), ("c-Div 1.4", 0.65), ("TruncR 0.1", 0.8)}
    best = [rows["c-Div 1.4", share] for share in (0, 0.65)]
    wide = [float(row["gain_half_width"]) for row in best]
    unsure = rows["TruncR 0.1", 0.8]
    assert all(float(row["gain"]) > half for row, half in zip(best, wide, strict=True))
    assert float(unsure["gain"]) < float(unsure["gain_half_width"])
    assert all(
        float(row["gain_low"]) < 0 < float(row["gain_high"]) for row in (rows["c-Div 1.4", 0.8], rows["GEM 0.7", 0])
    )
    assert {row["seeds"] for row in rows.values() if row["name"] != "NLL start"} == {"3"}

    def highest(name, specs):
        return three_digits(max(points[name, spec][2] for spec in specs))

    few, every = few_decodings(), matched_decodings()
    gem, nll = (
        [three_digits(value) for value in points[name, Decoding.parse(spec).spec][[0, 2]]]
        for name, spec in (("GEM 0.7", "min_p=0.02 then t=2"), ("NLL", "min_p=0.004 then t=2.8"))
    )
    gains = [gain_between(row) for row in best]
    short, growing = (
        [one.split()[0] for one in gains],
        [gain_between(QUIZ["grown, plain", one]).split()[0] for one in (0, 0.65)],
    )
    pages = {
        "docs/results/coverageqa.md": [
            f"{short[0]} without a required precision, and {short[1]} at ≥ 65 %. Over seeds, these gains are ± "
            f"{' and ± '.join(map(three_digits, wide))}.",
            f"Growing gains {' and '.join(growing)}.",
            f"Its gain at ≥ 80 % is {signed(unsure['gain'])} ± {three_digits(float(unsure['gain_half_width']))} over seeds",
            f"it has precision {gem[0]} and coverage {gem[1]}. NLL at `min_p=0.004 then t=2.8` has {nll[0]} and {nll[1]}.",
            f"GEM has {highest('GEM 0.7', few)} coverage and NLL {highest('NLL', few)}, so GEM seems to win. With 42, they have "
            f"{highest('GEM 0.7', every)} and {highest('NLL', every)}.",
        ],
        "docs/log.md": [f"{gains[0]} coverage without a required precision, {gains[1]} at ≥ 65 %"],
        "README.md": [f"gains {gains[0]} coverage without a required precision, and {gains[1]} at ≥ 65 %, three seeds"],
        "docs/which_method.md": [f"c-Div 1.4 gains up to {short[1]} coverage"],
    }
    assert_shown(pages)
    assert short[1] == "+.025"  # "at most .025 coverage", as all pages of losses say
