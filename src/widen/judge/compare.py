"""When two answers are the same: numbers within a stated tolerance, integers exactly at any size, outputs token by
token.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from numbers import Number
from typing import Any

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)


def same_answer(reference: float, answer: Any, *, tolerance: float) -> bool:
    """|answer − reference| ≤ tolerance·|reference|; the tolerance itself is the bound where the reference is 0.

    Special cases:
        A non-number, a complex number with an imaginary part, NaN and infinity are never right.

    Examples:
        >>> [same_answer(38.0, answer, tolerance=0.01) for answer in (38.3, 38.5)]
        [True, False]
    """
    if not isinstance(answer, Number) or getattr(answer, "imag", 0) != 0:
        return False
    real: Any = getattr(answer, "real", None)
    try:
        value = float(real)
    except (TypeError, ValueError, OverflowError):
        return False
    if not math.isfinite(value):
        return False
    return abs(value - reference) <= tolerance * (abs(reference) if reference else 1.0)


def same_output(expected: str, printed: str, *, tolerance: float, ignore_case: bool) -> bool:
    """Whitespace-separated tokens, pairwise the same.

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
    """Equal as text, or as numbers: an expected integer exactly (3.0 is 3, 2.9999999 is not), any other number to
    `tolerance`, absolute or relative.

    Decimal arithmetic, so that nothing is rounded to a double on the way.
    """
    if expected == printed:
        return True
    if _INTEGER.fullmatch(expected) and _INTEGER.fullmatch(printed):
        return _digits(expected) == _digits(printed)
    if not (_DECIMAL.fullmatch(expected) and _DECIMAL.fullmatch(printed)):
        return False
    want, got = Decimal(expected), Decimal(printed)
    if _INTEGER.fullmatch(expected):
        return want == got
    slack = Decimal(repr(tolerance)) * max(Decimal(1), abs(want))
    return abs(want - got) <= slack


def _digits(token: str) -> str:
    """Sign and digits without leading zeros: comparison in linear time, with no limit on length."""
    digits = token.lstrip("+-").lstrip("0")
    return ("-" if token.startswith("-") and digits else "") + digits
