"""Results as plain values that `json.dumps` accepts."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np


def to_json(self: Any) -> dict[str, Any]:
    """All fields of this result as plain values; results use it as a method."""
    result: dict[str, Any] = plain(self)
    return result


def plain(value: Any) -> Any:
    """Dataclasses and named tuples become dicts, arrays and tuples lists, numpy scalars numbers, nan and infinities strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"no plain form for {type(value).__name__}: {value!r}")
