r"""Exact likelihoods and PR-curves of an autoregressive model on a support that can be listed.

One teacher-forced pass gives the logits of every sequence of Supp(P); from them the likelihood at every temperature
follows without a further pass, :math:`\log Q^t(x) = \sum_l (z_{l,x_l}/t - \log\sum_v e^{z_{l,v}/t})`, and with it the
exact PR-curve. The sequences must hold their end token: a model that does not stop is off the support.

Shapes: S sequences, L target positions, V tokens, N = rows of logits, T temperatures.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .checks import Array, as_masses, as_non_negative, check
from .curve import PRCurve, pr_curve_from_logs

# Rows of logits are taken to float64 in slices of about this many numbers (8 MB): beyond the cache the passes over them cost more,
# and a whole support in float64 may not fit.
SLICE = 1 << 20


def exact_log_likelihood(
    logits: ArrayLike, targets: ArrayLike, temperatures: ArrayLike, *, mask: ArrayLike | None = None
) -> Array:
    """log Q^t(x) of every listed sequence at every temperature, from one set of logits.

    t = 0 is greedy decoding with ties sharing the mass, t = inf uniform on the tokens of finite logit. Slices go to
    float64 one by one, so ``logits`` may be float32, or a memory map larger than memory; whatever lies under the mask
    is not read.

    Args:
      logits: (S, L, V), any float type.
      targets: token ids, (S, L).
      temperatures: t in [0, inf], any shape (T...).
      mask: True at target positions, (S, L); all positions when None.

    Returns:
      (T..., S), float64.

    Examples:
      >>> logits = np.log([[[0.5, 0.5], [0.9, 0.1]]])
      >>> np.exp(exact_log_likelihood(logits, [[0, 1]], [1.0, np.inf, 0.0])).round(6).tolist()
      [[0.05], [0.25], [0.0]]
    """
    z_SLV = np.asarray(logits)
    x_SL = np.asarray(targets)
    if z_SLV.ndim != 3 or x_SL.shape != z_SLV.shape[:2]:
        raise ValueError(f"logits must be (S, L, V) and targets (S, L), got shapes {z_SLV.shape} and {x_SL.shape}")
    keep_SL = np.ones(x_SL.shape, bool) if mask is None else np.asarray(mask, bool)
    if keep_SL.shape != x_SL.shape:
        raise ValueError(f"mask must have the shape of targets {x_SL.shape}, got {keep_SL.shape}")
    t = as_non_negative(temperatures, name="temperatures")
    total_TS = np.zeros((t.size, x_SL.shape[0]))
    step = max(1, SLICE // max(1, z_SLV.shape[2]))
    for position in range(x_SL.shape[1]):
        rows = np.flatnonzero(keep_SL[:, position])
        for start in range(0, rows.size, step):
            part = rows[start : start + step]
            total_TS[:, part] += token_log_likelihood(z_SLV[part, position], x_SL[part, position], t.ravel())
    return total_TS.reshape(*t.shape, x_SL.shape[0])


def token_log_likelihood(logits: ArrayLike, targets: ArrayLike, temperatures: ArrayLike) -> Array:
    """log Q^t of one target token per row of logits, for those who stream their own rows.

    The term that :func:`exact_log_likelihood` sums.

    Args:
      logits: (N, V), any float type.
      targets: token ids, (N,).
      temperatures: t in [0, inf], any shape (T...).

    Returns:
      (T..., N), float64.
    """
    gap_NV, x_N = np.array(logits, dtype=np.float64), np.asarray(targets)
    if gap_NV.ndim != 2 or x_N.shape != gap_NV.shape[:1]:
        raise ValueError(f"logits must be (N, V) and targets (N,), got shapes {gap_NV.shape} and {x_N.shape}")
    if not np.issubdtype(x_N.dtype, np.integer) or (x_N.size and not (x_N.min() >= 0 and x_N.max() < gap_NV.shape[1])):
        raise ValueError(f"targets must be token ids in 0..{gap_NV.shape[1] - 1}, got {x_N.dtype} {x_N}")
    t = as_non_negative(temperatures, name="temperatures")
    top_N1 = gap_NV.max(axis=1, keepdims=True, initial=-np.inf)
    check(
        np.isfinite(top_N1).all(),
        name="logits",
        value="a row",
        legal="free of nan and inf, with a finite entry in each row",
    )
    gap_NV -= top_N1
    hit_N = np.take_along_axis(gap_NV, x_N[:, None], axis=1)[:, 0]
    out_TN, work_NV = np.empty((t.size, x_N.size)), np.empty_like(gap_NV)
    for row, temperature in zip(out_TN, t.flat, strict=True):
        row[:] = _tempered_hit(gap_NV, hit_N, float(temperature), work_NV)
    return out_TN.reshape(*t.shape, x_N.size)


def _tempered_hit(gap_NV: Array, hit_N: Array, t: float, work_NV: Array) -> Array:
    """log-probability at t of the token whose logit lies ``hit_N`` below the top."""
    if t == 0:
        return np.where(hit_N == 0, -np.log((gap_NV == 0).sum(axis=1)), -np.inf)
    if np.isinf(t):
        return np.where(hit_N > -np.inf, -np.log((gap_NV > -np.inf).sum(axis=1)), -np.inf)
    with np.errstate(over="ignore"):  # a gap over a tiny t is -inf: probability 0
        np.exp(np.divide(gap_NV, t, out=work_NV), out=work_NV)
        return np.asarray(hit_N / t - np.log(work_NV.sum(axis=1)))


def exact_curves(
    p: ArrayLike, logits: ArrayLike, targets: ArrayLike, temperatures: ArrayLike, *, mask: ArrayLike | None = None
) -> tuple[PRCurve, ...]:
    """The exact PR-curve of an autoregressive model at each temperature, on a support that is listed in full.

    Args:
      p: probability of each listed sequence, (S,), sum 1.
      logits, targets, mask: as in :func:`exact_log_likelihood`; the S target sequences must differ.
      temperatures: t in [0, inf], one or several.

    Returns:
      One curve per temperature, with ``.precision(lam)``, ``.recall(lam)``, ``.auc``.

    Examples:
      >>> logits = np.log([[[0.5, 0.5]], [[0.5, 0.5]]])
      >>> exact_curves([0.9, 0.1], logits, [[0], [1]], 1.0)[0].precision(1.0)
      0.6
    """
    p_S = as_masses(p, name="p")
    x_SL = np.asarray(targets)
    shown_SL = x_SL if mask is None else np.where(np.asarray(mask, bool), x_SL, -1)
    if len(np.unique(shown_SL, axis=0)) < len(shown_SL):
        raise ValueError(
            "targets lists a sequence twice: its mass would be counted twice; merge the atoms and add their p"
        )
    check(
        len(p_S) == len(x_SL),
        name="p",
        value=f"shape {p_S.shape}",
        legal=f"one mass for each of the {len(x_SL)} sequences",
    )
    with np.errstate(divide="ignore"):
        logp_S = np.log(p_S)
    log_q_TS = exact_log_likelihood(
        logits, x_SL, np.atleast_1d(np.asarray(temperatures, np.float64)).ravel(), mask=mask
    )
    return tuple(pr_curve_from_logs(logp_S, log_q_S) for log_q_S in log_q_TS)
