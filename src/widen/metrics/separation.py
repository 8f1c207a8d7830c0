"""How well a model separates right from wrong next tokens, on a task whose right continuations can be listed.

A truncating decoding sees only a token's ratio r = q / max q within its context (min-p), or its rank. If every right token has a larger
ratio than every wrong one, truncating and then raising the temperature recovers recall at no cost in precision. A right token below a
wrong one of its own context is out of its reach: only training can help.

With a large vocabulary nearly all wrong tokens are very unlikely, so `auc` is near 1 even for a model that is nearly always wrong.
`below_noise` compares with the most probable wrong token only, so it still tells such models apart.

A context counts by its weight. In a context, a right token counts by P(token | context), and all wrong tokens count alike. So "right"
means a right token drawn from P, and "wrong" a wrong token drawn at random from the same contexts.

Shapes: N contexts, V tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]
Indices = NDArray[np.intp]

VERSION = 1
"""Bumped when a number changes its meaning."""

EDGES = tuple(float(f"{edge:.6g}") for edge in np.logspace(-8, 0, 41))
"""Edges of forty bins of the ratio q / max q, evenly spaced in its logarithm, from 1e-8 to 1."""


@dataclass(frozen=True, kw_only=True)
class Separation:
    """How right and wrong tokens compare.

    Attributes:
      auc: probability that a right token has a larger ratio q / max q than a wrong one, both from any context; ties count half.
      auc_within: the same with both tokens from one context, averaged over contexts that have wrong tokens.
      threshold: the min-p value that maximises `right_kept` - `wrong_kept`; the largest if there are several.
      right_kept, wrong_kept: shares of right mass and of wrong tokens with a ratio of at least `threshold`.
      below_noise: share of right mass that does not exceed the most probable wrong token of its own context. No decoding that keeps the
        model's ranking can produce it without producing a wrong token too.
      below_any_noise: the same against the largest wrong ratio of any context. It is 0 exactly if some min-p value keeps all right
        tokens and no wrong one.
      contexts: number of contexts with a positive weight.
    """

    auc: float
    auc_within: float
    threshold: float
    right_kept: float
    wrong_kept: float
    below_noise: float
    below_any_noise: float
    contexts: int
    version: int = VERSION


def separation_scores(reference: ArrayLike, logits: ArrayLike, *, weights: ArrayLike | None = None) -> Separation:
    """Compare the ratios q / max q of right and of wrong next tokens.

    Args:
      reference: P(token | context), (N, V); a token is right if it is above 0. `widen.theory.Continuations.dense` gives this matrix.
      logits: the model's logits or log-probabilities in the same contexts, (N, V).
      weights: of the contexts, (N,), such as the probability of each prefix; None counts all alike.

    Examples:
      >>> right = [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
      >>> found = separation_scores(right, np.log([[0.5, 0.3, 0.2], [0.5, 0.4, 0.1]]), weights=[3, 1])
      >>> found.auc, found.auc_within, round(found.threshold, 3), found.below_noise, found.below_any_noise
      (0.953125, 1.0, 0.6, 0.0, 0.375)
    """
    ratio_NV, right_NV, w_N, right_weight_NV, wrong_weight_NV = _weighted(reference, logits, weights)
    noise_N = np.where(right_NV, -np.inf, ratio_NV).max(axis=1)
    counted = (w_N > 0) & ~right_NV.all(axis=1)
    # Tokens below 1e-8 of the top, or below every right token, are one tie: of a large vocabulary few tokens are left to sort.
    low_NV = ratio_NV < max(EDGES[0], ratio_NV[right_NV].min())
    context = np.append(np.nonzero(~low_NV)[0], np.arange(len(w_N)))
    flat = [np.append(ratio_NV[~low_NV], np.zeros(len(w_N)))]
    flat += [np.append(side[~low_NV], side.sum(axis=1, where=low_NV)) for side in (right_weight_NV, wrong_weight_NV)]
    within_N = _areas(context, *flat)
    threshold, right_kept, wrong_kept = _best_threshold(*flat)
    return Separation(
        auc=float(_areas(np.zeros_like(context), *flat)[0]),
        auc_within=float(np.average(within_N[counted], weights=w_N[counted])),
        threshold=threshold,
        right_kept=right_kept,
        wrong_kept=wrong_kept,
        below_noise=float(right_weight_NV[ratio_NV <= noise_N[:, None]].sum()),
        below_any_noise=float(right_weight_NV[ratio_NV <= noise_N[counted].max()].sum()),
        contexts=int((w_N > 0).sum()),
    )


@dataclass(frozen=True, kw_only=True)
class RatioHistogram:
    """Share of the right mass, and of the wrong tokens, in each bin of the ratio q / max q. The first bin also holds smaller ratios."""

    edges: tuple[float, ...]
    right: tuple[float, ...]
    wrong: tuple[float, ...]


def ratio_histogram(reference: ArrayLike, logits: ArrayLike, *, weights: ArrayLike | None = None) -> RatioHistogram:
    """The two distributions that `separation_scores` compares, in the bins of `EDGES`. The arguments are the same."""
    ratio_NV, _, _, *sides = _weighted(reference, logits, weights)
    bins = len(EDGES) - 1
    bin_of = np.clip(np.searchsorted(EDGES, ratio_NV.ravel(), side="right") - 1, 0, bins - 1)
    right, wrong = (np.bincount(bin_of, weights=side.ravel(), minlength=bins) / side.sum() for side in sides)
    return RatioHistogram(edges=EDGES, right=tuple(right.tolist()), wrong=tuple(wrong.tolist()))


def _weighted(
    reference: ArrayLike, logits: ArrayLike, weights: ArrayLike | None
) -> tuple[Values, NDArray[np.bool_], Values, Values, Values]:
    """Check the arguments; return ratios and right tokens (N, V), weights of contexts (N,), of right and of wrong tokens (N, V)."""
    p_NV, z_NV = np.asarray(reference, np.float64), np.asarray(logits, np.float64)
    if p_NV.ndim != 2 or p_NV.shape != z_NV.shape or p_NV.size == 0:
        raise ValueError(f"reference and logits must both be (N, V), got shapes {p_NV.shape} and {z_NV.shape}")
    if not (p_NV >= 0).all() or not np.allclose(p_NV.sum(axis=1), 1.0, atol=1e-6):
        raise ValueError("reference: each row must hold probabilities that sum to 1")
    top_N1 = z_NV.max(axis=1, keepdims=True)
    if not np.isfinite(top_N1).all():
        raise ValueError("logits: each row must be free of nan and inf and have a finite entry")
    w_N = np.ones(len(p_NV)) if weights is None else np.asarray(weights, np.float64)
    if w_N.shape != (len(p_NV),) or not (w_N >= 0).all() or not 0 < w_N.sum() < np.inf:
        raise ValueError(f"weights must be {len(p_NV)} numbers of at least 0, not all 0; got shape {w_N.shape}")
    ratio_NV, right_NV = np.exp(z_NV - top_N1), p_NV > 0
    w_N = w_N / w_N.sum()
    right_weight_NV = p_NV / p_NV.sum(axis=1, keepdims=True) * w_N[:, None]
    wrong_count_N = (~right_NV).sum(axis=1)
    wrong_weight_NV = np.where(right_NV, 0.0, (w_N / np.maximum(wrong_count_N, 1))[:, None])
    if not ((w_N > 0) & (wrong_count_N > 0)).any():
        raise ValueError("reference: no context of positive weight has a wrong token, so there is nothing to separate")
    return ratio_NV, right_NV, w_N, right_weight_NV, wrong_weight_NV


def _areas(group: Indices, ratio: Values, right: Values, wrong: Values) -> Values:
    """Area under the ROC curve of each group: the chance that a right ratio exceeds a wrong one, ties counting half."""
    order = np.lexsort((ratio, group))
    group, ratio = group[order], ratio[order]
    new = np.append(True, (np.diff(group) != 0) | (np.diff(ratio) != 0))  # one level for equal ratios of a group
    level = np.cumsum(new) - 1
    right_at, wrong_at = np.bincount(level, weights=right[order]), np.bincount(level, weights=wrong[order])
    of = group[new]
    right_total, wrong_total = np.bincount(of, weights=right_at), np.bincount(of, weights=wrong_at)
    before = np.cumsum(wrong_total) - wrong_total
    beaten = np.cumsum(wrong_at) - wrong_at / 2 - before[of]
    with np.errstate(invalid="ignore", divide="ignore"):  # nan for groups without right or without wrong tokens
        return np.asarray(np.bincount(of, weights=right_at * beaten) / (right_total * wrong_total))


def _best_threshold(ratio: Values, right: Values, wrong: Values) -> tuple[float, float, float]:
    """The ratio that maximises the kept right share minus the kept wrong share, and both shares."""
    levels, index = np.unique(ratio, return_inverse=True)
    right_kept, wrong_kept = (
        np.cumsum(np.bincount(index, weights=weight)[::-1])[::-1] / weight.sum() for weight in (right, wrong)
    )
    gain = right_kept - wrong_kept
    best = int(np.flatnonzero(gain >= gain.max() - 1e-12)[-1])
    return float(levels[best]), float(min(right_kept[best], 1.0)), float(min(wrong_kept[best], 1.0))
