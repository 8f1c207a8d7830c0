"""Numbers of the study on README and the pages are those of the kept tables."""

import re

import pytest
from kept_tables import ROOT, assert_shown, cells_of, gain_between, rows_of, section_of, signed, three_digits

from widen.sample import Decoding


def zero_shot(model, kind=""):
    """Rows of a model as it is on CoverageQA."""
    return rows_of(f"coverageqa_{model}zero_shot{kind}")


def gain_of(row):
    return "{} (+{} to +{})".format(*cells_of(row, "gain", "gain_low", "gain_high")).replace("0.", ".")


@pytest.mark.parametrize(
    ("section", "name", "problems"),
    [("CoverageQA", "coverageqa_qwen_zero_shot_halves", "60"), ("Countdown", "countdown_small_halves", "48")],
)
def test_the_table_of_a_real_model_is_the_kept_one(section, name, problems):
    page = section_of(section)
    rows = {(row["name"], float(row["share"])): row for row in rows_of(name)}
    assert {row["problems"] for row in rows.values()} == {problems}
    for share in (0, 0.5, 0.65, 0.8, 0.95):
        shown = []
        for name in ("temperature alone", "all decodings"):
            row = rows[name, share]
            chosen = dict.fromkeys(Decoding.parse(row[f"decoding_{half}"]).in_words for half in (1, 2))
            shown.append(", ".join([" and ".join(f"`{one}`" for one in chosen), *cells_of(row, "precision", "value")]))
        gained = float(row["gain"]) > 0
        last = [shown[1], f"+{gain_of(row)}"] if gained else ["the same", "none"]
        required = f"≥ {share:.0%}".replace("%", " %") if share else "none"
        assert f"| {required} | {' | '.join([shown[0], *last])} |" in page


@pytest.mark.parametrize(("task", "name"), [("Countdown", "countdown_wise"), ("CoverageQA", "coverageqa_wise")])
def test_the_table_of_averages_is_the_kept_one(task, name):
    page = section_of("Average with the model before fine-tuning")
    rows = {(row["name"], float(row["share"])): row for row in rows_of(f"{name}_halves")}
    for share in (0, 0.65, 0.8, 0.95):
        required = f"≥ {share:.0%}".replace("%", " %") if share else "none"
        shown = [", ".join(cells_of(rows[model, share], "precision", "value")) for model in ("NLL", "WiSE-FT 0.9")]
        for model in ("WiSE-FT 0.9", "WiSE-FT 0.75"):
            gain, low, high = (signed(rows[model, share][key]) for key in ("gain", "gain_low", "gain_high"))
            shown.append(f"{gain} ({low} to {high})")
        assert f"| {task} | {required} | {' | '.join(shown)} |" in page


def test_the_sentences_on_averages_are_those_of_the_kept_tables():
    def points(name):
        found = {}
        for row in rows_of(name):
            at = found.setdefault((row["name"], row["decoding"]), [])
            at.append((float(row["precision"]), float(row["recall"])))
        return {key: [sum(one) / len(one) for one in zip(*folds, strict=True)] for key, folds in found.items()}

    game, quiz = points("countdown_wise"), points("coverageqa_wise")
    kept = {row["name"]: row for row in rows_of("countdown_wise_halves") if float(row["share"]) == 0.95}
    nll, mean = (cells_of(kept[name], "precision", "value") for name in ("NLL", "WiSE-FT 0.9"))
    cold = [three_digits(game[name, "t=0.3"][0]) for name in ("NLL", "WiSE-FT 0.9", "WiSE-FT 0.75")]
    hot, warm = quiz["NLL", Decoding.parse("t=2 then min_p=0.2").spec], quiz["NLL", "t=1"]
    alone = [at for (name, spec), at in quiz.items() if name == "NLL" and "," not in spec]
    assert max(recall for _, recall in alone) == warm[1]
    temperatures = [spec for name, spec in quiz if name == "NLL" and "," not in spec and float(spec[2:]) <= 1]
    assert len(temperatures) == 8
    for spec in temperatures:
        assert quiz["WiSE-FT 0.9", spec] == pytest.approx(quiz["NLL", spec], abs=0.010)
    assert [f"{game[name, 't=0.3'][1]:.0%}" for name in ("NLL", "WiSE-FT 0.9")] == ["26%"] * 2
    assert nll[0] == mean[0]
    pages = {
        "docs/results/averaging.md": [
            f"both models have precision {nll[0]}, and the average (0.9) has {signed(kept['WiSE-FT 0.9']['gain'])} coverage",
            f"At t = .3 its precision is {cold[1]}, that of NLL is {cold[0]}",
            f"at t = 1 it has precision {three_digits(warm[0])} and coverage {three_digits(warm[1])}",
            f"`t=2 then min_p=0.2` has {three_digits(hot[0])} and {three_digits(hot[1])}",
        ],
        "docs/log.md": [f"more precise at t = .3 ({cold[2]}; NLL {cold[0]})"],
    }
    assert_shown(pages)


