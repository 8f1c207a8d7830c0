"""Checking the fields of a loss, and writing them as a spec string."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def check(owner: object, name: str, low: float, high: float, *, allow_high: bool = False) -> None:
    """Refuse a field that is not a number in ``[low, high)``, or ``[low, high]`` with ``allow_high``."""
    value = getattr(owner, name)
    legal = f"{low:g} <= {name} {'<=' if allow_high else '<'} {high:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{type(owner).__name__}: {name}={value!r} is not a number; legal: {legal}")
    if not (low <= value < high or (allow_high and value == high)):
        raise ValueError(f"{type(owner).__name__}: {name}={value!r} is out of range; legal: {legal}")


def spec_of(name: str, weight: Any) -> str:
    """``name:field=value,...`` with every field that differs from its default, as `losses.parse` reads it."""
    shown = [f.name for f in fields(weight) if getattr(weight, f.name) != f.default]
    shown.sort(key=lambda field: field in ("floor", "cap"))  # the loss's own fields first
    parts = [f"{field}={getattr(weight, field)}" for field in shown]
    return f"{name}:{','.join(parts)}" if parts else name
