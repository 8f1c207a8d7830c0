r"""k-NN precision, recall, density and coverage of a generated set against a reference set, exact at every size.

Each point has a ball whose radius is the distance to the point's k-th neighbour in its own set. The union of the balls estimates the
support of the distribution that the points come from (paper, App. "Precision and Recall for the WritingPrompts Task"; Kynkäänniemi
et al., 2019; density and coverage: Naeem et al., 2020). With reference points x of radius r and generated points y of radius s,

.. math::
    Precision = \tfrac1M \#\{y : \exists x,\ |x-y| \le r_x\}, \quad Recall = \tfrac1N \#\{x : \exists y,\ |x-y| \le s_y\}, \\
    Density = \tfrac1{kM} \#\{(x,y) : |x-y| \le r_x\}, \quad Coverage = \tfrac1N \#\{x : \exists y,\ |x-y| \le r_x\}.

Shapes: N reference points, M generated points, D features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .clusters import Baseline
from .features import Features, as_tensor
from .interval import Interval, check_level, mean_interval, share_interval
from .knn_search import Boundary, Membership, membership, squared_radii
from .plain import to_json

CeilingSource: TypeAlias = Literal["split"] | None
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


Ceiling: TypeAlias = Baseline[FourScores]
"""What a perfect model would score. It is below 1, as no finite sample covers itself."""


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


def knn_scores(
    reference: Features,
    generated: Features,
    *,
    k: int = 4,
    boundary: Boundary = "closed",
    ceiling: CeilingSource = "split",
    level: float = 0.95,
    seed: int = 0,
    device: str | torch.device | None = None,
    empty: Sequence[bool] | NDArray[np.bool_] | None = None,
) -> KnnScores:
    """Precision, recall, density and coverage, with intervals, the real-versus-real ceiling and all settings.

    Every comparison has the result that float64 differences of the given numbers have, ties included.

    Args:
      reference: (N, D) features of real texts, N > k.
      generated: (M, D) features of the model's texts, M > k.
      k: the neighbour that sets a ball's radius; a point is not its own neighbour.
      boundary: ``closed`` counts a point on a ball's sphere as inside (Kynkäänniemi); ``open`` does not (prdc).
      ceiling: ``"split"`` also scores one half of the reference against the other, and the model at that size; None saves a
        third of the time.
      level: of the intervals.
      seed: of the split and of the density's bootstrap.
      device: where to compute; by default where ``reference`` is.
      empty: which generated points stand for empty texts, (M,); by default none. Such a point counts, lies in no ball and has none.
        Otherwise it would be an outlier: its huge ball would hold all of the reference, and recall would be 1.

    Examples:
      >>> knn_scores([[0.0], [1.0], [2.0], [3.0]], [[0.5], [1.5], [10.0]], k=1)
      KnnScores(precision=0.6666666666666666, recall=1.0, density=1.3333333333333333, coverage=0.75)

    Paper note: the paper prints Recall = N_fake / N_real; it must be N_real / N. Its code uses an open boundary.
    """
    found = KnnReference(reference, ks=(k,), boundary=boundary, device=device)
    return found.scores(generated, ceiling=ceiling, level=level, seed=seed, empty=empty)[0]


def knn_scores_by_k(
    reference: Features,
    generated: Features,
    *,
    ks: Sequence[int] = (3, 4, 5),
    boundary: Boundary = "closed",
    ceiling: CeilingSource = "split",
    device: str | torch.device | None = None,
) -> tuple[KnnScores, ...]:
    """`knn_scores` for several k at little more than the cost of one, in the order of ``ks``."""
    return KnnReference(reference, ks=ks, boundary=boundary, device=device).scores(generated, ceiling=ceiling)


class KnnReference:
    """A reference set that scores many generated sets; its radii are computed once.

    The arguments are those of `knn_scores`, with several ``ks`` at once.

    Examples:
      >>> reference = KnnReference([[0.0], [1.0], [2.0], [3.0]], ks=(1, 2))
      >>> [score.recall for score in reference.scores([[0.5], [1.5], [10.0]])]
      [1.0, 1.0]
    """

    def __init__(
        self,
        reference: Features,
        *,
        ks: Sequence[int] = (4,),
        boundary: Boundary = "closed",
        device: str | torch.device | None = None,
    ) -> None:
        if boundary not in ("closed", "open"):
            raise ValueError(f"boundary must be 'closed' or 'open', got {boundary!r}")
        self.ks = tuple(int(k) for k in ks)
        if not self.ks or min(self.ks) < 1 or list(self.ks) != list(ks) or len(set(self.ks)) < len(self.ks):
            raise ValueError(f"k must be a whole number of at least 1, and ks different ones, got {list(ks)}")
        self.boundary: Boundary = boundary
        self.rows = self._checked(reference, "reference", device)
        self.squared_radii = squared_radii(self.rows, self.ks)
        self._halves: dict[tuple[int, int], tuple[KnnReference, list[FourScores]]] = {}

    def scores(
        self,
        generated: Features,
        *,
        ceiling: CeilingSource = None,
        level: float = 0.95,
        seed: int = 0,
        empty: Sequence[bool] | NDArray[np.bool_] | None = None,
    ) -> tuple[KnnScores, ...]:
        """The scores of a generated set, one result for each k. The arguments are those of `knn_scores`."""
        if ceiling not in ("split", None):
            raise ValueError(f"ceiling must be 'split' or None, got {ceiling!r}")
        check_level(level)
        rows = self._checked(generated, "generated", self.rows.device)
        silent = np.zeros(len(rows), bool) if empty is None else np.asarray(empty, bool)
        if silent.shape != (len(rows),):
            raise ValueError(f"empty must have one entry for each of {len(rows)} points, got shape {silent.shape}")
        spoken = torch.from_numpy(~silent).to(rows.device)
        found, radii = self._found(rows, spoken)
        four = four_scores(found, self.ks)
        ceilings = self._split(rows, spoken, seed) if ceiling == "split" else None
        known, theirs = self._digests, digests(rows)
        dtypes = dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in (self.rows.dtype, rows.dtype))
        return tuple(
            KnnScores(
                *four[place],
                intervals=intervals(found, place, k, level=level, seed=seed),
                settings=KnnSettings(
                    k=k,
                    boundary=self.boundary,
                    n_reference=len(self.rows),
                    n_generated=len(rows),
                    dimensions=rows.shape[1],
                    dtype=" and ".join(dtypes),
                    device=str(rows.device),
                    level=level,
                    seed=seed,
                ),
                diagnostics=KnnDiagnostics(
                    zero_radii_reference=int((self.squared_radii[place] == 0).sum()),
                    zero_radii_generated=int((radii[place] == 0).sum()),
                    duplicates_reference=len(self.rows) - len(known),
                    duplicates_generated=len(rows) - len(set(theirs)),
                    shared=sum(digest in known for digest in theirs),
                ),
                ceiling=ceilings[place] if ceilings else None,
            )
            for place, k in enumerate(self.ks)
        )

    @cached_property
    def _digests(self) -> set[bytes]:
        return set(digests(self.rows))

    def _checked(self, features: Features, name: str, device: str | torch.device | None) -> Tensor:
        rows = as_tensor(features, name, device=device)
        if name != "reference" and rows.shape[1] != self.rows.shape[1]:
            raise ValueError(f"{name} must have the reference's {self.rows.shape[1]} features, got {rows.shape[1]}")
        if len(rows) <= max(self.ks):
            raise ValueError(f"{name} must have more than k = {max(self.ks)} points, got {len(rows)}")
        return rows

    def _found(self, rows: Tensor, spoken: Tensor) -> tuple[Membership, Tensor]:
        """Membership of all points, and the squared radii of those that are not empty; 0 if they are too few to have a k-th neighbour."""
        some = rows[spoken]
        radii = torch.zeros(len(self.ks), len(some), dtype=torch.float64, device=rows.device)
        if len(some) > max(self.ks):
            radii = squared_radii(some, self.ks)
        found = membership(self.rows, some, self.squared_radii, radii, boundary=self.boundary)
        hits = torch.zeros(len(self.ks), len(rows), dtype=torch.int64, device=rows.device)
        hits[:, spoken] = found.hits
        return replace(found, hits=hits), radii

    def _split(self, rows: Tensor, spoken: Tensor, seed: int) -> list[Ceiling] | None:
        """Half of the reference as a smaller reference, for the other half and for as many generated points."""
        n, size = len(self.rows), min(len(rows), (len(self.rows) + 1) // 2)
        if min(n // 2, size) <= max(self.ks):
            return None

        def order(seed: int, length: int) -> Tensor:
            return torch.from_numpy(np.random.default_rng(seed).permutation(length)).to(rows.device)

        if (size, seed) not in self._halves:
            mixed = self.rows[order(seed, n)]
            half = KnnReference(mixed[: n // 2], ks=self.ks, boundary=self.boundary)
            real, _ = half._found(mixed[n // 2 :][:size], torch.ones(size, dtype=torch.bool, device=rows.device))
            self._halves[size, seed] = half, four_scores(real, self.ks)
        half, real_scores = self._halves[size, seed]
        some = order(seed + 1, len(rows))[:size] if size < len(rows) else slice(None)
        model, _ = half._found(rows[some], spoken[some])
        pairs = zip(real_scores, four_scores(model, self.ks), strict=True)
        return [Ceiling(real, model, n // 2, size) for real, model in pairs]


def four_scores(found: Membership, ks: Sequence[int]) -> list[FourScores]:
    """The four means, for each k."""
    return [
        FourScores(
            precision=int((hits > 0).sum()) / len(hits),
            recall=int(recalled.sum()) / len(recalled),
            density=int(hits.sum()) / (k * len(hits)),
            coverage=int(covered.sum()) / len(covered),
        )
        for k, hits, covered, recalled in zip(ks, found.hits, found.covered, found.recalled, strict=True)
    ]


def digests(rows: Tensor) -> list[bytes]:
    """A hash of each point by value: equal numbers have equal hashes in every float type, and -0.0 equals 0.0."""
    return [
        hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        for piece in torch.split(rows, 4096)
        for row in (piece.double() + 0.0).cpu().numpy()
    ]


def intervals(found: Membership, place: int, k: int, *, level: float, seed: int) -> KnnIntervals:
    """Intervals of the four means, over the points that each averages."""
    hits, covered, recalled = found.hits[place], found.covered[place], found.recalled[place]
    return KnnIntervals(
        precision=share_interval((hits > 0).cpu().numpy(), level=level),
        recall=share_interval(recalled.cpu().numpy(), level=level),
        density=mean_interval(hits.cpu().numpy() / k, level=level, seed=seed),
        coverage=share_interval(covered.cpu().numpy(), level=level),
    )
