"""What the page on the paper's claims says is in the kept tables."""

import numpy as np
import pytest
from kept_tables import assert_shown, rows_of, three_digits

PAGE = "docs/results/claims.md"
TASKS = {"countdown_small": "Countdown", "coverageqa_qwen_zero_shot": "CoverageQA"}


def means(name, method):
    """Precision and recall of a method by decoding, over seeds and sets of problems."""
    found = {}
    for row in rows_of(name):
        if row["name"] == method:
            found.setdefault(row["decoding"], []).append((float(row["precision"]), float(row["recall"])))
    return {spec: np.mean(points, axis=0) for spec, points in found.items()}


def temperatures(points):
    """The decodings that are a temperature alone, by temperature."""
    return {float(spec[2:]): at for spec, at in points.items() if "," not in spec}


def shown(values):
    return " and ".join(map(three_digits, values))


@pytest.mark.parametrize("name", TASKS)
def test_temperature_and_top_p_do_on_real_models_what_the_page_says(name):
    points = means(name, "all decodings")
    alone = temperatures(points)
    heats = sorted(alone)
    precision, coverage = (np.array([alone[heat][column] for heat in heats]) for column in (0, 1))
    peak = heats[int(coverage.argmax())]
    assert (np.diff(precision) < 0).all()
    assert peak == 1.1
    assert (np.diff(coverage[: heats.index(peak) + 1]) > 0).all()
    top = {p: points[f"t=1,top_p={p},order=temperature_last"] for p in (0.9, 0.95)}
    assert [list(top[p] > alone[1]) for p in (0.9, 0.95)] == [[True, False], [True, True]]
    (was_right, was_found), (right, found) = (map(three_digits, alone[heat]) for heat in (1, 0.3))
    sentences = [
        f"{was_right} → {right}, {'coverage ' if name == 'countdown_small' else ''}{was_found} → {found}",
        f"{three_digits(coverage.max())} on {TASKS[name]} ({was_found} at t = 1)",
        f"{was_right} → {three_digits(top[0.9][0])}, "
        f"{'coverage ' if name == 'countdown_small' else ''}{was_found} → {three_digits(top[0.9][1])}",
        shown(top[0.95]),
    ]
    assert_shown({PAGE: sentences})


def test_the_lowest_coverage_of_a_temperature_is_that_of_the_page():
    last = [temperatures(means(name, "all decodings"))[2][1] for name in TASKS]
    assert_shown({PAGE: [f"At t = 2 it is {shown(last)}"]})


def test_losses_at_one_temperature_are_those_of_the_page():
    nll, cdiv, truncr = (means("countdown_small_losses", name)["t=1"] for name in ("NLL", "c-Div 1.4", "TruncR 0.1"))
    assert (cdiv < nll).all()
    assert_shown({PAGE: [f"NLL {shown(nll)}, c-Div 1.4 {shown(cdiv)}, TruncR 0.1 {shown(truncr)}"]})


def test_losses_with_a_matched_temperature_are_as_close_to_nll_as_the_page_says():
    nll = temperatures(means("countdown_small_losses", "NLL"))
    heats = sorted(nll)
    line = np.array([nll[heat] for heat in heats])

    def apart(name, factor):
        own = temperatures(means("countdown_small_losses", name))
        at = {heat: [np.interp(factor * heat, heats, line[:, column]) for column in (0, 1)] for heat in own}
        return {heat: own[heat] - at[heat] for heat in own}, own

    sentences = []
    for name, factor, words in (("GEM 0.7", 1 / 0.7, "t / 0.7"), ("c-Div 1.4", 1.4, "1.4 · t"), ("EAFT", 1, "t")):
        differences, _ = apart(name, factor)
        largest = np.abs([one for heat, one in differences.items() if heat <= 0.9]).max(axis=0)
        sentences.append(f"| {name} | {words} | {' | '.join(map(three_digits, largest))} |")
    differences, own = apart("c-Div 1.4", 1.4)
    assert all(one[1] < 0 for heat, one in differences.items() if heat <= 0.8)
    assert all((apart(name, factor)[0][1.2] > 0).all() for name, factor in (("GEM 0.7", 1 / 0.7), ("c-Div 1.4", 1.4)))
    less = [three_digits(value) for value in differences[1.2]]
    sentences += [
        f"At t = 1.2, c-Div has precision {three_digits(own[1.2][0])} and coverage {three_digits(own[1.2][1])}.",
        f"NLL at t = 1.68 has {less[0]} less precision and {less[1]} less coverage.",
        f"NLL has more of both at lower temperatures: {shown(nll[1])} at t = 1.",
    ]
    assert_shown({PAGE: sentences})
