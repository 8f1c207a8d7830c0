"""The exact figures: the values of the captions, and what the errata say of them."""

from pathlib import Path

import pytest

from widen_recipes import artificial_figures as artificial


def test_the_cases_are_those_of_the_captions():
    assert artificial.EXAMPLE.a / artificial.EXAMPLE.rho == pytest.approx(1.45)
    assert artificial.PR_CURVE_1.a / artificial.PR_CURVE_1.rho == pytest.approx(1.45)
    assert artificial.PR_CURVE_2.a / artificial.PR_CURVE_2.rho == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("case", "t_0", "epsilon_0"),
    [
        (artificial.EXAMPLE, 1.16734751, 0.68577041),
        (artificial.PR_CURVE_1, 2.49707523, 0.275),
        (artificial.PR_CURVE_2, 0.76110946, 0.89488335),
    ],
)
def test_peak_and_noise_level_of_each_figure(case, t_0, epsilon_0):
    assert case.t_0 == pytest.approx(t_0, abs=1e-8)
    assert case.epsilon_0 == pytest.approx(epsilon_0, abs=1e-8)


@pytest.mark.parametrize("case", [artificial.PR_CURVE_1, artificial.PR_CURVE_2])
def test_precision_falls_over_the_three_panels(case):
    values = [float(case.precision(float("inf"), t)) for t in artificial.TEMPERATURES]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("ratio", artificial.EPSILON_0_RATIOS)
def test_epsilon_0_falls_with_lower_b_and_higher_rho(ratio):
    """Against the caption of fig:ineq."""
    value = artificial.epsilon_0
    assert value(ratio, b=0.05, rho=0.9) < value(ratio, b=0.1, rho=0.9) < value(ratio, b=0.3, rho=0.9)
    assert value(ratio, b=0.05, rho=0.9) < value(ratio, b=0.05, rho=0.5)


def test_the_kept_table_is_the_one_that_the_recipe_prints():
    kept = Path(artificial.__file__).parent / "results" / "artificial.csv"
    assert kept.read_text() == artificial.table()
