"""When two answers are the same: numbers within a tolerance, integers exactly at any size, outputs token by token.

The program chose these texts, so everything here takes time linear in their length.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")  # unambiguous, so linear
_INTEGER = re.compile(r"[+-]?[0-9]+")


def same_answer(reference: float, answer: float, *, tolerance: float) -> bool:
    """Return |answer − reference| ≤ tolerance·|reference|; if the reference is 0, the bound is the tolerance itself.

    Examples:
        >>> [same_answer(38.0, answer, tolerance=0.01) for answer in (38.3, 38.5)]
        [True, False]
    """
    return abs(answer - reference) <= tolerance * (abs(reference) if reference else 1.0)


def same_output(expected: str, printed: str, *, tolerance: float, ignore_case: bool) -> bool:
    """Return whether the whitespace-separated tokens are the same, one by one.

    Examples:
        >>> same_output("1 2\\n0.3333333", "1 2 0.33333333333", tolerance=1e-6, ignore_case=False)
        True
        >>> same_output("9007199254740993", "9007199254740992", tolerance=1e-6, ignore_case=False)
        False
    """
    if ignore_case:
        expected, printed = expected.lower(), printed.lower()
    want, got = expected.split(), printed.split()
    return len(want) == len(got) and all(same_token(a, b, tolerance=tolerance) for a, b in zip(want, got))  # noqa: B905 - Python 3.9


def same_token(expected: str, printed: str, *, tolerance: float) -> bool:
    """Return whether two tokens are equal as text or as numbers.

    An expected integer must be met exactly: 3.0 is 3, 2.9999999 is not. Any other number must be within `tolerance`,
    absolute below 1 and relative above.
    """
    if expected == printed:
        return True
    if not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(printed)):
        return False
    from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal  # here, so that not every fork copies the module

    want, got = Decimal(expected), Decimal(printed)  # exact, whatever their length
    if want == got or _INTEGER.fullmatch(expected):
        return want == got
    # 60 digits, and exponents that no token reaches: nothing overflows, and nothing is rounded to a double.
    exactly = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
    bound = exactly.multiply(Decimal(repr(tolerance)), exactly.max(exactly.abs(want), Decimal(1)))
    return exactly.abs(exactly.subtract(want, got)) <= bound
