"""What this room accepts, decided once: finite non-negative masses, lam and temperatures in [0, inf].

Every public function passes its arguments through here, so that bad input is refused by name and the formulas further
in need no guards. Results of scalar arguments come back as plain floats, results of arrays as float64 arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Values = NDArray[np.float64] | np.float64  # numpy makes scalars of the results of 0-d arrays
Many = NDArray[Any] | Sequence[Any]  # in overloads: what gives an array back, where a float gives a float

# Sums of probabilities may miss 1 by this much: float64 rounding of 10 million atoms stays far under it, a softmax taken in
# float32 (about 1e-7) does not, and is refused rather than silently read as mass that lies elsewhere.
MASS_SLACK = 1e-9


def plain(x: Values) -> float | Array:
    """A 0-d result as a plain float, any other as it is."""
    return x if isinstance(x, np.ndarray) and x.ndim else float(x)


def as_floats(x: ArrayLike, *, name: str) -> Array:
    """float64, no nan."""
    floats = np.asarray(x, dtype=np.float64)
    if np.isnan(floats).any():
        raise ValueError(f"{name} holds nan")
    return floats


def as_masses(x: ArrayLike, *, name: str, partial: bool = False) -> Array:
    """One axis of non-negative masses that sum to 1, or to at most 1 when ``partial``."""
    mass = np.asarray(x, dtype=np.float64)
    if mass.ndim != 1 or mass.size == 0:
        raise ValueError(f"{name} must have one axis and at least one atom, got shape {mass.shape}")
    least, total = float(mass.min()), float(mass.sum())  # min() is nan when any entry is
    if not least >= 0:
        raise ValueError(f"{name} must be non-negative and free of nan, its least entry is {least}")
    check_total(total, name=name, partial=partial)
    return mass


def as_log_masses(x: ArrayLike, *, name: str, partial: bool = False) -> Array:
    """One axis of log-masses, -inf where there is none; see :func:`as_masses`."""
    logs = np.asarray(x, dtype=np.float64)
    if logs.ndim != 1 or logs.size == 0:
        raise ValueError(f"{name} must have one axis and at least one atom, got shape {logs.shape}")
    largest = float(logs.max())
    if not largest <= MASS_SLACK:
        raise ValueError(f"{name} must be logarithms of probabilities, free of nan; its largest entry is {largest}")
    check_total(float(np.exp(logs).sum()), name=f"exp({name})", partial=partial)
    return logs


def check_total(total: float, *, name: str, partial: bool) -> None:
    """Refuse a sum above 1, and one below 1 unless ``partial``."""
    if not total <= 1 + MASS_SLACK:
        raise ValueError(f"{name} sums to {total!r}, more than 1 + {MASS_SLACK}; divide it by its sum in float64")
    if not partial and total < 1 - MASS_SLACK:
        raise ValueError(
            f"{name} sums to {total!r}, it must sum to 1 within {MASS_SLACK}; divide it by its sum in float64"
        )


def same_shape(x: Array, y: Array, *, names: tuple[str, str]) -> None:
    """Refuse two arrays that do not list the same atoms."""
    if x.shape != y.shape:
        raise ValueError(f"{names[0]} and {names[1]} must list the same atoms, got shapes {x.shape} and {y.shape}")


def as_non_negative(x: ArrayLike, *, name: str) -> Array:
    """Values in [0, inf], of any shape: lam, temperatures."""
    values = as_floats(x, name=name)
    if (values < 0).any():
        raise ValueError(f"{name} must lie in [0, inf], got {values.min()}")
    return values


def check(holds: bool | np.bool, *, name: str, value: object, legal: str) -> None:
    """Refuse ``value`` of argument ``name`` unless ``holds``, saying what is legal."""
    if not holds:
        raise ValueError(f"{name} = {value!r}: must be {legal}")