GROWN = ("grown, plain", "grown, sampled", "grown, uniform")
SOUP, BASE = "soup of NLL and 0.5 plain", "soup of NLL and 0.1 base"


def growing():
    """Rows of the kept table on growing, by method and share."""
    return {(row["name"], float(row["share"])): row for row in rows_of("countdown_small_grow_halves")}


def test_the_table_of_growing_is_the_kept_one():
    page = section_of("Growing on Countdown")
    rows, shares = growing(), (0, 0.65, 0.8, 0.95)
    nll = " | ".join(", ".join(cells_of(rows["NLL", share], "precision", "value")) for share in shares)
    assert f"| NLL: precision, coverage | {nll} |" in page
    others = {name for name, _ in rows} - {"NLL"}
    assert len(others) == 10
    for name in others:
        assert f"| {name} | {' | '.join(gain_between(rows[name, share]) for share in shares)} |" in page


def test_the_sentences_on_growing_are_those_of_the_kept_tables():
    rows, points = growing(), {}
    for row in rows_of("countdown_small_grow"):
        points.setdefault((row["name"], row["decoding"]), []).append((float(row["precision"]), float(row["recall"])))

    def at(name, spec):
        return [three_digits(sum(one) / len(one)) for one in zip(*points[name, spec], strict=True)]

    def clear(name, share):
        return bool(rows[name, share]["gain"]) and float(rows[name, share]["gain_low"]) > 0

    def raised(share):
        return [cells_of(rows[name, share], "value")[0] for name in ("NLL", "grown, plain")]

    soups = (SOUP, SOUP.replace("plain", "uniform"))
    assert all(clear(name, share) for name in soups for share in (0, 0.65, 0.8, 0.95))
    assert all(clear(name, share) for name in GROWN for share in (0.8, 0.95))
    assert not any(clear(loss, share) for loss in ("TruncR 0.1", "c-Div 1.4") for share in (0, 0.65, 0.8, 0.95))
    for share in (0, 0.65, 0.8, 0.95):
        gains = [float(rows[name, share]["gain"]) for name in GROWN]
        assert max(gains) - min(gains) < min(
            float(rows[n, share]["gain_high"]) - float(rows[n, share]["gain_low"]) for n in GROWN
        )

    def over_seeds(name, share):
        return f"{signed(rows[name, share]['gain'])} ± {three_digits(float(rows[name, share]['gain_half_width']))}"

    (low, high), (cold, warm) = raised(0.8), raised(0.95)
    plain = {share: gain_between(rows["grown, plain", share]) for share in (0, 0.8, 0.95)}
    highest = max((at(name, spec)[0], spec) for name, spec in points if name == "NLL")
    assert not any(clear(name, 0) for name in GROWN)
    assert all(
        float(rows[name, share]["gain_high"]) < 0 for name in ("TruncR 0.1", "c-Div 1.4") for share in (0.65, 0.8)
    )
    half = [at(name, "t=0.6") for name in ("grown, plain", "NLL")]
    assert [f"{float(recall):.1f}" for _, recall in half] == ["0.5", "0.5"]
    pages = {
        "README.md": [
            f"{gain_between(rows[BASE, 0.95])} coverage on Countdown near the highest precision",
        ],
        "docs/index.md": [f"gives coverage {high}. NLL for the same number of steps gives {low} at the same precision"],
        "docs/how_to/grow.md": [f"gave coverage {high}. NLL for the same steps gave {low} at the same precision"],
        "docs/results/countdown.md": [
            f"NLL finds {cold} of the right answers at ≥ 95 %, the grown model {warm}. At ≥ 80 % it is {low} and {high}",
            f"it is right in {half[0][0]} of its samples, NLL in {half[1][0]}, and both find half",
            f"({highest[0]} at t = {highest[1][3:]})",
            f"the gain is {over_seeds('grown, plain', 0.8)} at ≥ 80 % and {over_seeds('grown, plain', 0.95)} at ≥ 95 %",
            f"without a required precision is {over_seeds(SOUP, 0)}",
        ],
        "docs/results/averaging.md": [
            f"gains {gain_between(rows[BASE, 0.95])} coverage at ≥ 95 % and {gain_between(rows[BASE, 0.8])} at ≥ 80 %",
        ],
        "docs/log.md": [
            f"highest precision: {plain[0.95]}; at ≥ 80 %: {plain[0.8]}",
            f"there is no clear gain: {plain[0]}.",
            f"{gain_between(rows[SOUP, 0.95])} at ≥ 95 %. It has {gain_between(rows[SOUP, 0])} without a required precision",
            f"gains {gain_between(rows['NLL on all answers', 0.95])} at ≥ 95 %",
            f"({at('grown, uniform', 't=0.2')[0]}; *plain* {at('grown, plain', 't=0.2')[0]}, NLL {at('NLL', 't=0.2')[0]})",
        ],
    }
    assert_shown(pages)


