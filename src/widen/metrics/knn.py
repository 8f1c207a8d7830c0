r"""k-NN precision, recall, density and coverage of a generated set against a reference set, exact at every size.

A ball sits on every point, with the distance to its k-th neighbour in its own set for radius; the union of the balls stands for
the support of the law that drew the points (paper, App. "Precision and Recall for the WritingPrompts Task"; Kynkäänniemi et
al., 2019; density and coverage: Naeem et al., 2020).

.. math::
    Precision = \tfrac1M \#\{y : \exists x,\ |x-y| \le r_x\}, \quad Recall = \tfrac1N \#\{x : \exists y,\ |x-y| \le s_y\}, \\
    Density = \tfrac1{kM} \#\{(x,y) : |x-y| \le r_x\}, \quad Coverage = \tfrac1N \#\{x : \exists y,\ |x-y| \le r_x\}.

Shapes: N reference points, M generated points, D features.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .knn_cross import Boundary
from .knn_points import Features
from .knn_radii import Progress
from .knn_reference import CeilingSource, KnnReference
from .knn_result import KnnScores, PrecisionRecall
from .knn_screen import Product


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
    product: Product | None = None,
    progress: Progress | None = None,
) -> KnnScores:
    """Precision, recall, density and coverage with their intervals, the real-versus-real ceiling and all settings.

    Every comparison is the one that float64 differences of the given numbers would make, ties included, at float32 speed.

    Args:
      reference: (N, D) features of real texts, N > k.
      generated: (M, D) features of the model's texts, M > k.
      k: the neighbour that sets a ball's radius, the point itself not counted.
      boundary: ``closed`` counts a point on a ball's sphere as inside; ``open`` does not, and then a text said more than k
        times has an empty ball.
      ceiling: see `KnnReference.scores`; None saves a third of the time.
      level: of the bootstrap intervals.
      seed: of the split and of the density's bootstrap.
      device: where to compute; by default where ``reference`` lies.
      product: how the screen multiplies; scores do not depend on it.
      progress: called as (stage, done, total).

    Examples:
      >>> knn_scores([[0.0], [1.0], [2.0], [3.0]], [[0.5], [1.5], [10.0]], k=1)
      KnnScores(precision=0.6666666666666666, recall=1.0, density=1.3333333333333333, coverage=0.75)
      >>> precision, recall, density, coverage = knn_scores([[0.0], [0.0]], [[0.0], [0.0]], k=1)
      >>> precision, recall
      (1.0, 1.0)

    Paper note: the paper prints Recall = N_fake / N_real; it must be N_real / N. Its code counts an open boundary.
    """
    found = KnnReference(reference, ks=(k,), boundary=boundary, device=device, product=product, progress=progress)
    return found.scores(generated, ceiling=ceiling, level=level, seed=seed)[0]


def knn_scores_by_k(
    reference: Features,
    generated: Features,
    *,
    ks: Sequence[int] = (3, 4, 5),
    boundary: Boundary = "closed",
    ceiling: CeilingSource = "split",
    device: str | torch.device | None = None,
) -> tuple[KnnScores, ...]:
    """`knn_scores` for several k at little more than the price of one, in the order of ``ks``.

    Args:
      reference: (N, D) features of real texts.
      generated: (M, D) features of the model's texts.
      ks: different whole numbers, each at least 1.
      boundary: as in `knn_scores`.
      ceiling: as in `knn_scores`.
      device: as in `knn_scores`.

    Examples:
      >>> line = [[0.0], [1.0], [2.0], [3.0]]
      >>> [scores.settings.k for scores in knn_scores_by_k(line, line, ks=(2, 1))]
      [2, 1]
    """
    return KnnReference(reference, ks=ks, boundary=boundary, device=device).scores(generated, ceiling=ceiling)


def knn_precision_recall(
    reference: Features,
    generated: Features,
    *,
    k: int = 4,
    boundary: Boundary = "closed",
    ceiling: CeilingSource = "split",
    device: str | torch.device | None = None,
) -> PrecisionRecall:
    """The two that the paper reports, as a pair; everything else is in ``.scores``.

    One far-off generated point has a huge ball and can raise recall, as below: compare models at equal sample counts.

    Args:
      reference: (N, D) features of real texts.
      generated: (M, D) features of the model's texts.
      k: as in `knn_scores`.
      boundary: as in `knn_scores`.
      ceiling: as in `knn_scores`.
      device: as in `knn_scores`.

    Examples:
      >>> knn_precision_recall([[0.0], [1.0], [2.0], [3.0]], [[0.5], [1.5], [10.0]], k=1)
      PrecisionRecall(precision=0.6666666666666666, recall=1.0)
    """
    scores = knn_scores(reference, generated, k=k, boundary=boundary, ceiling=ceiling, device=device)
    return PrecisionRecall(scores.precision, scores.recall, scores)
