"""When two answers are the same: numbers within a tolerance, integers exactly at any size, outputs token by token.

Everything here takes time linear in the length of the texts: the program chose them.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, Context

# Possessive quantifiers (++): without backtracking a long token is rejected in linear time.
_INTEGER = re.compile(r"[+-]?[0-9]++")
_DECIMAL = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*+)\.?+([0-9]*+)(?:[eE]([+-]?[0-9]{1,6}))?+")
# 60 digits, and exponents that no token reaches: nothing overflows, and nothing is rounded to a double.
_ARITHMETIC = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


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
    return len(want) == len(got) and all(
        a == b or same_token(a, b, tolerance=tolerance) for a, b in zip(want, got, strict=True)
    )


def same_token(expected: str, printed: str, *, tolerance: float) -> bool:
    """Return whether two tokens are equal as text or as numbers.

    An expected integer must be met exactly: 3.0 is 3, 2.9999999 is not. Any other number must be within `tolerance`,
    absolute below 1 and relative above.
    """
    if expected == printed:
        return True
    exact, other = _number(expected), _number(printed)
    if exact is None or other is None:
        return False
    if exact == other or _INTEGER.fullmatch(expected):
        return exact == other
    want, got = _ARITHMETIC.create_decimal(expected), _ARITHMETIC.create_decimal(printed)
    distance = _ARITHMETIC.abs(_ARITHMETIC.subtract(want, got))
    size = _ARITHMETIC.max(_ARITHMETIC.abs(want), _ARITHMETIC.create_decimal(1))
    return distance <= _ARITHMETIC.multiply(_ARITHMETIC.create_decimal(repr(tolerance)), size)


def _number(token: str) -> tuple[str, str, int] | None:
    """Return sign, digits and exponent, without leading and trailing zeros; None if the token is not a number."""
    found = _DECIMAL.fullmatch(token)
    if found is None:
        return None
    sign, whole, fraction, exponent = found.groups()
    digits = (whole + fraction).lstrip("0")
    short = digits.rstrip("0")
    if not short:
        return "", "", 0
    return "-" if sign == "-" else "", short, int(exponent or 0) - len(fraction) + len(digits) - len(short)
