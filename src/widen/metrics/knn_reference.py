"""A reference set, ready to score many models against: its radii are computed once (a sweep over temperatures or losses).

Shapes: N reference points, M generated points, D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch

from .interval import check_level, mean_interval, share_interval
from .knn_cross import Boundary, Membership, membership
from .knn_points import Features, Points, as_points, hash_rows
from .knn_radii import Progress, Radii, self_radii
from .knn_result import Ceiling, FourScores, KnnDiagnostics, KnnIntervals, KnnScores, KnnSettings
from .knn_screen import Product, choose_product

CeilingSource: TypeAlias = Features | Literal["split"] | None


class KnnReference:
    """The reference points, their duplicates folded, and the radii of their balls for every k asked for.

    Args:
      reference: (N, D) features; numpy, torch on any device, or nested lists.
      ks: the numbers of neighbours for which scores will be wanted, all from one pass.
      boundary: ``closed`` counts a point on a ball's sphere as inside (Kynkäänniemi), ``open`` does not (prdc).
      device: where to compute; by default where ``reference`` lies.
      product: how the screen multiplies: ``float32``, or ``bf16x3`` on tensor cores (default there). Scores do not depend on it.
      progress: called as (stage, done, total).

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
        product: Product | None = None,
        progress: Progress | None = None,
    ) -> None:
        if boundary not in ("closed", "open"):
            raise ValueError(f"boundary must be 'closed' or 'open', got {boundary!r}")
        self.ks = check_ks(ks)
        self.boundary: Boundary = boundary
        self.points = as_points(reference, "reference", device=device)
        check_enough(self.points, self.ks, "reference")
        self.product: Product = product or choose_product(self.points.rows.device)
        self.progress = progress
        self.radii = self_radii(self.points, self.ks, product=self.product, progress=progress)
        self._halves: dict[tuple[int, int], tuple[KnnReference, tuple[FourScores, ...]]] = {}

    def scores(
        self, generated: Features, *, ceiling: CeilingSource = None, level: float = 0.95, seed: int = 0
    ) -> tuple[KnnScores, ...]:
        """The four scores of a generated set, one result per k of ``ks``.

        Args:
          generated: (M, D) features in the same space as the reference.
          ceiling: ``"split"`` scores one half of the reference against the other (once per reference and size) and the
            model at that size; a second sample of the reference is scored in place of ``generated``; None does neither.
          level: of the bootstrap intervals.
          seed: of the split and of the density's bootstrap.
        """
        check_level(level)
        points = as_points(generated, "generated", device=self.points.rows.device)
        if points.rows.shape[1] != self.points.rows.shape[1]:
            mine, theirs = self.points.rows.shape[1], points.rows.shape[1]
            raise ValueError(f"generated must have the reference's {mine} features, got {theirs}")
        check_enough(points, self.ks, "generated")
        radii = self_radii(points, self.ks, product=self.product, progress=self.progress)
        found = self._membership(points, radii)
        four = [four_scores(found, place, k) for place, k in enumerate(self.ks)]
        ceilings = self._ceilings(points, ceiling, four, seed)
        shared = copies(self.points, points)
        return tuple(
            KnnScores(
                *four[place],
                intervals=intervals(found, place, k, level=level, seed=seed),
                settings=self._settings(points, k, level=level, seed=seed),
                diagnostics=self._diagnostics(points, radii, place, rechecked=found.rechecked, shared=shared),
                ceiling=ceilings[place] if ceilings else None,
            )
            for place, k in enumerate(self.ks)
        )

    def _membership(self, points: Points, radii: Radii) -> Membership:
        return membership(
            self.points,
            points,
            self.radii.squared,
            radii.squared,
            boundary=self.boundary,
            product=self.product,
            progress=self.progress,
        )

    def _four(self, points: Points) -> tuple[FourScores, ...]:
        found = self._membership(points, self_radii(points, self.ks, product=self.product, progress=self.progress))
        return tuple(four_scores(found, place, k) for place, k in enumerate(self.ks))

    def _ceilings(
        self, points: Points, source: CeilingSource, four: list[FourScores], seed: int
    ) -> list[Ceiling] | None:
        if source is None:
            return None
        if isinstance(source, str):
            if source != "split":
                raise ValueError(f"ceiling must be 'split', a second sample of the reference, or None, got {source!r}")
            if min(self.points.n // 2, points.n) <= max(self.ks):
                return None  # a half would have too few points for k neighbours
            half, real, n_generated = self._split(points.n, seed)
            model = half._four(subset(points, n_generated, seed))
            return [Ceiling(a, b, half.points.n, n_generated, "split") for a, b in zip(real, model, strict=True)]
        second = as_points(source, "ceiling", device=self.points.rows.device)
        check_enough(second, self.ks, "ceiling")
        n_generated = min(second.n, points.n)
        real = self._four(subset(second, n_generated, seed))
        model = tuple(four) if n_generated == points.n else self._four(subset(points, n_generated, seed))
        return [Ceiling(a, b, self.points.n, n_generated, "second") for a, b in zip(real, model, strict=True)]

    def _split(self, n_generated: int, seed: int) -> tuple[KnnReference, tuple[FourScores, ...], int]:
        n_generated = min(n_generated, self.points.n - self.points.n // 2)
        if (n_generated, seed) not in self._halves:
            order = torch.from_numpy(np.random.default_rng(seed).permutation(self.points.n)).to(self.points.rows.device)
            halves = [self.points.rows[self.points.inverse[part]] for part in order.tensor_split([self.points.n // 2])]
            half = KnnReference(
                halves[0], ks=self.ks, boundary=self.boundary, product=self.product, progress=self.progress
            )
            self._halves[n_generated, seed] = half, half._four(as_points(halves[1][:n_generated], "reference"))
        return *self._halves[n_generated, seed], n_generated

    def _settings(self, points: Points, k: int, *, level: float, seed: int) -> KnnSettings:
        rows = self.points.rows
        dtypes = dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in (rows.dtype, points.rows.dtype))
        return KnnSettings(
            k=k,
            boundary=self.boundary,
            n_reference=self.points.n,
            n_generated=points.n,
            dimensions=rows.shape[1],
            dtype=" and ".join(dtypes),
            device=str(rows.device),
            product=self.product,
            level=level,
            seed=seed,
        )

    def _diagnostics(self, points: Points, radii: Radii, place: int, *, rechecked: int, shared: int) -> KnnDiagnostics:
        return KnnDiagnostics(
            zero_radii_reference=zero_radii(self.points, self.radii, place),
            zero_radii_generated=zero_radii(points, radii, place),
            duplicates_reference=self.points.duplicates,
            duplicates_generated=points.duplicates,
            shared=shared,
            rechecked=self.radii.rechecked + radii.rechecked + rechecked,
        )


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Refuse what is not a list of different whole numbers, each at least 1."""
    checked = tuple(int(k) for k in ks)
    if (
        not checked
        or any(k < 1 or k != given for k, given in zip(checked, ks, strict=True))
        or len(set(checked)) < len(checked)
    ):
        raise ValueError(f"k must be a whole number of at least 1 (ks: different ones, at least one), got {list(ks)}")
    return checked


def check_enough(points: Points, ks: Sequence[int], name: str) -> None:
    """A k-th neighbour other than itself must exist."""
    if points.n <= max(ks):
        raise ValueError(f"{name} must have more than k = {max(ks)} points, got {points.n}")


def zero_radii(points: Points, radii: Radii, place: int) -> int:
    """Points as given whose ball has radius 0."""
    return int(points.weight[radii.squared[place] == 0].sum())


def subset(points: Points, n: int, seed: int) -> Points:
    """n of the points, drawn without replacement; all of them, in their order, when there are no more."""
    if n >= points.n:
        return points
    chosen = torch.from_numpy(np.random.default_rng(seed + 1).permutation(points.n)[:n]).to(points.rows.device)
    return as_points(points.rows[points.inverse[chosen]], "generated")


def copies(reference: Points, generated: Points) -> int:
    """Generated points that equal a reference point in every feature."""
    x, y = reference.rows, generated.rows
    if x.dtype != y.dtype:
        x, y = x.double(), y.double()
    key, order = hash_rows(x).sort()
    mine = hash_rows(y)
    at = torch.searchsorted(key, mine).clamp(max=len(key) - 1)
    found = (key[at] == mine).nonzero()[:, 0]
    equal = (x[order[at[found]]] == y[found]).all(1)
    return int(generated.weight[found[equal]].sum())


def four_scores(found: Membership, place: int, k: int) -> FourScores:
    """The means of what every point met."""
    hits, covered, recalled = found.hits[place], found.covered[place], found.recalled[place]
    return FourScores(
        precision=int((hits > 0).sum()) / len(hits),
        recall=int(recalled.sum()) / len(recalled),
        density=int(hits.sum()) / (k * len(hits)),
        coverage=int(covered.sum()) / len(covered),
    )


def intervals(found: Membership, place: int, k: int, *, level: float, seed: int) -> KnnIntervals:
    """Bootstrap intervals of the four means over the points that each averages."""
    hits, covered, recalled = found.hits[place], found.covered[place], found.recalled[place]
    return KnnIntervals(
        precision=share_interval(int((hits > 0).sum()), len(hits), level=level),
        recall=share_interval(int(recalled.sum()), len(recalled), level=level),
        density=mean_interval(hits.cpu().numpy() / k, level=level, seed=seed),
        coverage=share_interval(int(covered.sum()), len(covered), level=level),
    )
