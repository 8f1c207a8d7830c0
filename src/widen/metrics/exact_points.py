"""Exact precision and recall of a model on a support that can be listed, at many temperatures from one set of likelihoods.

For the integer task: precision is the mass on right sequences, alpha_inf; recall is the expected value of the paper's unique count over
N samples, divided by the size of the support (Algorithm "Precision and Recall for Integer Multiplication"). Neither needs a sample.

Shapes: S sequences of the support, T temperatures, K points of a drawn curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from widen.theory import expected_unique_recall, pr_curve_from_logs
from widen.theory.curve import slopes

VERSION = 1
"""Bumped when a number changes its meaning."""

CURVE_POINTS = 65
"""Points of each PR curve that are kept for drawing, at `widen.theory.curve.slopes`."""


@dataclass(frozen=True, kw_only=True)
class ExactPoint:
    """One model at one temperature.

    Attributes:
      precision: Q(Supp P), the probability that a sample is right.
      recall: expected number of different right sequences among ``num_samples`` samples, over the size of the support.
      recall_ceiling: what the reference itself would get; 1 only as ``num_samples`` grows.
      auc: area under the PR curve; 1 if Q = P.
      precision_at, recall_at: alpha and beta at each lam asked for, in that order.
      curve_precision, curve_recall: the curve at 65 slopes lam, for drawing.
    """

    temperature: float
    precision: float
    recall: float
    recall_ceiling: float
    auc: float
    lams: tuple[float, ...]
    precision_at: tuple[float, ...]
    recall_at: tuple[float, ...]
    num_samples: int
    curve_precision: tuple[float, ...]
    curve_recall: tuple[float, ...]


def exact_points(
    log_p_S: NDArray[np.float64],
    log_q_TS: NDArray[np.float64],
    *,
    temperatures: Sequence[float],
    lams: Sequence[float] = (0.1, 0.5, 1.0, 2.0),
    num_samples: int = 20_000,
) -> list[ExactPoint]:
    """Score log Q^t(x) for every x of Supp(P), one row per temperature (from :func:`widen.theory.exact_log_likelihood`).

    Args:
      log_p_S: log P over its support.
      log_q_TS: log Q^t over the same sequences. Precision is 1 minus Q's mass elsewhere.

    Examples:
      >>> log_p = np.log(np.full(4, 0.25))
      >>> point, = exact_points(log_p, np.log(np.array([[0.5, 0.25, 0.05, 0.05]])), temperatures=[1.0], num_samples=4)
      >>> round(point.precision, 3), round(point.recall, 3), round(point.recall_ceiling, 3)
      (0.85, 0.498, 0.684)
    """
    log_p_S, log_q_TS = np.asarray(log_p_S, float), np.asarray(log_q_TS, float)
    if log_q_TS.shape != (len(temperatures), len(log_p_S)):
        raise ValueError(
            f"log_q_TS has shape {log_q_TS.shape}; {len(temperatures)} temperatures and {len(log_p_S)} sequences need "
            f"{(len(temperatures), len(log_p_S))}"
        )
    ceiling = float(expected_unique_recall(log_p_S, num_samples))
    grid, asked = slopes(CURVE_POINTS), np.asarray(lams, float)
    points = []
    for temperature, log_q_S in zip(temperatures, log_q_TS, strict=True):
        curve = pr_curve_from_logs(log_p_S, log_q_S)
        points.append(
            ExactPoint(
                temperature=float(temperature),
                precision=float(curve.precision(np.inf)),
                recall=float(expected_unique_recall(log_q_S, num_samples)),
                recall_ceiling=ceiling,
                auc=float(curve.auc),
                lams=tuple(asked.tolist()),
                precision_at=tuple(curve.precision(asked).tolist()),
                recall_at=tuple(curve.recall(asked).tolist()),
                num_samples=num_samples,
                curve_precision=tuple(curve.precision(grid).tolist()),
                curve_recall=tuple(curve.recall(grid).tolist()),
            )
        )
    return points
