"""Which right programs count as one."""

import pytest

from widen.run.scoring.same_program import program_form

FORMULA = "n0 = 3.0\nn1 = 4.0\nt0 = n0 + n1\nanswer = t0 / 2.0\nprint(answer)"


@pytest.mark.parametrize(
    "same",
    [
        "a = 3\nb = 4\nanswer = (b + a) / 2",
        "n1 = 4.0\nn0 = 3.0\nunused = 7\nanswer = (n0 + n1) / 2.0  # half",
        "import math\nx = 3.0\nx += 4.0\nanswer = x / 2.0",
    ],
)
def test_names_order_and_unused_steps_do_not_make_another_formula(same):
    assert program_form(same) == program_form(FORMULA)


@pytest.mark.parametrize(
    "same",
    [
        "answer = (5.0 + 2.0 * 3.0 * 4.0) + 2.0",
        "answer = 2.0 + (5.0 + 4.0 * (3.0 * 2.0))",
        "a = 2 + 5\nb = 3 * 4\nanswer = a + 2 * b",
        "answer = 5\nanswer += 2 * 4 * 3\nanswer += 2",
    ],
)
def test_the_order_of_three_terms_or_factors_does_not_count_nor_do_their_brackets(same):
    assert program_form(same) == program_form("answer = 2 * 3 * 4 + 2 + 5")


@pytest.mark.parametrize("other", ["2 * 3 * 4 + 7", "2 * 3 * 4 + 2 + 2 + 5", "(2 + 3) * 4 + 2 + 5", "3 * 4 + 2 + 5"])
def test_a_sum_with_other_terms_is_another_program(other):
    assert program_form(f"answer = {other}") != program_form("answer = 2 * 3 * 4 + 2 + 5")


def test_the_form_of_a_sum_of_very_many_terms_stays_small():
    lines = ["t0 = 1.5", *(f"t{i + 1} = t{i} + {i}" for i in range(500)), "answer = t500"]
    assert len(program_form("\n".join(lines))) == 16


@pytest.mark.parametrize("other", ["answer = 3.5", "answer = 3.0 / 2.0 + 4.0 / 2.0", "answer = 2.0 / (3.0 + 4.0)"])
def test_another_way_to_the_answer_is_another_program(other):
    assert program_form(other) != program_form(FORMULA)


def test_functions_differ_in_what_they_do_and_not_in_names_comments_or_docstrings():
    one = 'def f(items: list) -> int:\n    """Sum."""\n    total = 0\n    for x in items:\n        total += x\n    return total'
    two = "def f(a):\n    s = 0  # sum\n    for b in a:\n        s += b\n    return s\n"
    assert program_form(one) == program_form(two)
    assert program_form(one) != program_form("def f(a):\n    return sum(a)")


def test_a_formula_that_doubles_at_every_line_has_a_form_at_once():
    lines = ["t0 = 1.0", *(f"t{i + 1} = t{i} + t{i}" for i in range(200)), "answer = t200"]
    assert len(program_form("\n".join(lines))) == 16


def test_a_text_that_is_no_python_is_compared_line_by_line():
    assert program_form("answer = = 1 \n\n") == "answer = = 1"
