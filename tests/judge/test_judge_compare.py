"""When two answers are the same."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.judge.inside.compare import same_answer, same_output, same_token
from widen.judge.inside.examiner import as_number

TOLERANCE = 1e-6


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        (100.0, 101.0, True),
        (100.0, 101.0001, False),
        (-100.0, -99.0, True),
        (-100.0, 100.0, False),
        (0.0, 0.01, True),
        (0.0, 0.011, False),
        (5.0, 5, True),
        (5.0, True, False),
        (1.0, True, True),
        (5.0, 5 + 0j, True),
        (5.0, 5 + 1j, False),
        (5.0, "5", False),
        (5.0, None, False),
        (5.0, np.float32(5.0), True),
        (5.0, np.int64(5), True),
        (5.0, np.array([5.0]), False),
        (0.25, Fraction(1, 4), True),
        (0.25, Decimal("0.25"), True),
        (5.0, Decimal("sNaN"), False),
        (5.0, Decimal("1e999999999"), False),
        (5.0, float("nan"), False),
        (5.0, 10**400, False),
        (1e300, 1e300, True),
    ],
)
def test_an_answer_is_right_within_one_percent(reference, answer, right):
    number = as_number(answer)
    assert (number is not None and same_answer(reference, number, tolerance=0.01)) is right


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("3", "3", True),
        ("3", "03", True),
        ("3", "+3", True),
        ("0", "-0", True),
        ("3", "-3", False),
        ("3", "3.0", True),
        ("3", "2.9999999", False),
        ("3.0", "2.9999999", True),
        ("3.0", "2.9999", False),
        ("1e3", "1000", True),
        ("1000000000.5", "1000000400.5", True),
        ("0.5", "0.500001", True),
        ("0.5", "0.5000011", False),
        ("yes", "Yes", False),
        ("nan", "nan", True),
        ("nan", "NaN", False),
        ("inf", "1e999", False),
        ("1.5", "1.5x", False),
        ("٣", "3", False),
        ("9" * 6000, "9" * 6000, True),
        ("9" * 6000, "9" * 5999 + "8", False),
        (str(2**53 + 1), str(2**53), False),
        (str(2**53 + 1), f"{float(2**53 + 1):.1f}", False),
        ("1000", "1e3", True),
        ("1.", "1", True),
        (".5", "0.5", True),
        (".", "0", False),
        ("0.5", "10e999999", False),
        ("1e999999", "10e999998", True),
        ("1e999999", "1e-999999", False),
        ("10e999999", "1.000000000001e1000000", False),
        ("0.0", "1e-999999", True),
        ("1", "1" * 200_000 + "x", False),
        ("1.5", "1" * 200_000 + "x", False),
        ("1.5", "0." + "0" * 200_000 + "x", False),
        ("0." + "3" * 200_000, "0." + "3" * 200_001, True),
        ("1" + "0" * 200_000, "1e200000", True),
        ("1" + "0" * 200_000, "1e199999", False),
    ],
)
def test_tokens_are_the_same_as_text_or_as_numbers(expected, printed, same):
    assert same_token(expected, printed, tolerance=TOLERANCE) is same


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(), st.integers())
def test_integers_are_the_same_only_if_they_are_equal(a, b):
    assert same_token(str(a), str(b), tolerance=TOLERANCE) == (a == b)
    assert same_token(str(a), f"{a}", tolerance=TOLERANCE)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(-1e9, 1e9), st.floats(-1e-3, 1e-3))
def test_numbers_are_the_same_within_the_tolerance_absolute_or_relative(value, shift):
    expected, printed = f"{value:.9f}", f"{value + shift:.9f}"
    distance = abs(float(expected) - float(printed))
    bound = TOLERANCE * max(1.0, abs(float(expected)))
    if abs(distance - bound) > 1e-9 * max(
        1.0, abs(value)
    ):  # decimal and double arithmetic may differ at the border itself
        assert same_token(expected, printed, tolerance=TOLERANCE) == (distance <= bound)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("1 2\n3\n", "1\n2 3", True),
        ("1 2 3", "1 2", False),
        ("1 2", "1 2 3", False),
        ("", "  \n", True),
        ("YES", "yes", False),
        ("a b", "ab", False),
    ],
)
def test_output_is_compared_token_by_token(expected, printed, same):
    assert same_output(expected, printed, tolerance=TOLERANCE, ignore_case=False) is same


def test_case_counts_unless_it_is_said_not_to():
    assert same_output("YES", "yes", tolerance=TOLERANCE, ignore_case=True)
