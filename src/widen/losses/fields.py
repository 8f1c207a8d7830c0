"""The legal range of every field of a loss, and a loss as a spec string."""

from __future__ import annotations

from dataclasses import fields
from numbers import Real
from operator import le, lt
from typing import Any

_COMPARE = {"<": lt, "<=": le}


def check(owner: object, *legal: str) -> None:
    """Refuse a field that is not a number in its range; ``legal`` are texts such as ``0 <= gamma <= 1 (a reason, if you like)``."""
    for text in legal:
        low, above, name, below, high = text.split()[:5]
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(f"{type(owner).__name__}: {name}={value!r} is not a number; legal: {text}")
        if not (_COMPARE[above](float(low), value) and _COMPARE[below](value, float(high))):
            raise ValueError(f"{type(owner).__name__}: {name}={value!r} is out of range; legal: {text}")


def spec_of(name: str, weight: Any) -> str:
    """``name:field=value,...`` with every field that differs from its default, as `losses.parse` reads it."""
    shown = [f.name for f in fields(weight) if getattr(weight, f.name) != f.default]
    shown.sort(key=lambda field: field in ("floor", "cap"))  # the loss's own fields first
    parts = [f"{field}={getattr(weight, field)}" for field in shown]
    return f"{name}:{','.join(parts)}" if parts else name
