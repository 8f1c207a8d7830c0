"""What a k-NN score carries: four numbers that unpack, their intervals, the ceiling, and every setting that defines them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .interval import Interval
from .knn_search import Boundary
from .plain import to_json

VERSION = 2
"""Bumped when a number of the same name and settings can differ."""


class FourScores(NamedTuple):
    """Precision, recall, density and coverage, nothing more."""

    precision: float
    recall: float
    density: float
    coverage: float


class KnnIntervals(NamedTuple):
    """An interval for each score, with the balls held fixed (`widen.metrics.interval`)."""

    precision: Interval
    recall: Interval
    density: Interval
    coverage: Interval


@dataclass(frozen=True, kw_only=True)
class KnnSettings:
    """Two k-NN scores can be compared only if these are equal."""

    k: int
    boundary: Boundary
    n_reference: int
    n_generated: int
    dimensions: int
    dtype: str
    device: str
    level: float
    seed: int
    version: int = VERSION


@dataclass(frozen=True, kw_only=True)
class KnnDiagnostics:
    """Counts that warn of misleading scores.

    Args:
      zero_radii_reference, zero_radii_generated: points with at least k exact copies; with an open boundary their balls are empty.
      duplicates_reference, duplicates_generated: points that equal an earlier one of their set.
      shared: generated points that equal some reference point.
    """

    zero_radii_reference: int
    zero_radii_generated: int
    duplicates_reference: int
    duplicates_generated: int
    shared: int


@dataclass(frozen=True)
class Ceiling:
    """What a perfect model would score: one part of the reference against another. It is below 1, as no finite sample covers itself.

    Args:
      real: scores of real points in the place of generated ones.
      model: the model's scores at the same sample sizes. Compare ``real`` with these only.
    """

    real: FourScores
    model: FourScores
    n_reference: int
    n_generated: int


@dataclass(frozen=True)
class KnnScores:
    """k-NN precision, recall, density and coverage; unpacks as these four.

    Args:
      precision: share of generated points inside some reference ball.
      recall: share of reference points inside some generated ball.
      density: mean over generated points of (reference balls around it) / k; may exceed 1.
      coverage: share of reference balls that hold a generated point.
      ceiling: what real points score; None if not asked for, or if the reference is too small to split.
    """

    precision: float
    recall: float
    density: float
    coverage: float
    intervals: KnnIntervals = field(repr=False)
    settings: KnnSettings = field(repr=False)
    diagnostics: KnnDiagnostics = field(repr=False)
    ceiling: Ceiling | None = field(repr=False, default=None)

    to_json = to_json

    def __iter__(self) -> Iterator[float]:
        return iter(self.four)

    @property
    def four(self) -> FourScores:
        """The numbers alone."""
        return FourScores(self.precision, self.recall, self.density, self.coverage)
