"""Checks of arguments. Errors name the argument.

Functions of numbers return plain floats; functions of arrays return float64 arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Values = NDArray[np.float64] | np.float64  # numpy turns 0-d results into scalars
Result = Any
"""A float if the arguments are numbers, else a float64 array of their broadcast shape."""

MASS_SLACK = 1e-9
"""Probabilities may miss a sum of 1 by this much. Rounding in float64 stays below it; a softmax in float32 does not and is refused."""


def plain(x: Any) -> Result:
    """A 0-d result as a float, any other unchanged."""
    return x if isinstance(x, np.ndarray) and x.ndim else float(x)


def check(holds: bool | np.bool, name: str, value: object, legal: str) -> None:
    """Refuse ``value`` of the argument ``name`` unless ``holds``, and say what is legal."""
    if not holds:
        raise ValueError(f"{name} = {value!r}: must be {legal}")


def as_floats(x: ArrayLike, name: str) -> Array:
    """float64 without nan."""
    floats = np.asarray(x, dtype=np.float64)
    if np.isnan(floats).any():
        raise ValueError(f"{name} holds nan")
    return floats


def as_non_negative(x: ArrayLike, name: str) -> Array:
    """Values in [0, inf] of any shape."""
    values = as_floats(x, name)
    if (values < 0).any():
        raise ValueError(f"{name} must lie in [0, inf], got {values.min()}")
    return values


def as_masses(x: ArrayLike, name: str, *, partial: bool = False) -> Array:
    """One axis of non-negative masses that sum to 1, or to at most 1 if ``partial``."""
    mass = np.asarray(x, dtype=np.float64)
    if mass.size and not mass.min() >= 0:  # the least of nan is nan
        raise ValueError(f"{name} must be non-negative and free of nan, its least entry is {mass.min()}")
    _check_atoms(mass, name, partial=partial)
    return mass


def as_log_masses(x: ArrayLike, name: str, *, partial: bool = False) -> Array:
    """One axis of log-masses, -inf where there is no mass; see :func:`as_masses`."""
    logs = np.asarray(x, dtype=np.float64)
    if logs.size and not logs.max() <= MASS_SLACK:
        raise ValueError(f"{name} must be logarithms of probabilities, free of nan; its largest entry is {logs.max()}")
    _check_atoms(np.exp(logs), f"exp({name})", partial=partial)
    return logs


def same_atoms(x: Array, y: Array, names: str) -> None:
    """Refuse two arrays of different shapes."""
    if x.shape != y.shape:
        raise ValueError(f"{names} must list the same atoms, got shapes {x.shape} and {y.shape}")


def _check_atoms(mass: Array, name: str, *, partial: bool) -> None:
    if mass.ndim != 1 or mass.size == 0:
        raise ValueError(f"{name} must have one axis and at least one atom, got shape {mass.shape}")
    total, legal = float(mass.sum()), "at most 1" if partial else "1"
    if not total <= 1 + MASS_SLACK or (not partial and total < 1 - MASS_SLACK):
        raise ValueError(
            f"{name} sums to {total!r}, it must sum to {legal} within {MASS_SLACK}; divide it by its sum in float64"
        )