def test_the_sentences_on_countdown_are_those_of_the_kept_tables():
    halves = {(row["name"], float(row["share"])): row for row in rows_of("countdown_small_halves")}
    points = {row["decoding"]: row for row in rows_of("countdown_small") if row["name"] == "all decodings"}
    (alone, most), (cold, even) = (
        [cells_of(halves[name, share], "value")[0] for name in ("temperature alone", "all decodings")]
        for share in (0, 0.65)
    )
    gains = [gain_of(halves["all decodings", share]) for share in (0, 0.65)]
    precision = cells_of(points["t=1"], "precision")[0]
    first = three_digits(max(float(row["precision"]) for row in points.values()))
    pages = {
        "README.md": [f"{cold} → {even}, and {alone} → {most}. No gain where precision must be high"],
        "docs/results/countdown.md": [f"({first} at t = .3)"],
        "docs/which_method.md": [
            f"wrong tokens are likely: +{gains[1].split()[0]} and +{gains[0].split()[0]} |",
        ],
        "docs/log.md": [
            f"at most coverage {alone} (t = 1.1). With a cut-off, coverage is {most}: +{gains[0].split()[0]} (95 %",
            f"At about the precision of t = 1 ({precision}), the gain is +{gains[1]}.",
        ],
    }
    assert_shown(pages)
    assert [cells_of(halves["all decodings", share], "gain")[0] for share in (0.8, 0.95)] == [".000"] * 2


def test_the_sentences_on_coverageqa_are_those_of_the_kept_tables():
    halves = {(row["name"], float(row["share"])): row for row in zero_shot("qwen_", "_halves")}
    small = {row["name"]: row for row in zero_shot("", "_halves") if float(row["share"]) == 0}
    folds = {}
    for row in zero_shot("qwen_"):
        folds.setdefault(row["decoding"], []).append((float(row["precision"]), float(row["recall"])))

    def point(decoding):
        return [
            three_digits(sum(values) / len(values))
            for values in zip(*folds[Decoding.parse(decoding).spec], strict=True)
        ]

    def value(name, share):
        return three_digits(float(halves[name, share]["value"]))

    first, cut, last = (point(one) for one in ("min_p=0.01 then t=1.5", "t=1.5 then min_p=0.05", "t=2"))
    low, high = (three_digits(float(small["all decodings"][f"gain_{end}"])) for end in ("low", "high"))
    raised = f"{three_digits(float(small['temperature alone']['value']))} to {three_digits(float(small['all decodings']['value']))}"
    pages = {
        "docs/results/coverageqa.md": [
            f"({point('t=0.3')[0]} at t = .3)",
            f"`min_p=0.01 then t=1.5` has precision {first[0]} and coverage {first[1]}. `t=1.5 then min_p=0.05` has {cut[0]} and {cut[1]}.",
            f"At t = 2 it is {last[1]}, because only {100 * float(last[0]):.0f} % of the answers are right",
            f"raises its coverage from {raised} (+{low} to +{high})",
        ],
        "docs/log.md": [
            f"at most coverage {value('temperature alone', 0)} (t = 1.1). `top_p=0.95 then t=2` has {value('all decodings', 0)}",
            f"{raised} (+{low} to +{high})",
        ],
        "docs/index.md": [f"coverage rises from {value('temperature alone', 0.65)} to {value('all decodings', 0.65)}"],
        "README.md": [
            f"coverage {value('temperature alone', 0.65)} → {value('all decodings', 0.65)} at about the same precision",
            f"{value('temperature alone', 0)} → {value('all decodings', 0)} if you accept less",
        ],
    }
    assert_shown(pages)


def test_the_decoding_to_start_with_finds_more_than_any_temperature_alone():
    page = " ".join((ROOT / "docs/how_to/decoding.md").read_text(encoding="utf-8").split())
    (start,), (worse,) = (
        re.findall(text, page) for text in ("Start with `([^`]+)`", "On CoverageQA, `([^`]+)` found fewer than t = 1")
    )
    assert f'--decodings "{start}"' in (ROOT / "docs/which_method.md").read_text(encoding="utf-8")
    for rows in (rows_of("countdown_small"), zero_shot("qwen_")):
        recalls = {}
        for row in rows:
            recalls.setdefault(Decoding.parse(row["decoding"]), []).append(float(row["recall"]))
        recall = {decoding: sum(found) / len(found) for decoding, found in recalls.items()}
        assert recall[Decoding.parse(start)] > max(found for one, found in recall.items() if one.temperature_alone)
    assert recall[Decoding.parse(worse)] < recall[Decoding(temperature=1)]  # CoverageQA, the last of the two
